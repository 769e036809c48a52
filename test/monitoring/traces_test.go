package monitoring_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// receiver is a receiver of traces.
type receiver struct {
	t     *testing.T
	mu    sync.Mutex
	spans []*tracepb.Span // guarded by mu
	raw   bytes.Buffer    // guarded by mu
}

// ServeHTTP implements http.Handler.
func (x *receiver) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "key" {
		x.t.Errorf("request to %s with %v", r.URL.Path, r.Header)
	}
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		x.t.Error(err)
		return
	}
	data, err := io.ReadAll(body)
	if err != nil {
		x.t.Error(err)
		return
	}
	x.raw.Write(data)
	var batch tracepb.TracesData
	if err := proto.Unmarshal(data, &batch); err != nil {
		x.t.Error(err)
		return
	}
	for _, resource := range batch.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			x.spans = append(x.spans, scope.GetSpans()...)
		}
	}
}

// traced adds a trace to requests.
type traced struct{ traceparent string }

// RoundTrip implements http.RoundTripper.
func (x traced) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", x.traceparent)
	return http.DefaultTransport.RoundTrip(r)
}

// TestOneTrace: the trace of a caller goes from the API through lifecycle and the driver into the
// agent, and has no secrets.
func TestOneTrace(t *testing.T) {
	x := &receiver{t: t}
	web := httptest.NewServer(x)
	t.Cleanup(web.Close) // after the server's, which sends traces until its end
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("# a comment\nX-Key: key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testserver.StartSmall(t, "--pool-size", "0", "--traces-endpoint", web.URL, "--traces-headers-file", headers)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	c, err := client.New(s.URL, s.Token, client.WithHTTPClient(&http.Client{Transport: traced{"00-" + trace + "-" + parent + "-00"}}))
	if err != nil {
		t.Fatal(err)
	}
	sb, err := c.Sandboxes.Create(t.Context(), client.CreateOptions{Env: map[string]string{"PASSWORD": "hidden-value"}, WaitUpTo: time.Minute})
	if err != nil || sb.State != client.Running {
		t.Fatalf("create: %+v, %v", sb, err)
	}
	if _, err := c.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "echo hidden-output"}); err != nil {
		t.Fatal(err)
	}
	s.Stop() // sends what waits
	x.mu.Lock()
	defer x.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	for _, span := range x.spans {
		byID[hex.EncodeToString(span.GetSpanId())] = span
	}
	chains := map[string]bool{}
	for _, span := range x.spans {
		if hex.EncodeToString(span.GetTraceId()) != trace {
			continue
		}
		chain := span.GetName()
		for up := hex.EncodeToString(span.GetParentSpanId()); up != parent; up = hex.EncodeToString(span.GetParentSpanId()) {
			if span = byID[up]; span == nil {
				t.Errorf("%s is below an unknown span", chain)
				break
			}
			chain = span.GetName() + " > " + chain
		}
		chains[chain] = true
	}
	for _, want := range []string{
		"POST /v1/sandboxes",
		"POST /v1/sandboxes > create: admission",
		"POST /v1/sandboxes > create",
		"POST /v1/sandboxes > create > create: image",
		"POST /v1/sandboxes > create > create: queue",
		"POST /v1/sandboxes > create > create: box > gvisor: create",
		"POST /v1/sandboxes > create > create: boot > gvisor: start",
		"POST /v1/sandboxes > create > create: agent > agent: POST /configure",
		"POST /v1/sandboxes/{sandbox}/exec > exec > agent: POST /exec",
	} {
		if !chains[want] {
			t.Errorf("the trace lacks %q; it has:\n%v", want, chains)
		}
	}
	for _, secret := range []string{"hidden-value", "hidden-output", "PASSWORD", s.Token} {
		if bytes.Contains(x.raw.Bytes(), []byte(secret)) {
			t.Errorf("the spans have %q", secret)
		}
	}
}
