package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/sandbox"
)

// Run makes and removes templates until the server closes, and removes all of them then.
func (k *Keeper) Run(boxes Boxes) {
	if k.saver == nil {
		return
	}
	defer k.RemoveAll()
	ctx := k.Work.Context()
	k.Work.Go(func() { every(ctx, func() { k.tidy(ctx) }) }) // also while one is being made
	every(ctx, func() { k.makeNext(ctx, boxes) })
}

// makeNext makes the template with the most demand that the host has space for.
func (k *Keeper) makeNext(ctx context.Context, boxes Boxes) {
	if _, ok := k.missing(time.Now(), nil); !ok || !boxes.AwaitCalm() {
		return
	}
	for skip := map[pool.Kind]bool{}; ctx.Err() == nil; {
		kind, ok := k.missing(time.Now(), skip)
		if !ok || k.makeOrLog(ctx, boxes, kind) {
			return
		}
		skip[kind] = true
	}
}

// every calls f at each interval until ctx ends.
func every(ctx context.Context, f func()) {
	ticker := time.NewTicker(planInterval)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// tidy removes the templates of images that are not here any more, idle templates, and all when the disk is low.
func (k *Keeper) tidy(ctx context.Context) {
	low, now := k.cfg.CheckFree(k.cfg.MinFree) != nil, time.Now()
	var old []*template
	k.mu.Lock()
	kinds := make([]pool.Kind, 0, len(k.ready))
	for kind, t := range k.ready {
		if now.Sub(t.used) > idleMax {
			old = append(old, k.forget(kind))
		} else {
			kinds = append(kinds, kind)
		}
	}
	k.mu.Unlock()
	k.remove(old...)
	for _, kind := range kinds {
		if _, _, err := k.Images.Resolve(ctx, kind.Digest); low || sandbox.CodeOf(err) == sandbox.NotFound {
			k.mu.Lock()
			t := k.forget(kind)
			k.mu.Unlock()
			k.remove(t)
		}
	}
}

// RemoveAll removes all templates, to free the disk, and returns their size.
func (k *Keeper) RemoveAll() (bytes int64) {
	k.mu.Lock()
	bytes = k.bytes()
	var list []*template
	for kind := range k.ready {
		list = append(list, k.forget(kind))
	}
	k.mu.Unlock()
	k.remove(list...)
	return bytes
}

// makeOrLog makes the template of a kind. It reports false if it does not try, because the image has none or the host has no space.
func (k *Keeper) makeOrLog(ctx context.Context, boxes Boxes, kind pool.Kind) bool {
	img, rootfs, err := k.Images.Resolve(ctx, kind.Digest)
	if sandbox.CodeOf(err) == sandbox.NotFound || err == nil && !environment.Prestarts(&img) {
		k.mu.Lock()
		k.fail(kind, time.Now())
		k.mu.Unlock()
	}
	if err != nil || !environment.Prestarts(&img) || k.cfg.CheckFree(k.cfg.MinFree+k.cfg.MaxBytes) != nil {
		return false
	}
	release, ok := boxes.ReserveSpace(kind)
	if !ok {
		return false
	}
	defer release()
	begin := time.Now()
	t, err := k.make(ctx, boxes, kind, rootfs)
	now := time.Now()
	k.mu.Lock()
	k.made = now
	var old []*template
	if err == nil {
		old, err = k.keep(kind, t, now)
	}
	if err != nil {
		k.fail(kind, now)
	}
	k.mu.Unlock()
	k.remove(old...)
	switch {
	case err == nil:
		k.Logger.Info("a memory template is ready", "image", img.Ref(), "bytes", t.bytes, "took", now.Sub(begin))
	case ctx.Err() == nil:
		k.Logger.Warn("no memory template could be made", "image", img.Ref(), "error", err)
	}
	return true
}

// make makes a template in a box of its own.
func (k *Keeper) make(ctx context.Context, boxes Boxes, kind pool.Kind, rootfs string) (*template, error) {
	modules, err := k.modules(ctx, kind)
	if err != nil {
		return nil, err
	}
	b, err := boxes.MakeNew(kind)
	if err != nil {
		return nil, err
	}
	defer boxes.Destroy(b)
	if len(modules) > 0 {
		warming, cancel := context.WithTimeout(ctx, warmUpTimeout)
		defer cancel()
		if err := environment.WarmUp(warming, b.Value.Box, modules); err != nil {
			return nil, err
		}
	}
	saving, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	path := filepath.Join(k.cfg.Dir, string(sandbox.NewCheckpointID()))
	if err := k.saver.Checkpoint(saving, b.Value.ID, path, driver.CheckpointOptions{Stop: true, Volatile: true, MaxBytes: driver.MaxCheckpoint(kind.Resources)}); err != nil {
		return nil, err
	}
	t := &template{path: path, used: time.Now()}
	if t.bytes, err = sizeOf(path); err == nil {
		t.unstage, err = driver.Stage(saving, k.Driver, "", driver.Spec{RootFS: rootfs}, path) // once for all restores
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return t, nil
}

// modules returns the modules of Python that the interpreter of an image loads. Sandboxes with less memory than the image
// requires have no template: its modules would take too much of theirs.
func (k *Keeper) modules(ctx context.Context, kind pool.Kind) ([]string, error) {
	list, err := k.Images.Runtimes(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Digest != kind.Digest {
			continue
		}
		if kind.Resources.MemoryBytes < r.Requires.MemoryBytes {
			return nil, fmt.Errorf("the image requires %s of memory, and these sandboxes have %s", sandbox.ShowBytes(r.Requires.MemoryBytes), sandbox.ShowBytes(kind.Resources.MemoryBytes))
		}
		return r.WarmUp, nil
	}
	return nil, fmt.Errorf("image %s is not a built-in image of this server any more", kind.Digest)
}
