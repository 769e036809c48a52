package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// recorder is a builder that keeps what it is asked to build.
type recorder struct {
	mu    sync.Mutex
	asked []build.Request
	files map[string]string // of the contexts; guarded by mu
	err   error
	wait  chan struct{} // closed before a build ends; nil for at once
}

func (r *recorder) Build(ctx context.Context, _ sandbox.Caller, req build.Request, files io.Reader, report func(build.Event)) (spec.Image, error) {
	if r.wait != nil {
		select {
		case <-r.wait:
		case <-ctx.Done():
			return spec.Image{}, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, req)
	for t := tar.NewReader(files); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return spec.Image{}, err
		}
		content, err := io.ReadAll(t)
		if err != nil {
			return spec.Image{}, err
		}
		r.files[h.Name] = string(content)
	}
	report(build.Event{Kind: build.KindOutput, Output: []byte("one\ntwo\xff\n")})
	return spec.Image{}, r.err
}

// quotas lets each workspace have so many bytes of uploads.
type quotas struct {
	uploads *Uploads
	most    int64
}

func (q quotas) CheckDisk(_ context.Context, ws sandbox.WorkspaceID) error {
	if n := q.uploads.UploadedBytes(ws); n > q.most {
		return sandbox.Errorf(sandbox.QuotaExceeded, "%d bytes are too many", n)
	}
	return nil
}

// newBuilds returns builds by a recorder.
func newBuilds(t *testing.T) (*Builds, *recorder) {
	t.Helper()
	r := &recorder{files: map[string]string{}}
	work := background.New()
	work.Start()
	t.Cleanup(func() { end(t, work) })
	uploads := &Uploads{}
	return New(Deps{Builder: r, Quotas: quotas{uploads, 1 << 40}, Uploads: uploads, Work: work, SpoolDir: t.TempDir(), Network: func() bool { return true }, Logger: slog.New(slog.DiscardHandler)}), r
}

// end ends the work of a server.
func end(t *testing.T, work *background.Group) {
	work.Stop()
	work.Cancel()
	if err := work.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}

func workspace(name string) sandbox.Caller {
	return sandbox.Caller{Workspace: sandbox.WorkspaceID(name)}
}

// archive returns a tar with one file, and a hard link to it.
func archive(t *testing.T, name, content string, compressed bool) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.Writer = &out
	if compressed {
		z := gzip.NewWriter(&out)
		defer z.Close()
		w = z
	}
	files := tar.NewWriter(w)
	for _, h := range []tar.Header{
		{Name: "./" + name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg},
		{Name: "link", Linkname: name, Typeflag: tar.TypeLink},
	} {
		if err := files.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(files, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if z, ok := w.(*gzip.Writer); ok {
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// send uploads files for the newest build of a template.
func send(t *testing.T, b *Builds, c sandbox.Caller, name, hash string, data []byte) error {
	t.Helper()
	secret, err := b.Address(c, name, hash)
	if err != nil {
		t.Fatal(err)
	}
	return b.Upload(t.Context(), name, hash, secret, int64(len(data)), bytes.NewReader(data))
}

// ended waits for the end of a build.
func ended(t *testing.T, o *Build) (Status, *Reason) {
	t.Helper()
	for t.Context().Err() == nil {
		if s, _, reason := o.Status(0, 0); s.ended() {
			return s, reason
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the build did not end")
	return "", nil
}

// TestBuild builds a template with files, and gives it its tags.
func TestBuild(t *testing.T) {
	b, r := newBuilds(t)
	c := workspace("w")
	o, err := b.Begin(c, Request{Name: "app:v1", Tags: []string{"stable", "latest", "default"}, CPUCount: 2, MemoryMB: 512})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.Tags, " "); got != "default stable v1" {
		t.Errorf("tags %q, want default stable v1", got)
	}
	for hash, compressed := range map[string]bool{"plain": false, "gz": true} {
		if err := send(t, b, c, "app", hash, archive(t, "a.txt", hash, compressed)); err != nil {
			t.Fatal(err)
		}
		if secret, err := b.Address(c, "app", hash); err != nil || secret != "" {
			t.Errorf("Address of present files = %q, %v, want none", secret, err)
		}
	}
	recipe := &Recipe{Steps: []Step{
		{Type: stepCopy, Args: []string{"a.txt", "/x"}, FilesHash: "plain"}, {Type: stepRun, Args: []string{"true"}, Force: true},
		{Type: stepCopy, Args: []string{"a.txt", "/y"}, FilesHash: "gz"},
	}}
	if err := b.Start(o, "modbox/base:latest", recipe); err != nil {
		t.Fatal(err)
	}
	if s, reason := ended(t, o); s != Ready {
		t.Fatalf("the build is %s: %+v", s, reason)
	}
	if err := b.Start(o, "modbox/base:latest", recipe); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("a second start: %v, want a conflict", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var tags []string
	for _, req := range r.asked {
		tags = append(tags, req.Tag)
	}
	if got := strings.Join(tags, " "); got != "app:latest app:stable app:v1" {
		t.Errorf("built %q, want app:latest app:stable app:v1", got)
	}
	if first := r.asked[0]; !first.NoCache || !first.Network || first.Resources.CPUMilli != 2000 || first.Resources.MemoryBytes != 512<<20 {
		t.Errorf("the build is %+v", first)
	}
	for name, want := range map[string]string{"1/a.txt": "plain", "3/a.txt": "gz", "1/link": "", "3/link": ""} {
		if got, ok := r.files[name]; !ok || got != want {
			t.Errorf("the context has %q = %q, %v, want %q", name, got, ok, want)
		}
	}
	_, log, _ := o.Status(0, 10)
	if len(log) != 2 || log[0].Message != "one" || log[1].Message != "two�" {
		t.Errorf("the log is %+v", log)
	}
	if _, rest, _ := o.Status(2, 10); len(rest) != 0 {
		t.Errorf("entries after the last: %+v", rest)
	}
}

// TestBuildFails lets builds fail, by their files, by a step, and by the end of the server.
func TestBuildFails(t *testing.T) {
	c := workspace("w")
	copyStep := []Step{{Type: stepCopy, Args: []string{"a", "b"}, FilesHash: "h"}}
	for name, test := range map[string]struct {
		data  []byte
		err   error
		steps []Step
		want  Reason
	}{
		"garbage":  {data: []byte("no tar"), steps: copyStep, want: Reason{Message: "the uploaded files are not a readable tar"}},
		"half":     {data: archive(t, "a", strings.Repeat("x", 4096), false)[:2000], steps: copyStep, want: Reason{Message: "the uploaded files are not a readable tar"}},
		"step":     {err: &build.Failure{Line: 6, Err: sandbox.Errorf(sandbox.Invalid, "line 6: exit code 7")}, steps: []Step{{Type: stepRun, Args: []string{"false"}}}, want: Reason{Message: "exit code 7", Step: "1"}},
		"base":     {err: &build.Failure{Line: 1, Err: sandbox.Errorf(sandbox.Invalid, "line 1: no such image")}, want: Reason{Message: "no such image", Step: baseStep}},
		"internal": {err: errors.New("secret path"), want: Reason{Message: "an internal error; the log of the server has its cause"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := newBuilds(t)
			r.err = test.err
			o, err := b.Begin(c, Request{Name: "app"})
			if err != nil {
				t.Fatal(err)
			}
			if test.data != nil {
				if err := send(t, b, c, "app", "h", test.data); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Start(o, "base", &Recipe{Steps: test.steps}); err != nil {
				t.Fatal(err)
			}
			if s, reason := ended(t, o); s != Failed || *reason != test.want {
				t.Errorf("the build is %s: %+v, want %+v", s, reason, test.want)
			}
		})
	}
	t.Run("server", func(t *testing.T) {
		b, r := newBuilds(t)
		r.wait = make(chan struct{})
		o, err := b.Begin(c, Request{Name: "app"})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Start(o, "base", &Recipe{}); err != nil {
			t.Fatal(err)
		}
		end(t, b.deps.Work)
		if s, reason := ended(t, o); s != Failed || reason.Message != "the build ended with the server" {
			t.Errorf("the build is %s: %+v", s, reason)
		}
		if err := b.Start(mustBegin(t, b, c, "other"), "base", &Recipe{}); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("a start at the end of the server: %v, want unavailable", err)
		}
	})
}

func mustBegin(t *testing.T, b *Builds, c sandbox.Caller, name string) *Build {
	t.Helper()
	o, err := b.Begin(c, Request{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestBounds registers more than a workspace and the server keep, and uploads more than they take.
func TestBounds(t *testing.T) {
	b, _ := newBuilds(t)
	now := time.Now()
	b.now = func() time.Time { return now }
	c := workspace("greedy")
	first := mustBegin(t, b, c, "app0")
	for i := 1; i < workspaceBuilds; i++ {
		mustBegin(t, b, c, "app"+strconv.Itoa(i))
	}
	if _, err := b.Begin(c, Request{Name: "more"}); sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("one build more: %v, want quota_exceeded", err)
	}
	other := mustBegin(t, b, workspace("other"), "app0") // is not concerned
	if _, err := b.Find(workspace("other"), "app0", first.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a build of another workspace: %v, want not_found", err)
	}
	if err := b.Start(first, "base", &Recipe{}); err != nil {
		t.Fatal(err)
	}
	ended(t, first)
	mustBegin(t, b, c, "more") // takes the place of the ended build
	if _, err := b.Find(c, "app0", first.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the build whose place was taken: %v, want not_found", err)
	}

	secret, err := b.Address(workspace("other"), "app0", "h")
	if err != nil {
		t.Fatal(err)
	}
	put := func(template, hash, secret string, size int64, body string) sandbox.Code {
		return sandbox.CodeOf(b.Upload(t.Context(), template, hash, secret, size, strings.NewReader(body)))
	}
	for name, got := range map[string]sandbox.Code{
		"not_found":   put("app0", "h", other.ID+".x", 1, "x"),
		"not_found ":  put("app1", "h", secret, 1, "x"),
		"not_found  ": put("app0", "../h", secret, 1, "x"),
		"invalid":     put("app0", "h", secret, -1, "x"),
		"invalid ":    put("app0", "h", secret, 5, "x"),
		"too_large":   put("app0", "h", secret, uploadsMax+1, "x"),
		"quota_exceeded": func() sandbox.Code {
			fill(t, b, "other", uploadsMax)
			defer b.deps.Uploads.release("other", uploadsMax)
			return put("app0", "h", secret, 1, "x")
		}(),
	} {
		if want := sandbox.Code(strings.TrimSpace(name)); got != want {
			t.Errorf("an upload is answered with %q, want %q", got, want)
		}
	}
	for i := range serverUploadsMax / uploadsMax {
		fill(t, b, "full"+strconv.Itoa(i), uploadsMax)
	}
	if got := put("app0", "h", secret, 1, "x"); got != sandbox.Unavailable {
		t.Errorf("an upload to a full server is answered with %q, want unavailable", got)
	}
	now = now.Add(keptFor + time.Second)
	mustBegin(t, b, c, "later")
	if len(b.byID) != 1 || len(b.places.byID) != 1 {
		t.Errorf("%d builds and %d places are known after their time, want 1", len(b.byID), len(b.places.byID))
	}
	if err := b.Start(other, "base", &Recipe{}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("a start after the time of a build: %v, want a conflict", err)
	}
}

// fill counts an upload of a workspace that does not end.
func fill(t *testing.T, b *Builds, ws string, size int64) {
	t.Helper()
	if err := b.deps.Uploads.reserve(sandbox.WorkspaceID(ws), size); err != nil {
		t.Fatal(err)
	}
}
