package diskuse_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/modbox/modbox/internal/diskuse"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// parts are the images, streams and uploads of the workspace "me", and its build cache.
type parts struct {
	images, cache, streams, uploads int64
	err                             error
}

func (p *parts) Owned(ws sandbox.WorkspaceID) (images, cache int64, err error) {
	if ws != "me" {
		return 0, 0, nil
	}
	return p.images, p.cache, p.err
}

func (p *parts) EvictBuildCache(_ context.Context, ws sandbox.WorkspaceID, add int64) (bool, error) {
	if ws != "me" || add > p.cache {
		return false, nil
	}
	p.cache -= add
	return true, nil
}

func (p *parts) StreamBytes(ws sandbox.WorkspaceID) int64 {
	if ws != "me" {
		return 0
	}
	return p.streams
}

func (p *parts) UploadedBytes(ws sandbox.WorkspaceID) int64 {
	if ws != "me" {
		return 0
	}
	return p.uploads
}

func (p *parts) CheckFree(int64) error { return p.err }

func meter(p *parts) *diskuse.Meter {
	return &diskuse.Meter{Images: p, Streams: p, Uploads: p, Disk: p, Log: slog.New(slog.DiscardHandler)}
}

// TestUnrecorded: each kind of bytes of a workspace counts, and no byte of another.
func TestUnrecorded(t *testing.T) {
	p := &parts{images: 1, cache: 2, streams: 4, uploads: 8}
	m := meter(p)
	if got, want := m.Unrecorded("me"), (quota.UnrecordedDisk{Images: 1, BuildCache: 2, Streams: 4, Uploads: 8}); got != want {
		t.Errorf("Unrecorded = %+v, want %+v", got, want)
	}
	if got := m.Unrecorded("other"); got != (quota.UnrecordedDisk{}) {
		t.Errorf("Unrecorded of another workspace = %+v", got)
	}
	if freed, err := m.FreeCache(t.Context(), "me", 2); !freed || err != nil {
		t.Errorf("FreeCache = %v, %v", freed, err)
	}
	m.Uploads = diskuse.Sum{p, nil, p}
	if got := m.Unrecorded("me").Uploads; got != 16 {
		t.Errorf("uploads of two kinds have %d bytes, want 16", got)
	}
	if got := m.Unrecorded("me").BuildCache; got != 0 {
		t.Errorf("build cache of %d bytes after it was freed", got)
	}
}

// TestEvicting: the meter says so until the last eviction has ended.
func TestEvicting(t *testing.T) {
	m := meter(&parts{})
	m.BeginEviction()
	m.BeginEviction()
	m.EndEviction()
	if !m.Evicting() {
		t.Error("Evicting = false during an eviction")
	}
	m.EndEviction()
	if m.Evicting() {
		t.Error("Evicting = true after all evictions")
	}
}

// TestCheckFree: the reason of the disk reaches the caller.
func TestCheckFree(t *testing.T) {
	full := errors.New("full")
	if err := meter(&parts{err: full}).CheckFree(1); !errors.Is(err, full) {
		t.Errorf("CheckFree = %v, want %v", err, full)
	}
}
