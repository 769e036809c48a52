//go:build !amd64

package umounter

const machine = uint16(0)

var start func() *[codeSize]byte
