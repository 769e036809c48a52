package agentapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// dialed returns a DialFunc whose connections a function of the test answers.
func dialed(t testing.TB, answer func(net.Conn)) agentapi.DialFunc {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				answer(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", socket) }
}

// serveRaw returns a client of dialed, and the number of its connections.
func serveRaw(t testing.TB, answer func(net.Conn)) (*agentapi.Client, *atomic.Int32) {
	t.Helper()
	var dials atomic.Int32
	dial := dialed(t, answer)
	client := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx)
	})
	t.Cleanup(func() { client.Close() })
	return client, &dials
}

// serveConns answers connections with an HTTP/2 server.
func serveConns(t testing.TB, h http.HandlerFunc) func(net.Conn) {
	t.Helper()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: h, Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxReadFrameSize: agentapi.MaxFrame}}
	t.Cleanup(func() { server.Close() })
	return func(c net.Conn) { server.Serve(&oneConn{conn: c, done: make(chan struct{})}) }
}

// serveHTTP returns a client of an agent whose answers the test makes.
func serveHTTP(t testing.TB, h http.HandlerFunc) (*agentapi.Client, *atomic.Int32) {
	t.Helper()
	return serveRaw(t, serveConns(t, h))
}

// oneConn is a listener with a single connection; it ends with that.
type oneConn struct {
	conn net.Conn
	once sync.Once
	done chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = &closing{Conn: l.conn, done: l.done} })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

type closing struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (c *closing) Close() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}

// soon returns a context that ends before a call that hangs.
func soon(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// calls are all calls that have an answer.
var calls = map[string]func(context.Context, *agentapi.Client) error{
	"Health":    func(ctx context.Context, c *agentapi.Client) error { _, err := c.Health(ctx); return err },
	"Configure": func(ctx context.Context, c *agentapi.Client) error { return c.Configure(ctx, agentapi.Config{}) },
	"Processes": func(ctx context.Context, c *agentapi.Client) error { _, err := c.Processes(ctx); return err },
	"Signal":    func(ctx context.Context, c *agentapi.Client) error { return c.Signal(ctx, "p", 9) },
	"Exec": func(ctx context.Context, c *agentapi.Client) error {
		_, err := c.Exec(ctx, agentapi.Command{Argv: []string{"true"}})
		return err
	},
	"Attach": func(ctx context.Context, c *agentapi.Client) error { _, err := c.Attach(ctx, "p", 0); return err },
	"Tunnel": func(ctx context.Context, c *agentapi.Client) error { _, err := c.Tunnel(ctx, 80); return err },
	"ReadFile": func(ctx context.Context, c *agentapi.Client) error {
		_, _, err := c.ReadFile(ctx, "/f", 0, -1)
		return err
	},
	"WriteFile": func(ctx context.Context, c *agentapi.Client) error {
		_, err := c.WriteFile(ctx, "/f", strings.NewReader("x"), agentapi.WriteOptions{})
		return err
	},
	"Stat":   func(ctx context.Context, c *agentapi.Client) error { _, err := c.Stat(ctx, "/f"); return err },
	"List":   func(ctx context.Context, c *agentapi.Client) error { _, err := c.List(ctx, "/f", "", 0); return err },
	"Mkdir":  func(ctx context.Context, c *agentapi.Client) error { return c.Mkdir(ctx, agentapi.MkdirRequest{}) },
	"Move":   func(ctx context.Context, c *agentapi.Client) error { return c.Move(ctx, agentapi.MoveRequest{}) },
	"Remove": func(ctx context.Context, c *agentapi.Client) error { return c.Remove(ctx, "/f", true) },
}

// each runs every call against an agent and checks the kind of error.
func each(t *testing.T, limit time.Duration, agent func(*testing.T) *agentapi.Client, want error) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			if err := call(soon(t, limit), agent(t)); !errors.Is(err, want) {
				t.Errorf("%s() = %v, want %v", name, err, want)
			}
		})
	}
}

func TestAgentThatTalksGarbage(t *testing.T) {
	each(t, time.Minute, func(t *testing.T) *agentapi.Client {
		c, _ := serveRaw(t, func(c net.Conn) {
			io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n"+strings.Repeat("garbage", 1000))
			io.Copy(io.Discard, c)
		})
		return c
	}, agentapi.ErrBadAnswer)
}

func TestAgentThatHangsUp(t *testing.T) {
	each(t, time.Minute, func(t *testing.T) *agentapi.Client {
		c, _ := serveRaw(t, func(net.Conn) {})
		return c
	}, agentapi.ErrUnreachable)
}

func TestAgentThatNeverAnswers(t *testing.T) {
	each(t, 50*time.Millisecond, func(t *testing.T) *agentapi.Client {
		c, _ := serveHTTP(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		return c
	}, context.DeadlineExceeded)
}

func TestAgentThatNeverReads(t *testing.T) {
	each(t, 50*time.Millisecond, func(t *testing.T) *agentapi.Client {
		block := make(chan struct{})
		c, _ := serveRaw(t, func(net.Conn) { <-block })
		t.Cleanup(func() { close(block) }) // runs before the server waits for us
		return c
	}, context.DeadlineExceeded)
}

func TestSilentConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		call  string
		dials int
		want  error
	}{
		"SafeCall":   {"Health", 2, agentapi.ErrUnreachable},
		"UnsafeCall": {"Remove", 1, agentapi.ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dials := 0
				c := agentapi.NewClient(func(context.Context) (net.Conn, error) {
					dials++
					ours, theirs := net.Pipe()
					go io.Copy(io.Discard, theirs) // accepts bytes, and sends none
					return ours, nil
				})
				defer c.Close()
				if err := calls[tc.call](t.Context(), c); !errors.Is(err, tc.want) || dials != tc.dials {
					t.Errorf("%s() = %v after %d connections, want %v after %d", tc.call, err, dials, tc.want, tc.dials)
				}
			})
		})
	}
}

func TestAgentThatFailsWithoutAReason(t *testing.T) {
	for name, body := range map[string]string{
		"Empty": "", "Text": "oh no", "NoCode": `{"message":"x"}`, "UnknownCode": `{"code":"root","message":"x"}`, "Array": "[]",
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(500)
				io.WriteString(w, body)
			})
			for name, call := range calls {
				if err := call(soon(t, time.Minute), c); !errors.Is(err, agentapi.ErrBadAnswer) {
					t.Errorf("%s() = %v, want %v", name, err, agentapi.ErrBadAnswer)
				}
			}
		})
	}
}

func TestAgentWithHugeAnswers(t *testing.T) {
	endless := func(w http.ResponseWriter) {
		io.WriteString(w, `[`)
		for {
			if _, err := io.WriteString(w, strings.Repeat(`{"id":"x"},`, 1000)); err != nil {
				return
			}
		}
	}
	c, _ := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusConflict)
		}
		if r.Method == http.MethodPut {
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
		}
		endless(w)
	})
	for _, name := range []string{"Health", "Processes", "Stat", "List", "Remove", "WriteFile", "Configure"} {
		if err := calls[name](soon(t, time.Minute), c); !errors.Is(err, agentapi.ErrBadAnswer) {
			t.Errorf("%s() = %v, want %v", name, err, agentapi.ErrBadAnswer)
		}
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	c, _ := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(404)
		json.NewEncoder(w).Encode(agentapi.Error{Code: agentapi.CodeNotFound, Message: strings.Repeat("é", 1<<20)})
	})
	var e *agentapi.Error
	if _, err := c.Health(soon(t, time.Minute)); !errors.As(err, &e) || len(e.Message) > 2<<10 {
		t.Errorf("Health() = %T with a message of %d bytes", err, len(e.Message))
	}
}

// frames returns a body of frames.
func frames(t testing.TB, parts ...any) string {
	t.Helper()
	var b []byte
	for i := 0; i < len(parts); i += 2 {
		frame := parts[i].(agentapi.FrameType)
		if s, ok := parts[i+1].(string); ok {
			b = agentapi.AppendFrame(b, frame, []byte(s))
			continue
		}
		var err error
		if b, err = agentapi.AppendJSONFrame(b, frame, parts[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return string(b)
}

func TestHostileStreams(t *testing.T) {
	started := frames(t, agentapi.FrameStarted, agentapi.Started{})
	for name, tc := range map[string]struct {
		body string
		want error
	}{
		"Nothing":         {"", agentapi.ErrBadAnswer},
		"NoStart":         {frames(t, agentapi.FrameStdout, "x"), agentapi.ErrBadAnswer},
		"StartIsNoJSON":   {frames(t, agentapi.FrameStarted, "x"), agentapi.ErrBadAnswer},
		"OtherOffset":     {frames(t, agentapi.FrameStarted, agentapi.Started{Offset: 7}), agentapi.ErrBadAnswer},
		"NegativeOffset":  {frames(t, agentapi.FrameStarted, agentapi.Started{Offset: -7}), agentapi.ErrBadAnswer},
		"NoExit":          {started + frames(t, agentapi.FrameStdout, "x"), agentapi.ErrBadAnswer},
		"CutHeader":       {started + "\x12\x00", agentapi.ErrBadAnswer},
		"CutPayload":      {started + "\x12\x00\x00\x00\x05abc", agentapi.ErrBadAnswer},
		"HugeFrame":       {started + "\x12\xff\xff\xff\xffabc", agentapi.ErrBadAnswer},
		"FrameOverLimit":  {started + "\x12\x00\x01\x00\x01" + strings.Repeat("x", 65537), agentapi.ErrBadAnswer},
		"UnknownFrame":    {started + frames(t, agentapi.FrameType(0x77), "x"), agentapi.ErrBadAnswer},
		"HostsFrame":      {started + frames(t, agentapi.FrameStdin, "x"), agentapi.ErrBadAnswer},
		"ExitIsNoJSON":    {started + frames(t, agentapi.FrameExit, "x"), agentapi.ErrBadAnswer},
		"SecondStart":     {started + started, agentapi.ErrBadAnswer},
		"Good":            {started + frames(t, agentapi.FrameStderr, "x", agentapi.FrameExit, agentapi.Exit{Code: 1}), io.EOF},
		"MoreAfterExit":   {started + frames(t, agentapi.FrameExit, agentapi.Exit{Code: 1}, agentapi.FrameStdout, "ghost"), io.EOF},
		"EmptyFramesOnly": {started + strings.Repeat(frames(t, agentapi.FrameStdout, ""), 1000), agentapi.ErrBadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, tc.body) })
			if _, err := drain(soon(t, time.Minute), c); !errors.Is(err, tc.want) {
				t.Errorf("the stream ended with %v, want %v", err, tc.want)
			}
		})
	}
}

// drain reads a stream to its end, and reports whether an exit came.
func drain(ctx context.Context, c *agentapi.Client) (exit *agentapi.Exit, err error) {
	s, err := c.Exec(ctx, agentapi.Command{Argv: []string{"true"}})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for {
		f, err := s.Next()
		if err != nil {
			return exit, err
		}
		if f.Exit != nil {
			exit = f.Exit
		}
	}
}

func TestHostileFileContent(t *testing.T) {
	c, _ := serveHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(agentapi.InfoHeader, "{}")
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "short")
		panic(http.ErrAbortHandler)
	})
	body, _, err := c.ReadFile(soon(t, time.Minute), "/f", 0, -1)
	if err == nil {
		defer body.Close()
		_, err = io.ReadAll(body)
	}
	if !errors.Is(err, agentapi.ErrBadAnswer) {
		t.Errorf("a file cut short ends with %v", err)
	}
}

func TestDialErrorIsKept(t *testing.T) {
	mine := errors.New("no such box")
	c := agentapi.NewClient(func(context.Context) (net.Conn, error) { return nil, mine })
	defer c.Close()
	if _, err := c.Health(t.Context()); !errors.Is(err, mine) || !errors.Is(err, agentapi.ErrUnreachable) {
		t.Errorf("Health() = %v", err)
	}
}

func TestDialThatHangs(t *testing.T) {
	c := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	defer c.Close()
	if _, err := c.Health(soon(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Health() = %v", err)
	}
}

func TestDeadConnectionIsReplaced(t *testing.T) {
	var conns sync.Map
	var n atomic.Int32
	healthy := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: http.HandlerFunc(healthy), Protocols: &protocols}
	defer server.Close()
	c, dials := serveRaw(t, func(c net.Conn) {
		conns.Store(n.Add(1), c)
		server.Serve(&oneConn{conn: c, done: make(chan struct{})})
	})
	for i := range 5 {
		if _, err := c.Health(soon(t, time.Minute)); err != nil {
			t.Fatalf("Health() %d = %v", i, err)
		}
		conns.Range(func(_, v any) bool {
			v.(net.Conn).Close()
			return true
		})
	}
	if got := dials.Load(); got != 5 {
		t.Errorf("%d dials, want 5", got)
	}
}

func TestOnlySafeCallsAreRepeated(t *testing.T) {
	var removals, healths atomic.Int32
	c, _ := serveRaw(t, func(nc net.Conn) {
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		var seen atomic.Int32
		server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				removals.Add(1)
			} else {
				healths.Add(1)
			}
			if seen.Add(1) > 1 { // answers once per connection
				nc.Close()
				return
			}
			io.WriteString(w, "{}")
		})}
		server.Serve(&oneConn{conn: nc, done: make(chan struct{})})
	})
	ctx := soon(t, time.Minute)
	if _, err := c.Health(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(ctx, "/f", false); !errors.Is(err, agentapi.ErrUnreachable) {
		t.Errorf("Remove() = %v, want %v", err, agentapi.ErrUnreachable)
	}
	if got := removals.Load(); got != 1 {
		t.Errorf("the removal was sent %d times", got)
	}
	for i := range 4 {
		if _, err := c.Health(ctx); err != nil {
			t.Errorf("Health() %d = %v", i, err)
		}
	}
}

func TestStreamsShareConnections(t *testing.T) {
	started := frames(t, agentapi.FrameStarted, agentapi.Started{})
	c, dials := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, started)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	const streams = 20
	var wg sync.WaitGroup
	opened := make(chan *agentapi.Stream, streams)
	for range streams {
		wg.Go(func() {
			s, err := c.Exec(t.Context(), agentapi.Command{Argv: []string{"x"}})
			if err != nil {
				t.Errorf("Exec() = %v", err)
				return
			}
			opened <- s
		})
	}
	wg.Wait()
	perConn := agentapi.MaxInFlight / agentapi.StreamWindow
	if got, want := int(dials.Load()), streams/perConn; got != want {
		t.Errorf("%d streams took %d connections, want %d", streams, got, want)
	}
	c.Close()
	for range len(opened) {
		if _, err := (<-opened).Next(); !errors.Is(err, agentapi.ErrUnreachable) {
			t.Errorf("Next() after Close() = %v", err)
		}
	}
	if _, err := c.Health(t.Context()); !errors.Is(err, agentapi.ErrUnreachable) {
		t.Errorf("Health() after Close() = %v", err)
	}
}

// TestAnAgentWithoutMetadata writes a file where an old agent ignores its metadata.
func TestAnAgentWithoutMetadata(t *testing.T) {
	client, _ := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"name": "f", "type": "file", "size": 1}`)
	})
	if info, err := client.WriteFile(t.Context(), "/f", strings.NewReader("x"), agentapi.WriteOptions{}); err != nil || info.Name != "f" {
		t.Errorf("without metadata = %+v, %v", info, err)
	}
	_, err := client.WriteFile(t.Context(), "/f", strings.NewReader("x"), agentapi.WriteOptions{Metadata: map[string]string{"a": "b"}})
	var failed *agentapi.Error
	if !errors.As(err, &failed) || failed.Code != agentapi.CodeInvalid || !strings.Contains(failed.Message, "the file was written") {
		t.Errorf("with metadata = %v", err)
	}
}
