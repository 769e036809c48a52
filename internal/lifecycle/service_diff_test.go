package lifecycle_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// hold makes calls of the driver wait, and says when the first has begun.
func (s *server) hold(which string) (begun chan struct{}, release func()) {
	begun, end := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(begun) })
	s.driver.faults.on(func(_ int, call string) error {
		if call == which {
			first()
			<-end
		}
		return nil
	}, nil)
	return begun, sync.OnceFunc(func() { close(end) })
}

// TestDiffWaitsBesideItsSandbox: a sandbox whose diff waits for the diff of another can be paused meanwhile.
func TestDiffWaitsBesideItsSandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.run(lifecycle.CreateRequest{Name: "b"})
	begun, release := s.hold("driver.WriteNames")
	defer release()
	results := make(chan error, 2)
	diff := func(ctx context.Context, ref string) error {
		_, err := s.Snapshots().Diff(ctx, s.caller, ref, snapshot.DiffQuery{})
		return err
	}
	go func() { results <- diff(t.Context(), "a") }()
	<-begun
	go func() {
		err := diff(t.Context(), "b")
		for sandbox.CodeOf(err) == sandbox.QuotaExceeded {
			err = diff(t.Context(), "b")
		}
		results <- err
	}()
	for counted := false; !counted; {
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
		counted = sandbox.CodeOf(diff(ctx, "a")) == sandbox.QuotaExceeded
		leave()
	}
	if _, err := s.Pause(t.Context(), s.caller, "b"); err != nil {
		t.Fatal(err)
	}
	// Downloads of files of images are counted for themselves.
	body, _, err := s.Snapshots().Original(t.Context(), s.caller, "a", "/file")
	if got := readAll(t, body, err); got != "data" {
		t.Errorf("the file in the image has %q", got)
	}
	release()
	for range 2 {
		if err := <-results; err != nil && sandbox.CodeOf(err) != sandbox.NotRunning { // a paused sandbox without saved files
			t.Error(err)
		}
	}
}

// TestDiffOfABusySandbox: a caller who leaves is not kept until the other work on the sandbox ends.
func TestDiffOfABusySandbox(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	begun, release := s.hold("driver.WriteLayer")
	defer release()
	made := make(chan error, 1)
	go func() {
		_, err := s.Snapshots().Create(t.Context(), s.caller, "a", snapshot.Request{Name: "n"})
		made <- err
	}()
	<-begun
	ctx, leave := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s.Snapshots().Diff(ctx, s.caller, "a", snapshot.DiffQuery{})
		result <- err
	}()
	leave()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("the diff of a caller who has left: %v", err)
	}
	release()
	if err := <-made; err != nil {
		t.Error(err)
	}
	if _, err := s.Snapshots().Diff(t.Context(), s.caller, "a", snapshot.DiffQuery{}); err != nil {
		t.Errorf("the diff afterwards: %v", err)
	}
}

// TestDiffKeepsItsPlaceWhileItCompares: no sandbox of another workspace is read for a diff before the names of the diff
// before are compared.
func TestDiffKeepsItsPlaceWhileItCompares(t *testing.T) {
	e := newEnv(t)
	other := e.workspace("other")
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	b, _, err := s.Create(t.Context(), other, lifecycle.CreateRequest{Name: "b"})
	if err == nil {
		b, err = s.Wait(t.Context(), other, "b", sandbox.Running, testTimeout)
	}
	if err != nil || b.State != sandbox.Running {
		t.Fatalf("%s: %v", b.State, err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	var opened atomic.Bool
	e.images.mu.Lock()
	e.images.opening = func() {
		if !opened.Swap(true) { // the first alone waits
			close(begun)
			<-end
		}
	}
	e.images.mu.Unlock()
	results := make(chan error, 1)
	go func() {
		_, err := s.Snapshots().Diff(t.Context(), s.caller, "a", snapshot.DiffQuery{})
		results <- err
	}()
	<-begun
	read, stop := s.hold("driver.WriteNames")
	stop()
	ctx, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer leave()
	if _, err := s.Snapshots().Diff(ctx, other, "b", snapshot.DiffQuery{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the diff of the other workspace: %v", err)
	}
	select {
	case <-read:
		t.Error("the other sandbox was read meanwhile")
	default:
	}
	release()
	if err := <-results; err != nil {
		t.Error(err)
	}
	if _, err := s.Snapshots().Diff(t.Context(), other, "b", snapshot.DiffQuery{}); err != nil {
		t.Errorf("the diff afterwards: %v", err)
	}
}
