package code

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// hostile is a dialogue with a supervisor that answers each connection as it likes.
type hostile struct {
	answer func(w io.Writer) // after it, the connection is closed
	saves  int               // how many broken connections a save explains
	dials  int
	held   int64
	most   int64 // that may be held
	ended  bool
}

func (h *hostile) Env() map[string]string { return nil }

func (h *hostile) RoundTrip(_ string, req *http.Request) (*http.Response, error) {
	h.dials++
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
			h.answer(theirs)
		}
	}()
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return ours, nil },
		MaxResponseHeaderBytes: 16 << 10,
	}
	return transport.RoundTrip(req)
}

func (h *hostile) Again(reason error) error {
	if h.saves > 0 {
		h.saves--
		return nil
	}
	return sandbox.Wrap(sandbox.AgentUnreachable, reason, "the connection broke")
}

func (h *hostile) Reserve(bytes int64) error {
	if h.held+bytes > h.most {
		return sandbox.Errorf(sandbox.QuotaExceeded, "no memory")
	}
	h.held += bytes
	return nil
}

func (h *hostile) Release(bytes int64) { h.held -= bytes }

func (h *hostile) Review(context.Context, []codescan.Code) error { return nil }

func (h *hostile) CheckLimits(agentapi.Limits) error { return nil }

func (h *hostile) End() { h.ended = true }

// run returns a run that reads what h answers.
func (h *hostile) run(ctx context.Context) *Run {
	ctx, cancel := context.WithCancel(ctx)
	return &Run{target: &target{talk: h}, ctx: ctx, cancel: cancel, id: "r"}
}

// read reads a run from its start to its end or error.
func read(r *Run) (all []kernelapi.Event, err error) {
	if err := r.connect(false); err != nil {
		return nil, r.target.again(err)
	}
	for {
		ev, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, ev)
	}
}

// lines answers events.
func lines(events ...string) func(io.Writer) {
	return func(w io.Writer) {
		fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s\n", strings.Join(events, "\n"))
	}
}

// forever writes begin once and then part until the connection is closed.
func forever(begin, part string) func(io.Writer) {
	return func(w io.Writer) {
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = io.WriteString(w, part)
		}
	}
}

// TestRefusalNamesAField reads refusals of the supervisor, which may call only inputs of a request wrong.
func TestRefusalNamesAField(t *testing.T) {
	for field, want := range map[string]string{"language": "language", "cwd": "cwd", "": "", "token": ""} {
		answer := fmt.Sprintf("HTTP/1.1 400 X\r\nConnection: close\r\n\r\n{\"code\":\"invalid\",\"message\":\"no\",\"field\":%q}", field)
		h := &hostile{answer: func(w io.Writer) { io.WriteString(w, answer) }, most: 64 << 20}
		r := h.run(t.Context())
		_, err := read(r)
		r.Close()
		var refused *sandbox.Error
		if !errors.As(err, &refused) || refused.Code != sandbox.Invalid || refused.Field != want {
			t.Errorf("a refusal for %q is %+v, want invalid for the field %q", field, err, want)
		}
	}
}

const (
	okHead  = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
	started = `{"type":"started","seq":1,"context":"python"}`
	end     = `{"type":"end","seq":2,"status":"ok"}`
)

// TestHostileEvents reads events that no supervisor of ours sends.
func TestHostileEvents(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	members := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"m%d":1`, i))
		}
		return strings.Join(all, ",")
	}
	for name, tc := range map[string]struct {
		answer func(io.Writer)
		want   sandbox.Code // "" for a run that ends well
		events int          // before the error
	}{
		"well":                        {lines(started, end), "", 2},
		"more after the end":          {lines(started, end, "garbage"), "", 2},
		"no JSON":                     {lines("x"), sandbox.Unavailable, 0},
		"an array":                    {lines("[]"), sandbox.Unavailable, 0},
		"an empty line":               {lines(""), sandbox.Unavailable, 0},
		"does not begin with started": {lines(`{"type":"stdout","seq":1,"text":"x"}`), sandbox.Unavailable, 0},
		"starts twice":                {lines(started, `{"type":"started","seq":2,"context":"python"}`), sandbox.Unavailable, 1},
		"a number twice":              {lines(started, started), sandbox.Unavailable, 1},
		"a number left out":           {lines(started, `{"type":"stdout","seq":3,"text":"x"}`), sandbox.Unavailable, 1},
		"a negative number":           {lines(`{"type":"started","seq":-1,"context":"python"}`), sandbox.Unavailable, 0},
		"a number that overflows":     {lines(`{"type":"started","seq":18446744073709551617,"context":"python"}`), sandbox.Unavailable, 0},
		"no context":                  {lines(`{"type":"started","seq":1}`), sandbox.Unavailable, 0},
		"a context with a path":       {lines(`{"type":"started","seq":1,"context":"../x"}`), sandbox.Unavailable, 0},
		"a type that is not known":    {lines(started, `{"type":"x","seq":2}`), sandbox.Unavailable, 1},
		"a status that is not known":  {lines(started, `{"type":"end","seq":2,"status":"x"}`), sandbox.Unavailable, 1},
		"a negative duration":         {lines(started, `{"type":"end","seq":2,"status":"ok","duration":-1}`), sandbox.Unavailable, 1},
		"a negative count":            {lines(started, `{"type":"end","seq":2,"status":"ok","execution_count":-1}`), sandbox.Unavailable, 1},
		"as many formats as allowed":  {lines(started, `{"type":"result","seq":2,"data":{`+members(kernelapi.MaxFormats)+`}}`, `{"type":"end","seq":3,"status":"ok"}`), "", 3},
		"too many formats":            {lines(started, `{"type":"result","seq":2,"data":{`+members(kernelapi.MaxFormats+1)+`}}`), sandbox.Unavailable, 1},
		"a long traceback":            {lines(started, `{"type":"error","seq":2,"traceback":[""`+strings.Repeat(`,""`, kernelapi.MaxLines)+`]}`), sandbox.Unavailable, 1},
		"too much omitted":            {lines(started, `{"type":"result","seq":2,"omitted":[""`+strings.Repeat(`,""`, kernelapi.MaxLines)+`]}`), sandbox.Unavailable, 1},
		"deep JSON":                   {lines(started, `{"type":"result","seq":2,"data":{"m":`+strings.Repeat("[", 1<<20)+`}}`), sandbox.Unavailable, 1},
		"closes at once":              {func(io.Writer) {}, sandbox.AgentUnreachable, 0},
		"closes before the end":       {lines(started), sandbox.AgentUnreachable, 1},
		"closes within an event":      {func(w io.Writer) { io.WriteString(w, okHead+started+"\n{\"ty") }, sandbox.AgentUnreachable, 1},
		"closes before its length":    {func(w io.Writer) { io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+started+"\n") }, sandbox.AgentUnreachable, 1},
		"a line without end":          {forever(okHead+started+"\n", text), sandbox.Unavailable, 1},
		"empty chunks without end":    {forever("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", text), sandbox.AgentUnreachable, 0},
		"another protocol":            {forever("SSH-2.0-x\r\n", text), sandbox.AgentUnreachable, 0},
		"headers without end":         {forever("HTTP/1.1 200 OK\r\n", "X-A: b\r\n"), sandbox.AgentUnreachable, 0},
		"a header without end":        {forever("HTTP/1.1 200 OK\r\nX-A: ", text), sandbox.AgentUnreachable, 0},
		"informational without end":   {forever("", "HTTP/1.1 103 Early Hints\r\n\r\n"), sandbox.AgentUnreachable, 0},
		"refuses without a reason":    {func(w io.Writer) { io.WriteString(w, "HTTP/1.1 500 X\r\nConnection: close\r\n\r\nx") }, sandbox.Unavailable, 0},
		"refuses with a code of ours": {func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 500 X\r\nConnection: close\r\n\r\n{\"code\":\"unauthorized\"}")
		}, sandbox.Unavailable, 0},
		"refuses without end": {forever("HTTP/1.1 404 X\r\n\r\n{\"code\":\"not_found\",\"message\":\"", text), sandbox.Unavailable, 0},
		"redirects": {func(w io.Writer) {
			io.WriteString(w, "HTTP/1.1 302 X\r\nLocation: http://10.0.0.1/\r\nConnection: close\r\n\r\n")
		}, sandbox.Unavailable, 0},
		"switches protocols": {func(w io.Writer) { io.WriteString(w, "HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n") }, sandbox.Unavailable, 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			h := &hostile{answer: tc.answer, most: 64 << 20}
			r := h.run(ctx)
			events, err := read(r)
			if ctx.Err() != nil {
				t.Fatal("the run does not end")
			}
			if well := err == io.EOF; well != (tc.want == "") || !well && sandbox.CodeOf(err) != tc.want || len(events) != tc.events {
				t.Errorf("%d events, then %s: %v; want %d, then %q", len(events), sandbox.CodeOf(err), err, tc.events, tc.want)
			}
			if r.Close(); h.held != 0 || !h.ended {
				t.Errorf("after Close %d bytes are counted, ended: %v", h.held, h.ended)
			}
		})
	}
}

// TestEventsWithoutEnd reads valid events until a run has too many, which takes no memory.
func TestEventsWithoutEnd(t *testing.T) {
	h := &hostile{most: 64 << 20, answer: func(w io.Writer) {
		_, err := io.WriteString(w, okHead+started+"\n")
		for i := 2; err == nil; i++ {
			_, err = fmt.Fprintf(w, `{"type":"stdout","seq":%d,"text":"%s"}`+"\n", i, strings.Repeat("x", 8<<10))
		}
	}}
	r := h.run(t.Context())
	events, err := read(r)
	if !errors.Is(err, errAnswer) || len(events) < maxLines>>14 || h.held != 0 {
		t.Errorf("%d events, then %v, with %d bytes counted", len(events), err, h.held)
	}
	r.Close()
}

// TestEventsTakeCountedMemory has no memory for a long event.
func TestEventsTakeCountedMemory(t *testing.T) {
	long := `{"type":"stdout","seq":2,"text":"` + strings.Repeat("x", 1<<20) + `"}`
	for most, want := range map[int64]sandbox.Code{1 << 20: sandbox.QuotaExceeded, 16 << 20: ""} {
		h := &hostile{most: most, answer: lines(started, long, `{"type":"end","seq":3,"status":"ok"}`)}
		r := h.run(t.Context())
		_, err := read(r)
		if got := sandbox.CodeOf(err); err != io.EOF && got != want || err == io.EOF && want != "" {
			t.Errorf("with %d bytes of memory: %v, want %q", most, err, want)
		}
		if r.Close(); h.held != 0 {
			t.Errorf("after Close %d bytes are counted", h.held)
		}
	}
}

// TestEventsAfterSaves has connections that break, which saves explain, and events that are sent
// again or differ from those before.
func TestEventsAfterSaves(t *testing.T) {
	h := &hostile{most: 64 << 20, saves: 3}
	h.answer = func(w io.Writer) {
		if h.dials < 3 {
			lines(fmt.Sprintf(`{"type":"started","seq":%d,"context":"python"}`, h.dials))(w)
			return
		}
		lines(end)(w)
	}
	r := h.run(t.Context())
	// The second connection begins again with a start.
	if events, err := read(r); len(events) != 1 || sandbox.CodeOf(err) == "" {
		t.Errorf("%d events, then %v", len(events), err)
	}
	r.Close()
	h = &hostile{most: 64 << 20, saves: 1}
	h.answer = func(w io.Writer) { lines([]string{started, end}[h.dials-1])(w) }
	r = h.run(t.Context())
	if events, err := read(r); len(events) != 2 || err != io.EOF {
		t.Errorf("%d events, then %v, want the start and the end", len(events), err)
	}
	r.Close()
}

// TestSilence ends with its context.
func TestSilence(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	quiet := make(chan struct{})
	defer close(quiet)
	h := &hostile{most: 64 << 20, answer: func(w io.Writer) {
		_, _ = io.WriteString(w, okHead+started+"\n") // fails if the caller is gone
		<-quiet
	}}
	r := h.run(ctx)
	if err := r.connect(false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	cancel(gone)
	if _, err := r.Next(); !errors.Is(err, gone) {
		t.Errorf("Next() = %v", err)
	}
}

// FuzzEvents reads any bytes as the events of a run.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(started + "\n" + end + "\n"))
	f.Add([]byte(started + "\n" + `{"type":"result","seq":2,"data":{"text/plain":"x"},"omitted":["a"]}` + "\n"))
	f.Add([]byte(started + "\n" + `{"type":"error","seq":2,"traceback":["a"]}` + "\nx"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &hostile{most: 64 << 20}
		r := h.run(t.Context())
		r.lines, r.body = bufio.NewReaderSize(bytes.NewReader(data), freeLine), io.NopCloser(nil)
		var last kernelapi.Event
		for {
			ev, err := r.Next()
			if err != nil {
				if err == io.EOF && last.Type != kernelapi.End {
					t.Errorf("the run ends with %+v", last)
				}
				break
			}
			if ev.Seq != last.Seq+1 || (ev.Seq == 1) != (ev.Type == kernelapi.Started) || last.Type == kernelapi.End ||
				len(ev.Data) > kernelapi.MaxFormats || len(ev.Traceback) > kernelapi.MaxLines {
				t.Errorf("%+v after %+v", ev, last)
			}
			last = ev
		}
		if r.release(); h.held != 0 {
			t.Errorf("%d bytes are counted", h.held)
		}
	})
}

// FuzzContexts reads any bytes as the answer to a list of contexts.
func FuzzContexts(f *testing.F) {
	f.Add([]byte(`[{"id":"python","language":"python","cwd":"/","state":"idle","created_at":"2026-01-02T03:04:05Z","restarts":0}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &hostile{answer: func(w io.Writer) { _, _ = w.Write(append([]byte(okHead), data...)) }}
		var all kernelapi.Contexts
		if err := (&target{talk: h}).once(t.Context(), false, http.MethodGet, "/contexts", nil, &all); err != nil {
			return
		}
		for i := range all {
			if err := check(&all[i]); err == nil && (!validID().MatchString(all[i].ID) || len(all[i].Cwd) > 3*4096) {
				t.Errorf("context %+v", all[i])
			}
		}
		if len(all) > kernelapi.MaxContexts {
			t.Errorf("%d contexts", len(all))
		}
	})
}
