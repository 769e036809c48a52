package remote_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// newStack writes a root filesystem of two files.
func newStack(t *testing.T, size int) (base, top string) {
	t.Helper()
	dir := t.TempDir()
	base = newImage(t, dir, size)
	f, err := os.Create(filepath.Join(dir, "top"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(stack.Write(f, []string{"sha256:" + strings.TrimSuffix(filepath.Base(base), ".erofs")}), f.Truncate(int64(size)), f.Close()); err != nil {
		t.Fatal(err)
	}
	top = filepath.Join(dir, stack.FileName(digestOf(t, f.Name())))
	if err := os.Rename(f.Name(), top); err != nil {
		t.Fatal(err)
	}
	return base, top
}

// TestImageWithAnotherContent checks that the worker keeps no root filesystem that does not have its digest.
func TestImageWithAnotherContent(t *testing.T) {
	r := newRig(t)
	path := newImage(t, t.TempDir(), 256<<10)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[200<<10]++
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = r.Control().Stage(within(t), "", driver.Spec{RootFS: path}, "")
	wantCode(t, "Stage() of a root filesystem with another content", err, sandbox.Unavailable)
	if got := r.cached(t); len(got) != 0 {
		t.Errorf("the worker keeps %q", got)
	}
}

// TestStackIsFetchedOnce checks that all files of a root filesystem arrive, once, and that another process of the worker has them.
func TestStackIsFetchedOnce(t *testing.T) {
	r := newRig(t)
	base, named := newStack(t, 64<<10)
	s := spec()
	s.RootFS = named
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s := s
			s.ID = sandbox.NewID()
			if _, err := r.Control().Create(within(t), s); err != nil {
				t.Errorf("Create() = %v", err)
			}
		})
	}
	all.Wait()
	if got := r.cached(t); len(got) != 2 {
		t.Errorf("the worker has %q, want both", got)
	}
	r.StopWorker()
	r.StartWorker(t)
	if err := os.Truncate(base, 1); err != nil { // it cannot be sent again
		t.Fatal(err)
	}
	if _, err := r.Control().Create(within(t), s); err != nil {
		t.Errorf("Create() with another process of the worker = %v", err)
	}
}

// TestFilesOfAStackStay checks that the cache keeps a file of a root filesystem while it gets the others.
func TestFilesOfAStackStay(t *testing.T) {
	r := newRig(t)
	r.relay.slowDown(true)
	_, top := newStack(t, 4<<20)
	done := make(chan error, 1)
	go func() {
		release, err := r.Control().Stage(within(t), "", driver.Spec{RootFS: top}, "")
		if err == nil {
			release()
		}
		done <- err
	}()
	eventually(t, "the second file arrives", func() error {
		names := r.cached(t)
		if len(names) != 2 || !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, ".new-") }) {
			return errors.New("not yet")
		}
		return nil
	})
	if n := r.Cache.Unused(); n != 0 {
		t.Errorf("%d bytes of the first file can be removed", n)
	}
	r.relay.slowDown(false)
	if err := <-done; err != nil {
		t.Errorf("Stage() = %v", err)
	}
	eventually(t, "the files can be removed", func() error {
		if n := r.Cache.Unused(); n != 8<<20 {
			return fmt.Errorf("%d bytes can", n)
		}
		return nil
	})
}

// TestWorkspacesNeedTheSameImage checks that each waits for its own turn, and that the image is sent once, by the first.
func TestWorkspacesNeedTheSameImage(t *testing.T) {
	r := newRig(t)
	d := r.Control()
	var releases []func()
	for range remote.Places {
		release, err := d.TakePlace(within(t), "a")
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	path := newImage(t, t.TempDir(), 64<<10)
	other := filepath.Join(t.TempDir(), filepath.Base(path)) // the same image of another path is another stage
	if err := os.Link(path, other); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for i, c := range []struct {
		w    sandbox.WorkspaceID
		path string
	}{{"a", path}, {"b", other}} {
		go func() {
			release, err := d.Stage(within(t), c.w, driver.Spec{RootFS: c.path}, "")
			if err == nil {
				release()
			}
			done <- err
		}()
		eventually(t, "the transfer waits", func() error {
			if d.Waiting() <= i {
				return errors.New("not yet")
			}
			return nil
		})
	}
	releases[0]() // the workspace a has no more places until the others are free
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("Stage() = %v", err)
		}
	}
	for _, release := range releases[1:] {
		release()
	}
	if n := d.Sending(); n != 0 {
		t.Errorf("%d images are being sent", n)
	}
}
