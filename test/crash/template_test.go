package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// templates makes the requests of E2B's clients for builds of templates.
type templates struct {
	t *testing.T
	s *testserver.Server
}

// request sends a request and returns the status of the answer, which it decodes into out. It returns an error
// when there is no whole answer: the server may be killed under it.
func (c templates) request(ctx context.Context, method, path string, in, out any) (int, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.s.URL+path, body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-API-Key", c.s.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || out == nil || len(b) == 0 {
		return resp.StatusCode, err
	}
	return resp.StatusCode, json.Unmarshal(b, out)
}

// must is request with a server that lives and answers with the status want.
func (c templates) must(want int, method, path string, in, out any) {
	c.t.Helper()
	got, err := c.request(c.t.Context(), method, path, in, out)
	if err != nil || got != want {
		c.t.Fatalf("%s %s: status %d, %v, want %d", method, path, got, err, want)
	}
}

// begun is a build that waits for its files and its start.
type begun struct {
	TemplateID string `json:"templateID"`
	BuildID    string `json:"buildID"`
	address    string // of its files
}

const templateFiles = "files" // the hash that stands for the files

// begin begins a build whose files are missing.
func (c templates) begin(name string) begun {
	c.t.Helper()
	var made begun
	c.must(http.StatusAccepted, http.MethodPost, "/v3/templates", map[string]any{"name": name, "tags": []string{"v1", "v2"}}, &made)
	var place struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}
	c.must(http.StatusCreated, http.MethodGet, "/templates/"+made.TemplateID+"/files/"+templateFiles, nil, &place)
	if place.Present || place.URL == "" {
		c.t.Fatalf("the files of a new build: %+v, want an address for them", place)
	}
	made.address = place.URL
	return made
}

// upload sends the files of a build. The error is of the connection.
func (b begun) upload(ctx context.Context, size int64, files io.Reader) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, b.address, files)
	if err != nil {
		return 0, err
	}
	req.ContentLength = size
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// path is the path of the build, below which is its state.
func (b begun) path() string { return "/templates/" + b.TemplateID + "/builds/" + b.BuildID }

// start starts a build that copies the files and runs a command. The error is of the connection.
func (c templates) start(ctx context.Context, b begun, command string) (int, error) {
	return c.request(ctx, http.MethodPost, "/v2"+b.path(), map[string]any{
		"fromImage": "modbox/base",
		"steps": []map[string]any{
			{"type": "COPY", "args": []string{".", "/copied/"}, "filesHash": templateFiles},
			{"type": "RUN", "args": []string{command, "root"}},
		},
	}, nil)
}

// used returns the bytes on the disk that the quota counts for builds and images.
func (c templates) used() client.DiskUse {
	c.t.Helper()
	me, err := c.s.WhoAmI(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	q, err := c.s.Workspaces.Quota(c.t.Context(), me.WorkspaceID)
	if err != nil {
		c.t.Fatal(err)
	}
	return q.Used.DiskBy
}

// forgotten asserts that a restarted server knows nothing of a build, and that the client learns this.
func (c templates) forgotten(b begun) {
	c.t.Helper()
	var failure struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	c.must(http.StatusNotFound, http.MethodGet, b.path()+"/status", nil, &failure)
	if failure.Code != http.StatusNotFound || !strings.Contains(failure.Message, b.BuildID) || !strings.Contains(failure.Message, "restart") {
		c.t.Errorf("the state of a build of the server before: %+v, want that the server forgot %s in a restart", failure, b.BuildID)
	}
	// The address has the port of the server before.
	_, path, _ := strings.Cut(strings.TrimPrefix(b.address, "http://"), "/")
	c.must(http.StatusNotFound, http.MethodPut, "/"+path, nil, &failure)
}

// cleared waits until the remains of builds are gone, except finished layers, which are cache.
func (c templates) cleared(name string) {
	c.t.Helper()
	until(c.t, name+": boxes to be removed", func() bool { return len(c.s.Leftovers()) == 0 })
	until(c.t, name+": tools on the host to end", func() bool { return len(working(c.s)) == 0 })
	for _, dir := range []string{"spool", "images/tmp"} {
		until(c.t, name+": "+dir+" to be empty", func() bool { return len(names(c.t, c.s, dir)) == 0 })
	}
	if use := c.used(); use.UploadBytes != 0 || use.BuildBytes != 0 {
		c.t.Errorf("%s: after the restart the quota counts %+v, want neither uploads nor builds", name, use)
	}
}

// TestKillInTheMiddleOfTemplateBuilds kills the server while files of a template come, while a build waits for
// its start, and while its steps run. The next server has nothing of it, and says so.
func TestKillInTheMiddleOfTemplateBuilds(t *testing.T) {
	s := testserver.StartSmall(t, "--pool-size", "0")
	c := templates{t, s}
	images := names(t, s, "images/images")
	files := tarGz(t, 4)
	uploaded := func(ctx context.Context, b begun) {
		if status, err := b.upload(ctx, int64(len(files)), bytes.NewReader(files)); err != nil || status != http.StatusOK {
			t.Errorf("upload: status %d, %v", status, err)
		}
	}
	started := func(ctx context.Context, b begun) {
		uploaded(ctx, b)
		if status, err := c.start(ctx, b, "head -c 100M /dev/urandom >/big && sleep 600"); err != nil || status != http.StatusAccepted {
			t.Errorf("start: status %d, %v", status, err)
		}
	}
	counted := func() bool { return c.used().UploadBytes > 0 }
	boxed := func() bool { return len(s.Leftovers()) > 0 }
	for _, moment := range []struct {
		name  string
		begin func(context.Context, begun)
		under func() bool
	}{
		{"files that come", func(ctx context.Context, b begun) {
			endless, end := io.Pipe()
			defer context.AfterFunc(ctx, func() { _ = end.Close() })() // a pipe has no error
			_, _ = b.upload(ctx, 64<<20, io.MultiReader(bytes.NewReader(make([]byte, 16<<20)), endless))
		}, counted},
		{"a build that waits", uploaded, counted},
		{"steps", started, boxed},
		{"steps again", started, boxed},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		b := c.begin("cut")
		var wg sync.WaitGroup
		wg.Go(func() { moment.begin(ctx, b) })
		until(t, moment.name+" to be under way", moment.under)
		if moment.name != "files that come" {
			wg.Wait() // its request was answered
		}
		// The moment is random on purpose: between any two steps.
		<-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond)
		s.Kill()
		cancel()
		wg.Wait()
		s.Launch()
		c.forgotten(b)
		c.cleared(moment.name)
		// Finished layers stay, and count as cache.
		var more int64
		for _, name := range names(t, s, "images/images") {
			if info, err := os.Stat(filepath.Join(s.StateDir, "images/images", name)); err == nil && !slices.Contains(images, name) {
				more += info.Size()
			}
		}
		if use := c.used(); more > use.BuildCacheBytes || use.ImageBytes != 0 {
			t.Errorf("%s: %d bytes of new root filesystems, and the quota counts %+v, want that all is cache", moment.name, more, use)
		}
		c.must(http.StatusNotFound, http.MethodGet, "/templates/cut", nil, nil)
	}
}

// TestKillAtTheEndOfTemplateBuilds kills the server at random moments of short builds, at whose end the template
// gets its names. After each restart the template is there and whole, or it is not there.
func TestKillAtTheEndOfTemplateBuilds(t *testing.T) {
	s := testserver.StartSmall(t, "--pool-size", "0")
	c := templates{t, s}
	files := tarGz(t, 1)
	whole := func(template string) {
		t.Helper()
		sb := s.MustCreate(client.CreateOptions{Image: template})
		if res := s.Bash(sb.ID, "cat /made && wc -c </copied/f0", time.Minute); string(res.Stdout) != "made\n65536\n" {
			t.Errorf("files of the template %s: %+v", template, res)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Error(err)
		}
	}
	build := func(ctx context.Context) (b begun) {
		b = c.begin("short")
		if status, err := b.upload(ctx, int64(len(files)), bytes.NewReader(files)); err != nil || status != http.StatusOK {
			t.Fatalf("upload: status %d, %v", status, err)
		}
		if status, err := c.start(ctx, b, "echo made >/made"); err != nil || status != http.StatusAccepted {
			t.Fatalf("start: status %d, %v", status, err)
		}
		return b
	}
	const rounds = 4
	for round := range rounds {
		b := build(t.Context())
		// The moment is random on purpose: later in each round, when more layers are in the cache.
		<-time.After(time.Duration(rand.IntN(1+2000/(round+1))) * time.Millisecond)
		s.Kill()
		s.Launch()
		c.forgotten(b)
		c.cleared("a short build")
		var found struct {
			Names []string `json:"names"`
		}
		if status, err := c.request(t.Context(), http.MethodGet, "/templates/short", nil, &found); err != nil || status != http.StatusOK && status != http.StatusNotFound {
			t.Fatalf("the template: status %d, %v", status, err)
		}
		var tags []struct {
			Tag string `json:"tag"`
		}
		if len(found.Names) > 0 {
			c.must(http.StatusOK, http.MethodGet, "/templates/short/tags", nil, &tags)
		}
		for _, tag := range tags {
			whole("short:" + tag.Tag)
		}
	}
	b := build(t.Context())
	var state struct{ Status string }
	until(t, "the build to end", func() bool {
		c.must(http.StatusOK, http.MethodGet, b.path()+"/status", nil, &state)
		return state.Status != "building"
	})
	if state.Status != "ready" {
		t.Errorf("a build after all: %+v, want that it is ready", state)
	}
	whole("short:v2")
	c.must(http.StatusNoContent, http.MethodDelete, "/templates/short", nil, nil)
	if use := c.used(); use.ImageBytes != 0 {
		t.Errorf("after the deletion of the template the quota counts %+v, want no images", use)
	}
}
