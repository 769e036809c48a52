package gvisor_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// layer writes a box's layer and returns its files by name.
func (r *rig) layer(t *testing.T, g *guest) (map[string]*tar.Header, map[string]string) {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteLayer(t.Context(), g.id, &out); err != nil {
		t.Fatalf("WriteLayer: %v", err)
	}
	headers, contents := map[string]*tar.Header{}, map[string]string{}
	in := tar.NewReader(&out)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatalf("the layer is no tar: %v", err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		headers[h.Name], contents[h.Name] = h, string(data)
	}
}

func TestLayer(t *testing.T) {
	for name, res := range classes {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := r.start(t, newSpec(res))
			g.must(`
mkdir -p /data/dir && echo content > /data/file && ln /data/file /data/hard && ln -s file /data/soft
chmod 4755 /data/file && chown 1000:1000 /data/dir && mkfifo /data/pipe 2>/dev/null
rm /etc/passwd /etc/group && rm -rf /usr && mkdir /usr && echo new > /usr/new
echo x > /tmp/file; echo x > /dev/shm/file; dd if=/dev/urandom of=/data/big bs=1M count=12 2>/dev/null`)
			sum := g.must("md5sum /data/big | cut -c 1-32")
			headers, contents := r.layer(t, g)
			if contents["data/file"] != "content\n" && contents["data/hard"] != "content\n" {
				t.Errorf("data/file holds %q", contents["data/file"])
			}
			for _, want := range []string{"data/dir/", "data/soft", "etc/.wh.passwd", "etc/.wh.group", "usr/new"} {
				if headers[want] == nil {
					t.Errorf("the layer lacks %s", want)
				}
			}
			if headers["usr/.wh..wh..opq"] == nil && headers["usr/.wh.bin"] == nil {
				t.Error("the layer does not say that /usr is new")
			}
			first := headers["data/file"]
			if first.Typeflag == tar.TypeLink {
				first = headers["data/hard"]
			}
			if first.Mode&0o7777 != 0o4755 {
				t.Errorf("the file has mode %o", first.Mode)
			}
			if links := headers["data/file"].Typeflag + headers["data/hard"].Typeflag; links != tar.TypeReg+tar.TypeLink {
				t.Errorf("the hard links have types %c and %c", headers["data/file"].Typeflag, headers["data/hard"].Typeflag)
			}
			if d := headers["data/dir/"]; d != nil && d.Uid != 1000 {
				t.Errorf("the directory belongs to %d", d.Uid)
			}
			if got := md5sum(contents["data/big"]); got != sum {
				t.Errorf("data/big has sum %s, want %s", got, sum)
			}
			for name := range headers {
				for _, bad := range []string{"tmp/", "dev/", "proc/", "sys/", ".modbox/", "/", "."} {
					if strings.HasPrefix(name, bad) {
						t.Errorf("the layer holds %s", name)
					}
				}
			}
			g.agent.Close()
			g = r.connect(t, g.id, g.handle)
			g.must("cat /data/file")
			r.wantLimit(t, g)
		})
	}
}

// wantLimit checks that the box has its own memory limit again.
func (r *rig) wantLimit(t *testing.T, g *guest) {
	t.Helper()
	if !r.Capabilities().Memory {
		return
	}
	eventually(t, "the memory limit is as it was", func() error {
		if limit, err := r.MemoryLimit(g.id); err != nil || limit != inMemory.MemoryBytes {
			return errors.Join(err, errors.New("it is raised"))
		}
		return nil
	})
}

// A file with a hole is read completely, in memory beyond the box's own: it is part of the layer,
// or is refused, and the box goes on in both cases.
func TestLayerWithHoles(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(onDisk))
	g.must("truncate -s 400M /hole")
	var counted counter
	err := r.WriteLayer(t.Context(), g.id, &counted)
	wantCode(t, "WriteLayer of a hole as large as the disk and more", err, sandbox.TooLarge)
	g.must("echo alive; rm /hole; truncate -s 200M /hole")
	if err := r.WriteLayer(t.Context(), g.id, &counted); err != nil || counted < 200*mib {
		t.Errorf("WriteLayer of a hole = %v, %d bytes", err, counted)
	}
	// A checkpoint has the hole as a hole: what a sandbox has written limits what its checkpoints take of the disk.
	dir := filepath.Join(t.TempDir(), "saved")
	if err := r.Checkpoint(t.Context(), g.id, dir, driver.CheckpointOptions{FilesOnly: true}); err != nil {
		t.Fatalf("Checkpoint: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, saved.LayerName))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() < 200*mib || used > 16*mib {
		t.Errorf("the saved layer has %d bytes and takes %d of the disk, want 200 MiB of which nearly nothing is on the disk", info.Size(), used)
	}
	g.must("echo alive")
	r.wantLimit(t, g)
}

// A layer beside memory, or of a snapshot, omits names of large files that are also linked under a name with .wh. and keeps
// the other files. A checkpoint of the files alone fails instead.
func TestLayerOfLargeFilesWithReservedNames(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(onDisk))
	g.must("echo kept >/kept; for i in 1 2 3 4 5 6 7 8; do head -c 2000000 /dev/zero >/.wh.a$i; ln /.wh.a$i /b$i; head -c 2000000 /dev/zero >/c$i; ln /c$i /.wh.d$i; done")
	dir := t.TempDir()
	err := r.Checkpoint(t.Context(), g.id, filepath.Join(dir, "files"), driver.CheckpointOptions{FilesOnly: true})
	wantCode(t, "Checkpoint of the files alone", err, sandbox.Unsupported)
	if err := r.WriteNames(t.Context(), g.id, io.Discard); !errors.Is(err, driver.ErrOmitted) {
		t.Errorf("WriteNames() = %v, want ErrOmitted", err)
	}
	if _, contents := r.layer(t, g); contents["kept"] != "kept\n" {
		t.Errorf("the file in a snapshot has %q", contents["kept"])
	}
	if err := r.Checkpoint(t.Context(), g.id, filepath.Join(dir, "memory"), driver.CheckpointOptions{Layer: true}); err != nil {
		t.Fatalf("Checkpoint: %v", err)
	}
	saved, err := r.OpenLayer(filepath.Join(dir, "memory"))
	if err != nil {
		t.Fatalf("the files beside the memory: %v", err)
	}
	defer saved.Close()
	if _, err := io.Copy(io.Discard, saved); err != nil {
		t.Errorf("the files beside the memory: %v", err)
	}
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func TestLayerThatFails(t *testing.T) {
	r := newRig(t)
	g := r.start(t, newSpec(onDisk))
	g.must("dd if=/dev/zero of=/big bs=1M count=32 2>/dev/null")
	broken := errors.New("no")
	if err := r.WriteLayer(t.Context(), g.id, writerFunc(func([]byte) (int, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Errorf("WriteLayer into a broken writer = %v", err)
	}
	for after := time.Millisecond; after < 60*time.Millisecond; after *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		err := r.WriteLayer(ctx, g.id, io.Discard)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WriteLayer = %v, want the context's error", err)
		}
	}
	g.must("echo alive")
	r.wantLimit(t, g)
	left, err := filepath.Glob(filepath.Join(r.cfg.StateDir, "layers", "export-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left on the host: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(r.cfg.StateDir, "layers")); err != nil {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// When a server dies while the memory limit of a box is raised, the next server lowers it again.
func TestRaisedMemoryIsTakenBack(t *testing.T) {
	r := newRig(t)
	if !r.Capabilities().Memory {
		t.Skip("this host does not limit memory")
	}
	g := r.start(t, newSpec(inMemory))
	if err := r.Raise(g.id); err != nil {
		t.Fatal(err)
	}
	if limit, err := r.MemoryLimit(g.id); err != nil || limit <= inMemory.MemoryBytes {
		t.Errorf("the raised limit is %d, %v", limit, err)
	}
	r.reopen(t)
	if err := r.Recover(t.Context(), g.id, g.handle); err != nil {
		t.Fatalf("Recover: %v", err)
	}
	r.wantLimit(t, g)
}
