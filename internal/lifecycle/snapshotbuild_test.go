package lifecycle_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestProgressOfABuild(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	entered, release := make(chan struct{}), make(chan struct{})
	installing := sandbox.ImageEvent{Phase: "installing", Message: "x", Done: 1, Total: 3}
	e.images.missing(func(ctx context.Context, _ string, progress func(sandbox.ImageEvent)) error {
		progress(installing)
		close(entered)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	begun, err := s.BeginBuild(t.Context(), s.caller, lifecycle.BuildRequest{Runtime: "modbox/big"})
	if err != nil {
		t.Fatal(err)
	}
	at, err := s.BuildProgress(t.Context(), s.caller, begun.ID)
	if err != nil || at.Phase != "begun" {
		t.Errorf("before its finish: %+v, %v", at, err)
	}
	finished := make(chan error, 1)
	go func() {
		_, err := s.FinishBuild(t.Context(), s.caller, begun.ID, lifecycle.BuildContents{})
		finished <- err
	}()
	<-entered
	at, err = s.BuildProgress(t.Context(), s.caller, begun.ID)
	if d := cmp.Diff(installing, at); d != "" || err != nil {
		t.Errorf("meanwhile: %v (-want +got):\n%s", err, d)
	}
	if _, err := s.BuildProgress(t.Context(), lifecycle.Caller{Workspace: "other"}, begun.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("for another workspace: %v, want not_found", err)
	}
	close(release)
	if err := <-finished; err != nil {
		t.Fatal(err)
	}
	if _, err := s.BuildProgress(t.Context(), s.caller, begun.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("when it is over: %v, want not_found", err)
	}
}

func TestFilesOfABuildAreUploadedByOneAtATime(t *testing.T) {
	s := newEnv(t).start()
	begun, err := s.BeginBuild(t.Context(), s.caller, lifecycle.BuildRequest{Runtime: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	first := make(chan error, 1)
	go func() { first <- s.UploadBuild(t.Context(), s.caller, begun.ID, r) }()
	if _, err := w.Write([]byte("under way")); err != nil {
		t.Fatal(err)
	}
	if err := s.UploadBuildByKey(t.Context(), begun.Key, strings.NewReader("x")); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("an upload beside another: %v, want conflict", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Errorf("the first upload: %v", err)
	}
	if err := s.UploadBuildByKey(t.Context(), begun.Key, strings.NewReader("x")); err != nil {
		t.Errorf("an upload after the other: %v", err)
	}
}
