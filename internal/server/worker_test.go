package server

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/driver/fleet"
	"github.com/modbox/modbox/internal/driver/remote"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/internal/store/workerrows"
	"github.com/modbox/modbox/internal/worker"
)

// TestOpenRootfs checks that what is sent to workers has its digest, also if its file is a link to the file of another image.
func TestOpenRootfs(t *testing.T) {
	cfg := config.Config{StateDir: filepath.Join(t.TempDir(), "state")}
	db, images := serverImages(t, cfg)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	committed, err := images.Commit(t.Context(), image.CommitRequest{Name: "test/base", Layer: &layer})
	if err != nil {
		t.Fatal(err)
	}
	staged, err := images.StageBuilt(t.Context(), image.FinishRequest{Base: committed.Digest, Owner: "me", Name: "app", Tag: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	defer staged.Discard()
	built, err := staged.Publish(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := parts{store: db}
	for _, digest := range []string{committed.Digest, built.Digest} {
		found, _ := filepath.Glob(filepath.Join(cfg.StateDir, statedir.ImagesDir, "*", stack.FileName(digest)))
		if len(found) != 1 {
			t.Fatalf("files of %s: %q", digest, found)
		}
		content, err := p.openRootfs(t.Context(), digest, found[0])
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, content); err != nil || "sha256:"+hex.EncodeToString(sum.Sum(nil)) != digest {
			t.Errorf("the content of %s has digest %x, %v", digest, sum.Sum(nil), err)
		}
		if err := content.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWorkersQuota checks that default quotas come from the workers that were not removed, and that set quotas stay.
func TestWorkersQuota(t *testing.T) {
	rows := workerrows.New(storetest.Open(t, filepath.Join(t.TempDir(), "test.db")).DB)
	for i, status := range []worker.Status{worker.Ready, worker.Draining, worker.Gone} {
		name := fmt.Sprint("w", i)
		if err := rows.Save(t.Context(), worker.Record{Identity: worker.Identity{ID: name, Key: name}, Name: name, Status: status, MemoryBytes: 64 << 30, Cores: 8}); err != nil {
			t.Fatal(err)
		}
	}
	d, err := fleet.New(t.Context(), fleet.Config{Rows: rows, Remote: remote.Config{Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, cfg := parts{fleet: d}, config.Default()
	cfg.Quota.Sandboxes = 7
	got := p.workersQuota(cfg)
	want := quota.Limits{
		quota.LimitSandboxes: 7, quota.LimitMemory: 252 << 30, quota.LimitCPU: 16 * 64_000, quota.LimitCreates: 16 * 600,
		quota.LimitDisk: 1 << 40, quota.LimitArchive: 10 << 40, // 128 GiB have 256 sandboxes of 512 MiB, with 2 GiB of disk; promised four times, half for a workspace
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("quota (-want +got):\n%s", diff)
	}
	if promise := p.workersPromise(cfg); promise != (quota.Promise{MemoryBytes: 496 << 30, DiskBytes: 2 << 40}) { // four times 62 GiB, and four times 256 GiB, each
		t.Errorf("promise %+v", promise)
	}
}

// TestRecordJoined checks that the worker of a server of an earlier version is the first of the records, and that its file is used once.
func TestRecordJoined(t *testing.T) {
	dir := t.TempDir()
	rows := workerrows.New(storetest.Open(t, filepath.Join(dir, "test.db")).DB)
	path := filepath.Join(dir, "joined")
	id, key := "worker-"+strings.Repeat("A", 26), strings.Repeat("0", 64)
	for range 2 { // the second may follow a kill before the removal
		if err := os.WriteFile(path, []byte(id+" "+key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // without the file it does nothing
			if err := recordJoined(t.Context(), rows, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := rows.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Identity != (worker.Identity{ID: id, Key: key}) || list[0].Status != worker.Ready || list[0].Name != id {
		t.Errorf("List() = %+v, %v", list, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

// TestSecretDir checks that a server with worker.secret_dir uses the authority there, and makes none.
func TestSecretDir(t *testing.T) {
	mounted := filepath.Join(t.TempDir(), "mounted")
	if _, err := worker.OpenAuthority(mounted); err != nil {
		t.Fatal(err)
	}
	cfg := config.Config{StateDir: filepath.Join(t.TempDir(), "state"), Worker: config.Worker{SecretDir: mounted}}
	if _, err := openAuthority(cfg); err != nil {
		t.Errorf("openAuthority() = %v", err)
	}
	if _, err := os.Stat(cfg.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory was used: %v", err)
	}
	if err := os.Remove(filepath.Join(mounted, worker.TokenFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := openAuthority(cfg); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), mounted) {
		t.Errorf("without a token: %v, want an error with the path", err)
	}
	cfg.Worker.SecretDir = ""
	if _, err := openAuthority(cfg); err != nil {
		t.Errorf("without the setting: %v", err)
	}
}
