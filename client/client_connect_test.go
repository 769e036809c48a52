package client

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// silentAddress returns an address that neither accepts nor refuses connections, as the address of a machine that is gone.
func silentAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: bound.(*syscall.SockaddrInet4).Port}).String()
	for { // until its queue is full
		c, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// TestServerIsGone checks that a call does not wait for a connection until its own limit.
func TestServerIsGone(t *testing.T) {
	address, before := silentAddress(t), connectTimeout
	connectTimeout = 50 * time.Millisecond
	defer func() { connectTimeout = before }()
	c, err := New("http://"+address, "mbx_test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = c.Version(ctx)
	var failed net.Error
	if !errors.As(err, &failed) || !failed.Timeout() || ctx.Err() != nil {
		t.Errorf("Version() = %v; the limit of the call: %v, want an attempt that ended before", err, ctx.Err())
	}
}
