package lifecycle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

func TestProgressOfABuild(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	entered, release := make(chan struct{}), make(chan struct{})
	installing := phase.Event{Phase: "installing", Message: "x", Done: 1, Total: 3}
	e.images.missing(func(ctx context.Context, _ string, progress func(phase.Event)) error {
		progress(installing)
		close(entered)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/big"})
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.Snapshots().Assemblies().Progress(t.Context(), s.caller, begun.ID)
	if err != nil || at.Phase != "begun" {
		t.Errorf("before its finish: %+v, %v", at, err)
	}
	finished := make(chan error, 1)
	go func() {
		_, err := s.Snapshots().Assemblies().Finish(t.Context(), s.caller, begun.ID, snapshot.Contents{Env: map[string]string{"A": "b"}})
		finished <- err
	}()
	<-entered
	at, err = s.Snapshots().Assemblies().Progress(t.Context(), s.caller, begun.ID)
	if d := cmp.Diff(installing, at); d != "" || err != nil {
		t.Errorf("meanwhile: %v (-want +got):\n%s", err, d)
	}
	if _, err := s.Snapshots().Assemblies().Progress(t.Context(), sandbox.Caller{Workspace: "other"}, begun.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("for another workspace: %v, want not_found", err)
	}
	close(release)
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	if at, err := s.Snapshots().Assemblies().Progress(t.Context(), s.caller, begun.ID); err != nil || at.Phase != snapshot.PhaseDone {
		t.Errorf("when it is over: %+v, %v, want that it is done", at, err)
	}
	if got := phases(t, s, begun.ID, true); !slices.Equal(got, []phase.Phase{"begun", "waiting", "installing", "writing", "done"}) {
		t.Errorf("its log has the phases %v", got)
	}
	if _, err := s.Snapshots().Assemblies().Log(t.Context(), sandbox.Caller{Workspace: "other"}, begun.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the log for another workspace: %v, want not_found", err)
	}
}

// TestDisabledImages builds from an image that an administrator has disabled.
func TestDisabledImages(t *testing.T) {
	e := newEnv(t)
	e.images.list[2].Builtin = true
	big := e.images.list[2] // before the server starts, which changes the list
	st := e.openStore()
	t.Cleanup(func() { st.Close() })
	s := e.start()
	build := func() error {
		begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: big.Name})
		if err == nil {
			_, err = s.Snapshots().Assemblies().Finish(t.Context(), s.caller, begun.ID, snapshot.Contents{Env: map[string]string{"A": "b"}})
		}
		return err
	}
	for _, enabled := range []bool{false, true} {
		if err := st.Catalogue.SetImageEnabled(t.Context(), big.ID, enabled, s.caller.User, time.Now()); err != nil {
			t.Fatal(err)
		}
		_, from := s.builds.Base(t.Context(), s.caller, big.Name, nil)
		for field, err := range map[string]error{"from": from, "runtime": build()} {
			var coded *sandbox.Error
			if refused := errors.As(err, &coded) && coded.Field == field && strings.Contains(coded.Message, "disabled"); refused == enabled || enabled && err != nil {
				t.Errorf("%s an image that is enabled=%v: %v", field, enabled, err)
			}
		}
	}
}

// phases are those in the log of a build.
func phases(t *testing.T, s *server, id sandbox.SnapshotID, ended bool) (out []phase.Phase) {
	t.Helper()
	log, err := s.Snapshots().Assemblies().Log(t.Context(), s.caller, id)
	if err != nil || log.Ended != ended || log.Truncated {
		t.Fatalf("log = %+v, %v, want it ended: %v", log, err, ended)
	}
	for _, l := range log.Lines {
		out = append(out, l.Phase)
	}
	return out
}

// TestLogOfABuild: it has what tools write, whether they succeed or not, and only
// so much of it.
func TestLogOfABuild(t *testing.T) {
	e, _ := withTools(t, map[string]string{"npm": `printf 'one\nt\033[31mwo\r\nthree' ; [ "$6" != bad ] || { echo; echo 'no such package'; exit 1; }
[ "$6" != many ] || for a in 0 1 2 3 4 5 6 7 8 9; do for b in 0 1 2 3 4 5 6 7 8 9; do for c in 0 1 2 3 4 5 6 7 8 9; do echo; echo line $a$b$c; done; done; done
`})
	s := e.start()
	build := func(pkg string) (snapshot.Log, error) {
		t.Helper()
		begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
		if err != nil {
			t.Fatal(err)
		}
		_, failed := s.Snapshots().Assemblies().Finish(t.Context(), s.caller, begun.ID, snapshot.Contents{NpmPackages: []string{pkg}})
		log, err := s.Snapshots().Assemblies().Log(t.Context(), s.caller, begun.ID)
		if err != nil {
			t.Fatal(err)
		}
		return log, failed
	}
	log, failed := build("bad")
	var lines []string
	for _, l := range log.Lines {
		lines = append(lines, string(l.Phase)+": "+l.Message)
	}
	want := []string{"installing: one", "installing: t [31mwo", "installing: three", "installing: no such package"}
	if at := slices.Index(lines, want[0]); failed == nil || at < 0 || !slices.Equal(lines[at:len(lines)-1], want) || !strings.Contains(lines[len(lines)-1], "failed: the build failed: npm_packages: npm") {
		t.Errorf("log of a failure (%v):\n%s", failed, strings.Join(lines, "\n"))
	}
	log, failed = build("many")
	if failed != nil || !log.Truncated || len(log.Lines) != 1000 || log.Lines[999].Phase != snapshot.PhaseDone || log.Lines[997].Message != "line 999" {
		t.Errorf("log of much = %d lines, truncated %v, ends with %+v (%v)", len(log.Lines), log.Truncated, log.Lines[max(0, len(log.Lines)-3):], failed)
	}
}

// TestFilesOfABuildCome: no build is finished without its files, and none with a broken archive.
func TestFilesOfABuildCome(t *testing.T) {
	s := newEnv(t).start()
	builds := s.Snapshots().Assemblies()
	begun, err := builds.Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var coded *sandbox.Error
		if !errors.As(err, &coded) || coded.Code != sandbox.Invalid || coded.Field != "archive" {
			t.Errorf("%s: %v, want code invalid and field archive", what, err)
		}
	}
	finish := func(contents snapshot.Contents) error {
		_, err := builds.Finish(t.Context(), s.caller, begun.ID, contents)
		return err
	}
	refused("finish without anything", finish(snapshot.Contents{}))
	refused("finish without required files", finish(snapshot.Contents{FilesRequired: true, Env: map[string]string{"A": "b"}}))
	good := packed(t, strings.Repeat("content", 1000))
	for name, archive := range map[string]string{"nothing": "", "garbage": "no archive", "half an archive": good[:len(good)/2]} {
		refused("upload of "+name, builds.Upload(t.Context(), s.caller, begun.ID, strings.NewReader(archive)))
	}
	refused("finish after refused uploads", finish(snapshot.Contents{}))

	r, w := io.Pipe()
	uploaded := make(chan error, 1)
	go func() { uploaded <- builds.Upload(t.Context(), s.caller, begun.ID, r) }()
	if _, err := io.WriteString(w, good[:10]); err != nil {
		t.Fatal(err)
	}
	if err := finish(snapshot.Contents{Env: map[string]string{"A": "b"}}); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("finish during an upload: %v, want conflict", err)
	}
	if err := builds.Upload(t.Context(), s.caller, begun.ID, strings.NewReader(good)); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("an upload beside another: %v, want conflict", err)
	}
	if _, err := io.WriteString(w, good[10:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-uploaded; err != nil {
		t.Errorf("upload of a good archive: %v", err)
	}
	if err := finish(snapshot.Contents{}); err != nil {
		t.Errorf("finish with a good archive: %v", err)
	}
}

// packed returns a tar.gz with a file.
func packed(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	files := tar.NewWriter(zipped)
	err := files.WriteHeader(&tar.Header{Name: "a", Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = io.WriteString(files, content)
	}
	if err := errors.Join(err, files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestBuildWhoseCallerHasLeft finishes a build with a request that is over already.
func TestBuildWhoseCallerHasLeft(t *testing.T) {
	s := newEnv(t).start()
	builds := s.Snapshots().Assemblies()
	begun, err := builds.Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := builds.Finish(ctx, s.caller, begun.ID, snapshot.Contents{Env: map[string]string{"A": "b"}}); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("finish: %v", err)
	}
	eventually(t, "the build is done", func() bool {
		at, err := builds.Progress(t.Context(), s.caller, begun.ID)
		if err != nil || at.Phase == snapshot.PhaseFailed {
			t.Fatalf("the build's end: %+v, %v", at, err)
		}
		return at.Phase == snapshot.PhaseDone
	})
}
