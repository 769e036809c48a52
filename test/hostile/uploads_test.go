package hostile_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/client"
)

// letters is an endless content, in base64 as well as in bytes.
type letters struct{}

// Read implements io.Reader.
func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'A'
	}
	return len(p), nil
}

// pause is a part of a body without content, at which the body waits.
type pause struct {
	reached func()
	open    chan struct{}
}

// Read implements io.Reader.
func (p pause) Read([]byte) (int, error) {
	p.reached()
	<-p.open
	return 0, io.EOF
}

// together makes n requests at once. The body of each is head, size letters and tail. No body ends before every request has
// sent its letters or has an answer. together returns the number of answers by status, with 0 for a broken connection, and
// one text for each status.
func (r *rig) together(n int, size int64, request func(i int) (req *http.Request, head, tail string)) (statuses map[int]int, said map[int]string) {
	r.t.Helper()
	open := make(chan struct{})
	type answer struct {
		status int
		text   string
	}
	answers := make(chan answer, n)
	var arrived sync.WaitGroup
	for i := range n {
		req, head, tail := request(i)
		arrived.Add(1)
		reached := sync.OnceFunc(arrived.Done)
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader(head), io.LimitReader(letters{}, size), pause{reached, open}, strings.NewReader(tail)))
		go func() {
			defer reached()
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answers <- answer{0, err.Error()}
				return
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			answers <- answer{resp.StatusCode, string(text)}
		}()
	}
	arrived.Wait()
	close(open)
	statuses, said = map[int]int{}, map[int]string{}
	for range n {
		a := <-answers
		statuses[a.status]++
		said[a.status] = a.text
	}
	return statuses, said
}

// to returns a request to a path of the server.
func (r *rig) to(method, path string, header map[string]string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	req.ContentLength = -1
	if len(header) == 0 {
		header = map[string]string{"Authorization": "Bearer " + r.Token, "Content-Type": "application/json"}
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return req
}

// e2b makes a sandbox by E2B's API, and returns the headers of requests to its files.
func (r *rig) e2b() map[string]string {
	r.t.Helper()
	req := r.to("POST", "/v2/sandboxes", map[string]string{"X-API-Key": r.Token})
	req.Body = io.NopCloser(strings.NewReader(`{"templateID":"base","timeout":600}`))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	var made struct{ SandboxID, EnvdAccessToken string }
	if err := json.NewDecoder(resp.Body).Decode(&made); err != nil || made.SandboxID == "" {
		r.t.Fatalf("create by E2B's API = %d %+v, %v", resp.StatusCode, made, err)
	}
	return map[string]string{
		"E2b-Sandbox-Id": made.SandboxID, "E2b-Sandbox-Port": "49983", "X-Access-Token": made.EnvdAccessToken, "Content-Type": "application/octet-stream",
	}
}

// TestManyUploadsAtOnce: a hundred large uploads at once take little memory of the server by routes that write
// while the content arrives, and at most the memory of request bodies by routes that read a whole body first.
func TestManyUploadsAtOnce(t *testing.T) {
	r := newRig(t)
	const n, size = 100, 4 << 20
	// A sandbox holds 100 of the files.
	id := r.MustCreate(client.CreateOptions{Resources: client.Resources{Disk: "3Gi"}}).ID
	agentuity := "/fs/sbx_" + strings.ReplaceAll(id, "-", "")
	headers := r.e2b()
	name := func(i int) string { return "f" + strconv.Itoa(i) }
	for _, route := range []struct {
		name    string
		whole   bool // the content is held until the body has ended
		request func(i int) (req *http.Request, head, tail string)
	}{
		{"v1", false, func(i int) (*http.Request, string, string) {
			return r.to("PUT", "/v1/sandboxes/"+id+"/files?path="+name(i), nil), "", ""
		}},
		{"agentuity", false, func(i int) (*http.Request, string, string) {
			return r.to("POST", agentuity, nil), `{"files":[{"path":"/workspace/` + name(i) + `","content":"`, `"}]}`
		}},
		{"e2b", false, func(i int) (*http.Request, string, string) {
			return r.to("POST", "/files?path="+url.QueryEscape("/tmp/"+name(i)), headers), "", ""
		}},
		{"v1-batch", true, func(i int) (*http.Request, string, string) {
			return r.to("POST", "/v1/sandboxes/"+id+"/files/batch", nil), `{"files":[{"path":"` + name(i) + `","content":"`, `"}]}`
		}},
		{"agentuity-path-last", true, func(i int) (*http.Request, string, string) {
			return r.to("POST", agentuity, nil), `{"files":[{"content":"`, `","path":"/workspace/` + name(i) + `"}]}`
		}},
		{"agentuity-execute", true, func(i int) (*http.Request, string, string) {
			return r.to("POST", strings.Replace(agentuity, "/fs/", "/sandbox/", 1)+"/execute", nil), `{"command":["true"],"files":[{"path":"x","content":"`, `"}]}`
		}},
	} {
		before := r.resetPeakRSS() // otherwise a route could use what an earlier one did
		statuses, said := r.together(n, size, route.request)
		grown := r.serverPeakRSS() - before
		t.Logf("%s: answers %v, the server grew by %d MiB", route.name, statuses, grown>>20)
		switch {
		case !route.whole && statuses[http.StatusOK] != n:
			t.Errorf("%s: answers %v %v, want 200", route.name, statuses, said)
		case route.whole && statuses[http.StatusTooManyRequests] == 0:
			t.Errorf("%s: answers %v %v, want some refused for memory", route.name, statuses, said)
		}
		most := int64(96 << 20)
		if route.whole {
			most = 320 << 20
		}
		if grown > most {
			t.Errorf("%s: the server grew by %d MiB, want at most %d", route.name, grown>>20, most>>20)
		}
		r.healthy()
	}
}
