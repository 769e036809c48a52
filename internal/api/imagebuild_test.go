package api_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

// busyHost takes a moment to answer, and never has a place for a build.
type busyHost struct{ build.Host }

func (busyHost) CheckDisk(context.Context, sandbox.Caller) error {
	<-time.After(50 * time.Millisecond)
	return nil
}

func (busyHost) AcquireSlot(ctx context.Context, _ sandbox.Caller, r sandbox.Resources, _ time.Duration, waits func(string)) (sandbox.Resources, func(), error) {
	waits("other images are being built")
	<-ctx.Done()
	return r, nil, ctx.Err()
}

func (busyHost) CheckLimits(sandbox.Resources, time.Duration) error { return nil }

// TestBuildThatTakesTooLong: the client gets a timeout, not the error of a disconnected client.
func TestBuildThatTakesTooLong(t *testing.T) {
	images, err := image.Open(t.TempDir(), fstest.MapFS{}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) {
		deps.Builder = build.New(build.Config{Timeout: 200 * time.Millisecond}, busyHost{}, images)
	})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	err = form.WriteField("dockerfile", "FROM scratch")
	part, partErr := form.CreateFormFile("context", "context.tar")
	if err := errors.Join(err, partErr); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tar.NewWriter(part).Close(), form.Close()); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/images/build", &body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := s.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	told, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(told), `"code":"timeout"`) {
		t.Errorf("the build told %s, %v; want an error with the code timeout", told, err)
	}
}

// turnHost gives a build its slot on a signal.
type turnHost struct {
	build.Host
	asked, turn chan struct{}
	given       chan struct{} // gets one when a place is given back
}

func newTurnHost() *turnHost {
	return &turnHost{asked: make(chan struct{}), turn: make(chan struct{}), given: make(chan struct{}, 1)}
}

func (*turnHost) CheckDisk(context.Context, sandbox.Caller) error { return nil }

func (*turnHost) CheckDiskFor(context.Context, sandbox.Caller, sandbox.Resources, int64) error {
	return nil
}

func (*turnHost) CheckLimits(sandbox.Resources, time.Duration) error { return nil }

func (h *turnHost) AcquireSlot(ctx context.Context, _ sandbox.Caller, r sandbox.Resources, _ time.Duration, waits func(string)) (sandbox.Resources, func(), error) {
	waits("other images are being built")
	close(h.asked)
	select {
	case <-h.turn:
		return r, func() { h.given <- struct{}{} }, nil
	case <-ctx.Done():
		return r, nil, ctx.Err()
	}
}

// buildOn starts a server with builds on a host.
func buildOn(t *testing.T, host build.Host, cfg build.Config) *apitest.Server {
	t.Helper()
	images, err := image.Open(t.TempDir(), fstest.MapFS{}, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return apitest.NewWith(t, func(_ *api.Config, deps *api.Deps) { deps.Builder = build.New(cfg, host, images) })
}

// beginBuild sends a build of a Dockerfile, whose context files writes.
func beginBuild(t *testing.T, s *apitest.Server, dockerfile string, files func(io.Writer) error) (*http.Response, error) {
	t.Helper()
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	go func() {
		err := form.WriteField("dockerfile", dockerfile)
		part, partErr := form.CreateFormFile("context", "context.tar")
		if err = errors.Join(err, partErr); err == nil {
			err = errors.Join(files(part), form.Close())
		}
		_ = pw.CloseWithError(err) // does not fail
	}()
	t.Cleanup(func() { _ = pr.Close() })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/images/build", pr)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+s.Token)
	return s.HTTP.Do(req)
}

// TestBuildWaitsBeforeItsContext: a client learns that its build waits while most of its context
// has not arrived; the rest arrives once the build has a slot.
func TestBuildWaitsBeforeItsContext(t *testing.T) {
	host := newTurnHost()
	s := buildOn(t, host, build.Config{})
	const size = 24 << 20 // more than lies between two programs
	sent := make(chan struct{})
	resp, err := beginBuild(t, s, "FROM scratch\nCOPY f /f\n", func(w io.Writer) error {
		defer close(sent)
		files := tar.NewWriter(w)
		err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: size})
		if err != nil {
			return err
		}
		_, err = io.CopyN(files, zeros{}, size)
		return errors.Join(err, files.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"phase":"waiting"`) {
		t.Fatalf("the first line is %q, %v", lines.Text(), lines.Err())
	}
	select {
	case <-sent:
		t.Error("the context was sent before the build's turn")
	default:
	}
	close(host.turn)
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if lines.Err() != nil || !strings.Contains(last, `"type":"done"`) {
		t.Errorf("the last line is %q, %v", last, lines.Err())
	}
}

// zeros reads as zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestBuildWhoseContextStalls: it ends, and gives its place to others.
func TestBuildWhoseContextStalls(t *testing.T) {
	host := newTurnHost()
	close(host.turn)
	s := buildOn(t, host, build.Config{UploadTimeout: 100 * time.Millisecond})
	resp, err := beginBuild(t, s, "FROM scratch\n", func(w io.Writer) error {
		<-t.Context().Done() // nothing more comes
		return t.Context().Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	told, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(told), `"code":"timeout"`) || !strings.Contains(string(told), "context: it did not arrive within 100ms") {
		t.Errorf("the build told %s, %v; want an error with the code timeout", told, err)
	}
	select {
	case <-host.given:
	case <-time.After(3 * time.Minute):
		t.Error("the place was not given back")
	}
}

// chattyHost runs commands that write much and end.
type chattyHost struct{ turnHost }

func (chattyHost) Run(_ context.Context, _ build.Command, output func([]byte), layer io.Writer) (agentapi.Exit, error) {
	line := bytes.Repeat([]byte("x"), 32<<10)
	for range 400 { // far more than lies between two programs
		output(line)
	}
	return agentapi.Exit{}, tar.NewWriter(layer).Close()
}

// TestBuildOfAClientThatDoesNotRead: the build does not wait for it, and it gets all of its
// log when it reads.
func TestBuildOfAClientThatDoesNotRead(t *testing.T) {
	host := &chattyHost{turnHost: *newTurnHost()}
	close(host.turn)
	s := buildOn(t, host, build.Config{})
	resp, err := beginBuild(t, s, "FROM scratch\nWORKDIR /\nCOPY . /w\nRUN [\"/x\"]\n", func(w io.Writer) error { return tar.NewWriter(w).Close() })
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	select {
	case <-host.given:
	case <-time.After(3 * time.Minute):
		t.Fatal("the build did not end while its log was unread")
	}
	lines := bufio.NewReader(resp.Body)
	output := 0
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the log broke off after %d bytes of output: %v", output, err)
		}
		var m wire.ImageBuildMessage
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		output += len(m.Data)
		if m.Type == wire.BuildDone {
			break
		}
		if m.Type == wire.StreamError {
			t.Fatalf("the build failed: %s", line)
		}
	}
	if output != 400*32<<10 {
		t.Errorf("got %d bytes of output, want %d", output, 400*32<<10)
	}
}
