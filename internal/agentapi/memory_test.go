package agentapi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
)

// announced has the settings that a client sends at the beginning of each connection.
type announced struct {
	net.Conn
	tell func(window int)
	head []byte
}

func (a *announced) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	a.head = append(a.head, p[:n]...)
	const preface, frameHeader = 24, 9
	if a.tell == nil || len(a.head) < preface+frameHeader {
		return n, err
	}
	settings := a.head[preface+frameHeader:]
	size := int(a.head[preface])<<16 | int(a.head[preface+1])<<8 | int(a.head[preface+2])
	if len(settings) < size {
		return n, err
	}
	for s := settings[:size]; len(s) >= 6; s = s[6:] {
		if binary.BigEndian.Uint16(s) == 4 { // INITIAL_WINDOW_SIZE
			a.tell(int(binary.BigEndian.Uint32(s[2:])))
		}
	}
	a.tell, a.head = nil, nil
	return n, err
}

// stalling is an agent whose streams begin and then send nothing more. It returns the stream window
// of each of its connections.
func stalling(t *testing.T) (agent agentapi.DialFunc, windows func() []int) {
	t.Helper()
	started := frames(t, agentapi.FrameStarted, agentapi.Started{})
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxReadFrameSize: agentapi.MaxFrame}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, started)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	t.Cleanup(func() { server.Close() })
	var mu sync.Mutex
	var seen []int
	dial := dialed(t, func(c net.Conn) {
		server.Serve(&oneConn{done: make(chan struct{}), conn: &announced{Conn: c, tell: func(window int) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, window)
		}}})
	})
	return dial, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// openStreams opens streams until one is refused because of their number.
func openStreams(t *testing.T, c *agentapi.Client, most int) (open []*agentapi.Stream) {
	t.Helper()
	for range most {
		s, err := c.Exec(soon(t, time.Minute), agentapi.Command{Argv: []string{"x"}})
		var refused *agentapi.Error
		if errors.As(err, &refused) && refused.Code == agentapi.CodeTooMany {
			return open
		}
		if err != nil {
			t.Fatalf("stream %d: %v", len(open), err)
		}
		open = append(open, s)
	}
	return open
}

// TestStalledStreamsHoldLittle checks that a client whose streams nobody reads has small windows
// for all streams but the first, so that their total is a fraction of as many full windows.
func TestStalledStreamsHoldLittle(t *testing.T) {
	dial, windows := stalling(t)
	c := agentapi.NewClient(dial)
	defer c.Close()
	open := openStreams(t, c, 1000)
	if len(open) != 512 {
		t.Errorf("%d streams could be opened, want 512", len(open))
	}
	held := 0
	for _, w := range windows() {
		held += 2 * w
	}
	if got := windows(); got[0] != agentapi.StreamWindow {
		t.Errorf("the first connection has windows of %d bytes, want %d", got[0], agentapi.StreamWindow)
	}
	if most := 64 << 20; held == 0 || held > most {
		t.Errorf("the windows of %d streams hold %d bytes, want at most %d", len(open), held, most)
	}
	for _, s := range open[400:] {
		s.Close()
	}
	before := len(windows())
	_, _, _ = c.ReadFile(soon(t, time.Minute), "/f", 0, -1) // the agent has no files
	if got := windows(); len(got) != before+1 || got[before] != agentapi.StreamWindow {
		t.Errorf("beside many streams the connection for a file has windows %v, want one of %d bytes", got[before:], agentapi.StreamWindow)
	}
	for _, s := range open {
		s.Close()
	}
	if again := openStreams(t, c, 512); len(again) != 512 {
		t.Errorf("after all were closed %d streams could be opened, want 512", len(again))
	}
}

// TestClientsShareMemory checks that the memory of a client leaves the other clients their own
// part, and is released when its streams end.
func TestClientsShareMemory(t *testing.T) {
	dial, _ := stalling(t)
	shared := agentapi.NewMemory(8 << 20)
	greedy, other := shared.NewClient(dial), shared.NewClient(dial)
	defer greedy.Close()
	defer other.Close()
	open := openStreams(t, greedy, 512)
	if len(open) == 512 {
		t.Fatal("one client could open as many streams as without a bound")
	}
	own := openStreams(t, other, 512)
	if len(own) < 6 {
		t.Errorf("the other client could open %d streams, want its own part", len(own))
	}
	for _, s := range append(open, own...) {
		s.Close()
	}
	if again := openStreams(t, other, 512); len(again) != len(open) {
		t.Errorf("after the others' end a client could open %d streams, want %d", len(again), len(open))
	}
}

// TestLargeFramesAreRefused announces large frames: each stream would allocate a buffer of that
// size.
func TestLargeFramesAreRefused(t *testing.T) {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Protocols: &protocols, HTTP2: &http.HTTP2Config{MaxReadFrameSize: 1 << 20}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		io.WriteString(w, "{}")
	})}
	t.Cleanup(func() { server.Close() })
	c, _ := serveRaw(t, func(nc net.Conn) { server.Serve(&oneConn{conn: nc, done: make(chan struct{})}) })
	ctx := soon(t, time.Minute)
	if _, err := c.Health(ctx); err != nil { // from here on its settings are known
		t.Fatal(err)
	}
	if _, err := c.WriteFile(ctx, "/f", strings.NewReader(strings.Repeat("x", 1<<20)), agentapi.WriteOptions{}); !errors.Is(err, agentapi.ErrBadAnswer) {
		t.Errorf("WriteFile() to an agent with large frames = %v, want %v", err, agentapi.ErrBadAnswer)
	}
}

// TestStartIsNoAnswer checks that only the first frame of a request may be large.
func TestStartIsNoAnswer(t *testing.T) {
	started := frames(t, agentapi.FrameStarted, agentapi.Started{})
	head := make([]byte, agentapi.FrameHeader)
	agentapi.PutFrameHeader(head, agentapi.FrameStart, agentapi.MaxFrame+1)
	c, _ := serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, started)
		w.Write(head)
		http.NewResponseController(w).Flush()
		<-r.Context().Done() // a reader that accepted it would wait for the rest
	})
	s, err := c.Exec(soon(t, time.Minute), agentapi.Command{Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(); !errors.Is(err, agentapi.ErrBadAnswer) {
		t.Errorf("Next() = %v, want %v", err, agentapi.ErrBadAnswer)
	}
}

// TestLargeAnswersAreCounted checks that long answers that end late cannot exceed the bound.
func TestLargeAnswersAreCounted(t *testing.T) {
	list := append(append([]byte("["), bytes.Repeat([]byte(" "), 3<<20)...), ']')
	more := make(chan struct{})
	dial := dialed(t, serveConns(t, func(w http.ResponseWriter, r *http.Request) {
		w.Write(list[:len(list)-1])
		http.NewResponseController(w).Flush()
		<-more
		w.Write(list[len(list)-1:])
	}))
	c := agentapi.NewMemory(8 << 20).NewClient(dial)
	defer c.Close()
	const calls = 8
	ctx := soon(t, time.Minute)
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := c.Processes(ctx)
			errs <- err
		}()
	}
	// Some are refused at once for lack of memory, the others end when their answers do.
	var refused *agentapi.Error
	if err := <-errs; !errors.As(err, &refused) || refused.Code != agentapi.CodeTooMany {
		t.Errorf("Processes() = %v, want %s", err, agentapi.CodeTooMany)
	}
	close(more)
	for range calls - 1 {
		<-errs
	}
	if _, err := c.Processes(soon(t, time.Minute)); err != nil {
		t.Errorf("Processes() after the others = %v", err)
	}
}
