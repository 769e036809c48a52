package interpreter

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/kernelapi"
)

func TestResult(t *testing.T) {
	got, err := json.Marshal(result(&kernelapi.Event{Main: true, Data: kernelapi.Formats{
		"text/plain": json.RawMessage(`"'it'"`), "image/png": json.RawMessage(`"AA=="`), "application/x-own": json.RawMessage(`1`),
		"application/vnd.dataresource+json": json.RawMessage(`{"schema":{"fields":[{"name":"index"},{"name":"a"},{"name":1}]},"data":[{"index":0,"a":1},{"index":1}]}`),
	}}))
	if err != nil {
		t.Fatal(err)
	}
	var have, want any
	if err := json.Unmarshal(got, &have); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"type":"result","is_main_result":true,"text":"it","png":"AA==","data":{"a":[1,null]},"extra":{"application/x-own":1}}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestUnquoted(t *testing.T) {
	for in, want := range map[string]any{`"'a'"`: "a", `"\"a\""`: "a", `"'"`: "'", `"a"`: "a", `"'a\""`: `'a"`, `""`: ""} {
		if got := unquoted(json.RawMessage(in)); got != want {
			t.Errorf("unquoted(%s) = %v, want %v", in, got, want)
		}
	}
}

func TestEnviron(t *testing.T) {
	set, unset, err := environ("bash", map[string]string{"A": "it's", "B": "2"}, map[string]string{"B": "own"})
	if err != nil || set != "export 'A=it'\\''s'\nexport 'B=2'\n" || unset != "unset 'A'\nexport 'B=own'\n" {
		t.Errorf("environ = %q, %q, %v", set, unset, err)
	}
	if _, _, err := environ("r", map[string]string{"A": "1"}, nil); err == nil {
		t.Error("environ of a language without statements succeeds")
	}
}

func TestSendEscapes(t *testing.T) {
	w := httptest.NewRecorder()
	out := edge.TalkASCII(w, time.Hour)
	defer out.Stop()
	if err := send(out, &kernelapi.Event{Type: kernelapi.Failure, Value: "a€\"😀<\n\u2028"}); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Body.String(), `{"name":"","traceback":"","type":"error","value":"a\u20ac\"\ud83d\ude00\u003c\n\u2028"}`+"\n"; got != want || !w.Flushed {
		t.Errorf("send = %s, flushed %t, want %s at once", got, w.Flushed, want)
	}
}

// nowhere is the connection of a client that needs no memory.
type nowhere struct{ written int }

func (nowhere) Header() http.Header            { return http.Header{} }
func (nowhere) WriteHeader(int)                {}
func (nowhere) Flush()                         {}
func (n *nowhere) Write(p []byte) (int, error) { n.written += len(p); return len(p), nil }

// TestSendTakesLittleMemory: the memory of an answer is in proportion to its event, not to the escapes that it has.
func TestSendTakesLittleMemory(t *testing.T) {
	const size = kernelapi.MaxEvent
	quoted := func(c string) json.RawMessage { return json.RawMessage(`"` + strings.Repeat(c, size/len(c)) + `"`) }
	for name, ev := range map[string]kernelapi.Event{
		"text":   {Type: kernelapi.Stdout, Text: strings.Repeat("€", size/3-1)},
		"markup": {Type: kernelapi.Stdout, Text: strings.Repeat("<", size)},
		"format": {Type: kernelapi.Result, Data: kernelapi.Formats{"text/html": quoted("é<")}},
	} {
		w := &nowhere{}
		out := edge.TalkASCII(w, time.Hour)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC() // the second takes the last buffers of other messages
		runtime.ReadMemStats(&before)
		err := send(out, &ev)
		runtime.ReadMemStats(&after)
		out.Stop()
		// The encoder makes a copy, and one in a buffer. The race detector has the buffer made twice. An encoded text that fills
		// its pages takes 1.25 times more, for the closing quotation mark: this one is shorter.
		grown := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes for an answer of %d", name, grown, w.written)
		if err != nil || w.written < 2*size || grown > 4*size {
			t.Errorf("%s: send allocates %d bytes for an event of %d and an answer of %d, %v; want at most four times the event", name, grown, size, w.written, err)
		}
	}
}
