package imagearchive_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/ballast"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/verify"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/imagerows"
)

// stalled is an object store that does not answer until goOn is closed, after it has begun to write a file.
type stalled struct {
	verify.Away
	begun chan struct{} // gets an element for each fetch that begins
	goOn  chan struct{}
	ended chan error // gets the error of each fetch that ended before goOn
}

func (s stalled) Fetch(ctx context.Context, ws sandbox.WorkspaceID, digest, path string) error {
	if err := os.WriteFile(path, []byte("part"), 0o600); err != nil {
		return err
	}
	s.begun <- struct{}{}
	select {
	case <-s.goOn:
		return errors.Join(os.Remove(path), s.Away.Fetch(ctx, ws, digest, path))
	case <-ctx.Done():
		s.ended <- ctx.Err()
		return ctx.Err()
	}
}

// TestFetchEndsWithItsCallers has a caller who leaves during a fetch, and then callers of whom one stays.
func TestFetchEndsWithItsCallers(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	done := f.commit(image.CommitRequest{User: "ws", Alone: true}, map[string]string{"a": "a"})
	f.save(done.Digest)
	f.next()
	away := stalled{f.Service, make(chan struct{}, 10), make(chan struct{}), make(chan error, 10)}
	images, err := image.Open(f.dir, recipes, image.Options{Rows: imagerows.New(f.store.DB), Away: away})
	if err != nil {
		t.Fatal(err)
	}
	resolve := func(ctx context.Context) <-chan error {
		result := make(chan error, 1)
		go func() {
			_, _, err := images.Resolve(ctx, done.Digest)
			result <- err
		}()
		return result
	}
	ctx, leave := context.WithCancel(t.Context())
	alone := resolve(ctx)
	<-away.begun
	leave()
	if err := <-alone; !errors.Is(err, context.Canceled) {
		t.Errorf("Resolve of a caller who left = %v", err)
	}
	select {
	case <-away.ended:
	case <-time.After(time.Minute):
		t.Fatal("a fetch goes on that nobody waits for")
	}

	ctx, leave = context.WithCancel(t.Context())
	leaves, stays := resolve(ctx), resolve(t.Context())
	<-away.begun // after the first fetch has ended
	leave()
	<-leaves
	close(away.goOn)
	if err := <-stays; err != nil {
		t.Errorf("Resolve of the caller who stays = %v", err)
	}
	if names := f.local(); len(names) != 1 {
		t.Errorf("on the disk: %v, want the root filesystem alone", names)
	}
}

// TestFetchKeepsSpaceFree fetches to a disk on which more is to stay free than it has.
func TestFetchKeepsSpaceFree(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	done := f.commit(image.CommitRequest{User: "ws", Alone: true}, map[string]string{"a": "a"})
	f.save(done.Digest)
	f.space = ballast.NewBudget(1 << 60)
	f.next()
	_, _, err := f.images.Resolve(t.Context(), done.Digest)
	if names := f.local(); sandbox.CodeOf(err) != sandbox.DiskFull || len(names) > 0 {
		t.Errorf("Resolve = %v, and leaves %v, want disk_full and nothing", err, names)
	}
}
