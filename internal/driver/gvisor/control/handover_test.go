package control_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/driver/gvisor/control"
)

// TestHandOver hands connections over to an agent that takes them later, or never.
func TestHandOver(t *testing.T) {
	dir := t.TempDir()
	const answer = 100 * time.Millisecond
	c := control.New(dir, "box", answer)
	ours, theirs := pair(t)
	if err := c.HandOver(t.Context(), theirs); !errors.Is(err, control.ErrNotAsked) {
		t.Errorf("HandOver without a socket = %v, want ErrNotAsked", err)
	}
	socket, err := control.BindHandover(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := unix.Sendto(int(socket.Fd()), []byte("out"), 0, &unix.SockaddrUnix{Name: dir + "/agent.sock"}); !errors.Is(err, unix.EPIPE) {
		t.Errorf("sending from the agent's socket = %v, want EPIPE", err)
	}
	n := 0
	for ; n < 10_000 && err == nil; n++ {
		err = c.HandOver(t.Context(), theirs)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("HandOver number %d, which nobody takes = %v, want DeadlineExceeded", n, err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- control.New(dir, "box", time.Minute).HandOver(t.Context(), theirs) }()
	time.Sleep(50 * time.Millisecond) // it waits then, at least usually
	// When the agent takes the first connection, another can be handed over. Bytes arrive on it.
	rights := make([]byte, unix.CmsgSpace(4))
	_, m, _, _, err := unix.Recvmsg(int(socket.Fd()), make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		t.Fatalf("messages = %v, %v", messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("descriptors = %v, %v", fds, err)
	}
	agent := os.NewFile(uintptr(fds[0]), "agent")
	defer agent.Close()
	if _, err := agent.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 9)
	if n, err := ours.Read(got); err != nil || string(got[:n]) != "hello" {
		t.Errorf("read %q, %v", got[:n], err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("HandOver when there is room = %v", err)
	}
	socket.Close()
	if err := c.HandOver(t.Context(), theirs); !errors.Is(err, control.ErrNotAsked) {
		t.Errorf("HandOver to a box that has ended = %v, want ErrNotAsked", err)
	}
}

// pair returns the ends of a connection.
func pair(t *testing.T) (net.Conn, int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[1]) })
	f := os.NewFile(uintptr(fds[0]), "ours")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, fds[1]
}
