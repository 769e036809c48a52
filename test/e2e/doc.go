// Package e2e tests the binary as its users meet it: server process, command
// line and real sandboxes together.
package e2e
