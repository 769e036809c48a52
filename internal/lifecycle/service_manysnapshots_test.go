package lifecycle_test

import (
	"context"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// TestSnapshotsThatWaitTogether: snapshots that were requested while the workspace might have more are checked again when they get
// one of the two slots, and when they are made.
func TestSnapshotsThatWaitTogether(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxSnapshotBytes = 1024 // the size of a single snapshot
	s := e.start()
	entered, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(entered) }) // a sandbox that finds no image has it made again
	e.images.missing(func(context.Context, string, func(phase.Event)) error {
		first()
		<-release
		return nil
	})
	const all = 6
	var g sync.WaitGroup
	errs := make(chan error, all)
	for range all {
		begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/big"})
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() {
			_, err := s.Snapshots().Assemblies().Finish(t.Context(), s.caller, begun.ID, snapshot.Contents{Env: map[string]string{"A": "b"}})
			errs <- err
		})
	}
	<-entered
	close(release)
	g.Wait()
	close(errs)
	made := 0
	for err := range errs {
		switch {
		case err == nil:
			made++
		case sandbox.CodeOf(err) != sandbox.QuotaExceeded:
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d of %d were made, want one", made, all)
	}
}
