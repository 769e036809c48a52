package agentapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// seeds adds the bodies from which fuzzing starts.
func seeds(f *testing.F) {
	started := frames(f, agentapi.FrameStarted, agentapi.Started{})
	f.Add([]byte(started + frames(f, agentapi.FrameStdout, "x", agentapi.FrameExit, agentapi.Exit{Code: 1})))
	f.Add([]byte(started + "\x12\xff\xff\xff\xff"))
	f.Add([]byte(started + "\x01\x00\x10\x00\x00"))
	f.Add([]byte("\x11\x00\x00\x00\x02{}\x14\x00\x00\x00\x04null"))
	f.Add([]byte{})
}

func FuzzFrameReader(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		r := agentapi.NewFrameReader(bytes.NewReader(data))
		var again []byte
		for {
			frame, err := r.Next()
			if err != nil {
				if err == io.EOF && !bytes.Equal(again, data) {
					t.Errorf("read to the end, but %d of %d bytes are in frames", len(again), len(data))
				}
				return
			}
			again = agentapi.AppendFrame(again, frame.Type, frame.Data)
			if !bytes.HasPrefix(data, again) {
				t.Fatalf("frame 0x%02x with %d bytes is not what came", frame.Type, len(frame.Data))
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _ := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		exit, err := drain(ctx, c)
		switch {
		case ctx.Err() != nil:
			t.Error("the stream hangs")
		case err == nil || (err == io.EOF) != (exit != nil):
			t.Errorf("the stream ended with %v after exit %+v", err, exit)
		}
	})
}

func FuzzConnection(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n{}"))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x01\x88"))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _ := serveRaw(t, func(c net.Conn) {
			c.Write(data)
			if u, ok := c.(*net.UnixConn); ok {
				u.CloseWrite()
			}
			io.Copy(io.Discard, c)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Health(ctx)
		var refused *agentapi.Error
		if ctx.Err() != nil {
			t.Error("the call hangs")
		}
		if err != nil && !errors.Is(err, agentapi.ErrBadAnswer) && !errors.Is(err, agentapi.ErrUnreachable) && !errors.As(err, &refused) {
			t.Errorf("Health() = %v, which is no kind of error that is promised", err)
		}
	})
}
