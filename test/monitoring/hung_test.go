package monitoring_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// hung returns the address of a receiver that accepts connections and never answers, and a channel that is closed when a
// server sends to it.
func hung(t *testing.T) (endpoint string, asked <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				break
			}
			if open = append(open, conn); len(open) == 1 {
				close(first)
			}
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return "http://" + l.Addr().String(), first
}

// TestStopWithHungReceivers: a server whose receivers of traces, metrics and logs all hang ends before its systemd unit
// would kill it, and its sandboxes keep running.
func TestStopWithHungReceivers(t *testing.T) {
	const unitTimeout = 90 * time.Second // TimeoutStopSec in packaging/modbox.service
	args := []string{"--pool-size", "0", "--metrics-interval", "1s"}
	var receivers []<-chan struct{}
	for _, kind := range []string{"traces", "metrics", "log"} {
		endpoint, asked := hung(t)
		args, receivers = append(args, "--"+kind+"-endpoint", endpoint), append(receivers, asked)
	}
	s := testserver.StartSmall(t, args...)
	sb := s.MustCreate(client.CreateOptions{})
	for _, asked := range receivers {
		<-asked
	}
	pid := s.PID()
	ctx, cancel := context.WithTimeout(t.Context(), unitTimeout)
	defer cancel()
	killed := context.AfterFunc(ctx, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	s.Stop()
	if !killed() {
		t.Fatalf("the server does not end; its log:\n%s", s.Log())
	}
	s.SetArgs("--pool-size", "0")
	s.Launch()
	if now, err := s.Client.Sandboxes.Get(t.Context(), sb.ID); err != nil || now.State != client.Running {
		t.Errorf("the sandbox after the restart: %+v, %v", now, err)
	}
}
