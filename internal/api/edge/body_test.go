package edge_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// reading is a server that reads bodies as a whole, for the workspace that the path
// names; a path of / is a request without a token.
func reading(memory edge.Memory, read chan<- int64) http.Handler {
	return edge.Options{Logger: slog.New(slog.DiscardHandler), Memory: memory}.Wrap(edge.Handler(func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.Path != "/" {
			record := access.FromContext(r.Context())
			record.By(access.Actor{User: "u", Workspace: r.URL.Path})
			if err := record.SignIn(); err != nil {
				return err
			}
		}
		body, done := edge.Body(w, r, 16<<20)
		defer done()
		n, err := io.Copy(io.Discard, body)
		if read != nil {
			read <- n
		}
		return err
	}))
}

// send sends a body and returns the answer's status.
func send(h http.Handler, path string, body io.Reader) int {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, path, body))
	return rec.Code
}

// greedy begins requests whose bodies have size bytes and do not end, until one is
// refused. It returns how many are not, and what ends them.
func greedy(t *testing.T, memory edge.Memory, path string, size int) (n int, end func()) {
	t.Helper()
	var ends []func()
	for ; n < 100; n++ {
		r, w := io.Pipe()
		status := make(chan int, 1)
		go func() {
			status <- send(reading(memory, nil), path, r)
			r.Close()
		}()
		if _, err := w.Write(make([]byte, size)); err == nil {
			// Each is read when all before has been counted; nothing more is reserved for the last.
			_, err = w.Write([]byte(" "))
			if err == nil {
				_, err = w.Write([]byte(" "))
			}
			if err == nil {
				ends = append(ends, func() { w.Close(); <-status })
				continue
			}
		}
		if got := <-status; got != http.StatusTooManyRequests {
			t.Errorf("body %d of %s is answered %d, want %d", n+1, path, got, http.StatusTooManyRequests)
		}
		break
	}
	return n, func() {
		for _, end := range ends {
			end()
		}
	}
}

// TestBodiesShareMemory: bodies that are being read count for their workspace, which
// cannot take what others need, and nothing stays counted.
func TestBodiesShareMemory(t *testing.T) {
	const total = 12 << 20
	memory := agentapi.NewMemory(total)
	n, end := greedy(t, memory, "/a", 1<<20)
	if n != 2 { // of 3 MiB each, and two thirds at most
		t.Errorf("a workspace alone has %d bodies of 1 MiB, want 2", n)
	}
	if got := send(reading(memory, nil), "/b", bytes.NewReader(make([]byte, 500<<10))); got != http.StatusOK {
		t.Errorf("the body of another workspace is answered %d", got)
	}
	m, endStrangers := greedy(t, memory, "/", 400<<10)
	if m != 2 { // of 1.2 MiB each; as much stays for others
		t.Errorf("strangers have %d bodies of 400 KiB, want 2", m)
	}
	for _, path := range []string{"/a", "/"} {
		if got := send(reading(memory, nil), path, bytes.NewReader(make([]byte, 4<<10))); got != http.StatusOK {
			t.Errorf("a small body of %s is answered %d", path, got)
		}
	}
	if got := send(reading(memory, nil), "/b", bytes.NewReader(make([]byte, 300<<10))); got != http.StatusOK {
		t.Errorf("the body of another workspace beside strangers is answered %d", got)
	}
	end()
	endStrangers()
	if !memory.ReserveFor("c", total*2/3, false) {
		t.Error("memory is counted although all requests have ended")
	}
}

// TestBodyThatIsTooMuchAlone: it is refused while it is read, not after.
func TestBodyThatIsTooMuchAlone(t *testing.T) {
	read := make(chan int64, 1)
	if got := send(reading(agentapi.NewMemory(3<<20), read), "/a", bytes.NewReader(make([]byte, 8<<20))); got != http.StatusTooManyRequests {
		t.Errorf("it is answered %d, want %d", got, http.StatusTooManyRequests)
	}
	if n := <-read; n == 0 || n > 2<<20/3 {
		t.Errorf("%d bytes are read, want some, and no more than there is memory for", n)
	}
}

// TestValuesAreBounded: decoding makes more of a value than of its bytes.
func TestValuesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"many_arguments": {`["` + strings.Repeat(`a","`, 65_000) + `"]`, http.StatusOK},
		"commas_in_text": {`"` + strings.Repeat(`,[{\"`, 200_000) + `"`, http.StatusOK},
		"many_objects":   {"[" + strings.Repeat(`{"":0},`, 40_000) + "0]", http.StatusUnprocessableEntity},
		"deep":           {strings.Repeat("[", 100) + strings.Repeat("]", 100), http.StatusUnprocessableEntity},
		"not_so_deep":    {strings.Repeat("[", 60) + strings.Repeat("]", 60), http.StatusOK},
		"wide":           {"[" + strings.Repeat("[],", 40_000) + "[]]", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want == http.StatusOK && !json.Valid([]byte(c.body)) {
				t.Fatal("it is no JSON")
			}
			if got := send(reading(nil, nil), "/a", strings.NewReader(c.body)); got != c.want {
				t.Errorf("it is answered %d, want %d", got, c.want)
			}
		})
	}
	memory := agentapi.NewMemory(15 << 20) // the bytes alone are no more than 1 MiB of it
	if got := send(reading(memory, nil), "/a", strings.NewReader("["+strings.Repeat("[],", 45_000)+"[]]")); got != http.StatusTooManyRequests {
		t.Errorf("values that take more than there is are answered %d", got)
	}
}

// TestBodyThatBreaksOff: it is the client's fault, and the log says so.
func TestBodyThatBreaksOff(t *testing.T) {
	var log bytes.Buffer
	h := edge.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Access: slog.New(slog.NewTextHandler(&log, nil))}.Wrap(edge.Handler(func(_ http.ResponseWriter, r *http.Request) error {
		_, err := io.ReadAll(r.Body)
		return err
	}))
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/", io.MultiReader(strings.NewReader("some"), broken{})))
	var p apierror.Problem
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || p.Code != sandbox.Invalid || rec.Code != http.StatusUnprocessableEntity {
		t.Errorf("it is answered %d %s: %v", rec.Code, rec.Body, err)
	}
	if got := log.String(); !strings.Contains(got, "status=422") || strings.Contains(got, "level=ERROR") {
		t.Errorf("the log has %q", got)
	}
}

// broken is a connection that has ended.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
