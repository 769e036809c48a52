package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A silent server keeps a handshake until the deadline at most, or until its request has ended. Those that
// wait for their turn end then as well.
func TestDialTLSEnds(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var dials, open atomic.Int64
			dial := dialTLS(2, func(context.Context, string) (net.Conn, error) {
				dials.Add(1)
				open.Add(1)
				near, far := net.Pipe()
				go func() {
					_, _ = io.Copy(io.Discard, far)
					open.Add(-1)
				}()
				return near, nil
			})
			visit, end := context.WithCancel(t.Context())
			defer end()
			results := make(chan error)
			for range 3 {
				go func() {
					ctx := context.WithValue(t.Context(), contextKey{}, &request{ended: visit})
					_, err := dial(ctx, "", "app.test:443")
					results <- err
				}()
			}
			synctest.Wait()
			if dials.Load() != 2 || open.Load() != 2 {
				t.Errorf("%d connections were made and %d are open, want 2", dials.Load(), open.Load())
			}
			want := context.DeadlineExceeded
			if leaves {
				want = context.Canceled
				end()
			}
			for range 3 {
				if err := <-results; !errors.Is(err, want) {
					t.Errorf("a dial ended with %v, want %v", err, want)
				}
			}
			synctest.Wait()
			if open.Load() != 0 {
				t.Errorf("%d connections are open after the end", open.Load())
			}
		})
	}
}
