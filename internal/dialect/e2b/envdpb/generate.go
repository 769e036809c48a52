// Package envdpb has the services of E2B's clients as .proto files, and below it the Go code that is
// generated from them: after a change of a file, run go generate.
package envdpb

//go:generate env GOFLAGS= go run -C ../../../../tools ./protogen ../internal/dialect/e2b/envdpb github.com/modbox/modbox/internal/dialect/e2b/envdpb
