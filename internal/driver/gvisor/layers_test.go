package gvisor_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/stack"
	"github.com/modbox/modbox/internal/sandbox"
)

// specOf describes a box with a root filesystem.
func specOf(root string, res sandbox.Resources) driver.Spec {
	spec := newSpec(res)
	spec.RootFS = root
	return spec
}

// shelf is a directory with root filesystems, named by their digests.
type shelf struct {
	t   *testing.T
	dir string
}

// take gives a file its name, and returns its path.
func (s shelf) take(file string) string {
	s.t.Helper()
	digest, _, err := rootfs.Digest(s.t.Context(), file, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	name := filepath.Join(s.dir, stack.FileName(digest))
	if err := os.Rename(file, name); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// base copies the root filesystem of all tests.
func (s shelf) base() string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "base")
	data, err := os.ReadFile(built.rootfs)
	if err == nil {
		err = os.WriteFile(name, data, 0o644)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return s.take(name)
}

// commit lays a layer over a root filesystem: alone, or in a copy. It also returns the number of names.
func (s shelf) commit(base string, layer []byte, alone bool) (string, int64) {
	s.t.Helper()
	return s.commitOver(base, layer, alone, 0)
}

// commitOver is commit, whose layer lies over so many of the lowest root filesystems alone, unless keep is 0.
func (s shelf) commitOver(base string, layer []byte, alone bool, keep int) (string, int64) {
	s.t.Helper()
	below, err := rootfs.OpenStack(base)
	if err != nil {
		s.t.Fatal(err)
	}
	defer below.Close()
	tree := rootfs.NewScratch(s.t.TempDir(), 0).Tree(s.t.Context(), "")
	defer tree.Close()
	count := rootfs.NewScratch(s.t.TempDir(), 0).Tree(s.t.Context(), "")
	defer count.Close()
	if alone {
		f, err := os.Open(base)
		if err != nil {
			s.t.Fatal(err)
		}
		defer f.Close()
		further, err := stack.Read(f)
		if err != nil {
			s.t.Fatal(err)
		}
		own := "sha256:" + strings.TrimSuffix(filepath.Base(base), ".erofs")
		if err := count.Read(below); err != nil {
			s.t.Fatal(err)
		}
		files, err := rewrite(s.t, count)
		if err != nil {
			s.t.Fatal(err)
		}
		tree.Over(rootfs.Base{Stack: below, Digests: append([]string{own}, further...), Files: files, Keep: keep})
	} else if err := tree.Read(below); err != nil {
		s.t.Fatal(err)
	}
	return s.write(tree, layer)
}

// rewrite counts the names in a tree.
func rewrite(t *testing.T, tree *rootfs.Tree) (int64, error) {
	w, err := rootfs.NewWriter(rootfs.Spec{Dir: t.TempDir(), Date: time.Unix(0, 0)}, tree)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	layer, err := w.FinishLayer()
	if err != nil {
		return 0, err
	}
	root, err := w.Finish(t.Context(), layer)
	return root.Files, err
}

func (s shelf) write(tree *rootfs.Tree, layer []byte) (string, int64) {
	s.t.Helper()
	w, err := rootfs.NewWriter(rootfs.Spec{Dir: s.t.TempDir(), Date: time.Unix(0, 0), Limits: rootfs.Limits{Bytes: 1 << 30, Entries: 1 << 20}}, tree)
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Close()
	if err := w.ReadLayer(s.t.Context(), bytes.NewReader(layer), nil); err != nil {
		s.t.Fatal(err)
	}
	done, err := w.FinishLayer()
	if err != nil {
		s.t.Fatal(err)
	}
	root, err := w.Finish(s.t.Context(), done)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.take(root.EROFS), root.Files
}

// layer returns what a box has written.
func (r *rig) written(t *testing.T, id sandbox.ID) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := r.WriteLayer(t.Context(), id, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// look describes all files of a box: kind, mode, owner, size, time, target and content. The number of
// links of a file in a lower layer includes names that upper layers replace, as in the sandbox itself.
// It omits the time of the root, because each boot changes that.
const look = `stat -c '%n %F %a %u:%g' /; find / -xdev -mindepth 1 \( -path /.modbox -o -path /tmp -o -path /dev -o -path /proc -o -path /sys \) -prune -o -print | sort | while read -r f; do
	if [ -d "$f" ] && [ ! -h "$f" ]; then stat -c '%n %F %a %u:%g %Y' "$f"; else stat -c '%n %F %a %u:%g %s %Y %N' "$f"; fi
	if [ -f "$f" ] && [ ! -h "$f" ]; then md5sum < "$f"; fi
done`

// rounds change files in every way that layers record, each over the results of the rounds before.
var rounds = []string{
	`mkdir -p /data/kept/deep /data/gone/a/b /data/again/x /data/moved/in /data/becomes-file/c
	echo one > /data/kept/one; echo two > /data/kept/two; echo deep > /data/kept/deep/file; echo g > /data/gone/a/b/g
	echo old > /data/again/old; echo x > /data/again/x/old; echo m > /data/moved/in/m; echo f > /data/becomes-dir; echo c > /data/becomes-file/c/c
	echo shared > /data/first; ln /data/first /data/second; ln -s kept/one /data/link; ln -s /nowhere /data/dangling
	cp /bin/busybox /data/suid; chmod 4755 /data/suid; chown 1000:1000 /data/kept/two; chmod 2770 /data/kept; chmod 1777 /data
	mkdir -m 700 /data/empty; mkfifo /data/pipe 2>/dev/null || mknod /data/pipe p
	dd if=/dev/zero of=/data/sparse bs=1M seek=8 count=0 2>/dev/null; echo end >> /data/sparse
	touch -d '2001-02-03 04:05:06' /data/kept/one; touch -d '1999-01-01 00:00:00' /data/empty; echo changed >> /etc/passwd; rm /etc/group; rmdir /usr/bin`,
	`rm /data/kept/one; rm -r /data/gone; rm -r /data/again; mkdir /data/again; mkdir /data/again/x; echo new > /data/again/x/new
	mv /data/moved /data/renamed; rm /data/becomes-dir; mkdir /data/becomes-dir; echo in > /data/becomes-dir/in
	rm -r /data/becomes-file; echo now > /data/becomes-file; echo more >> /data/second; chmod 600 /data/kept/deep/file; chown 7:8 /data/link -h
	echo back > /etc/group; mkdir /usr/bin; rm /data/pipe; ln -sf kept/two /data/link; rm -r /data/kept/deep; mkdir /data/kept/deep; truncate -s 3 /data/suid`,
	`echo one again > /data/kept/one; mkdir -p /data/gone/a; echo n > /data/gone/a/n; echo old again > /data/again/x/old; rm -r /data/becomes-dir
	rm /data/becomes-file; mkdir -p /data/becomes-file/c; echo d > /data/becomes-file/c/d; rm /data/first; rm -r /data/renamed/in; rm /etc/passwd
	echo 'root:x:0:0:root:/root:/bin/sh' > /etc/passwd; rm -r /home; mkdir /home`,
}

// TestLayersAreLikeCopies checks that a box over several layers has the same files as a box over a copy
// of everything, after every kind of change.
func TestLayersAreLikeCopies(t *testing.T) {
	r := newRig(t)
	s := shelf{t, t.TempDir()}
	copied := s.base()
	layered := copied
	for i, change := range rounds {
		g := r.start(t, specOf(layered, onDisk))
		g.must(change)
		layer := r.written(t, g.id)
		if err := r.Destroy(t.Context(), g.id); err != nil {
			t.Fatal(err)
		}
		// The same layer over the copy and over the layers.
		var files, counted int64
		copied, files = s.commit(copied, layer, false)
		if layered, counted = s.commit(layered, layer, true); counted != files {
			t.Errorf("round %d: the layers have %d names, want %d", i, counted, files)
		}
		want := r.seen(t, copied)
		same(t, i, "the layers and the copy", r.seen(t, layered), want)
		flat, names := s.commit(layered, emptyLayer, false)
		if names != files {
			t.Errorf("round %d: the flattened layers have %d names, want %d", i, names, files)
		}
		same(t, i, "the flattened layers and the copy", r.seen(t, flat), want)
		merged, names := s.commitOver(layered, emptyLayer, true, 1)
		if names != files {
			t.Errorf("round %d: the merged layers have %d names, want %d", i, names, files)
		}
		same(t, i, "the merged layers and the copy", r.seen(t, merged), want)
		same(t, i, "the archives", s.archive(layered), s.archive(copied))
	}
	if info, err := os.Stat(layered); err != nil || info.Size() > 1<<20 {
		t.Errorf("the last layer: %v, %v, want at most 1 MiB", info.Size(), err)
	}
}

// emptyLayer is a tar without entries.
var emptyLayer = make([]byte, 1024)

// seen returns the files of a new box.
func (r *rig) seen(t *testing.T, root string) string {
	t.Helper()
	g := r.start(t, specOf(root, onDisk))
	defer func() {
		if err := r.Destroy(t.Context(), g.id); err != nil {
			t.Error(err)
		}
	}()
	return g.must(look)
}

// archive returns the files as the server reads them.
func (s shelf) archive(root string) string {
	s.t.Helper()
	r, err := rootfs.Open(root)
	if err != nil {
		s.t.Fatal(err)
	}
	packed, err := r.Archive(s.t.Context(), "/", false)
	if err != nil {
		s.t.Fatal(err)
	}
	defer packed.Close()
	data, err := io.ReadAll(packed)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

func same(t *testing.T, round int, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("round %d: %s differ: %.200q, want %.200q", round, what, a[i], b[i])
			return
		}
	}
	t.Errorf("round %d: %s differ in length: %d, want %d", round, what, len(a), len(b))
}

// TestBoxOfLayers checks that a box over layers has the mounts and the limits of other boxes, and can be
// saved, restored and saved again.
func TestBoxOfLayers(t *testing.T) {
	for name, resources := range map[string]sandbox.Resources{"InMemory": inMemory, "OnDisk": onDisk} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := shelf{t, t.TempDir()}
			root := s.base()
			plain := r.start(t, specOf(root, resources))
			const mounts = `sort /proc/mounts; stat -c '%a %u:%g' / /tmp /proc /dev /.modbox; grep Cap /proc/self/status; df -k / /tmp | awk 'NR>1{print $2, $6}'; ls -A /`
			want := plain.must(mounts)
			plain.must("echo a > /a; chmod 711 /; chown 3:4 /")
			want2 := plain.must(mounts)
			root, _ = s.commit(root, r.written(t, plain.id), true)
			root, _ = s.commit(root, emptyLayer, true)
			g := r.start(t, specOf(root, resources))
			if got := g.must("rm /a; " + mounts); got != want {
				t.Errorf("a box over layers has:\n%s\nwant:\n%s\n(before: %s)", got, want, want2)
			}
			if out, code := g.sh("dd if=/dev/zero of=/full bs=1M count=200"); code == 0 || !strings.Contains(out, "No space left") {
				t.Errorf("writing more than the disk: %d, %q", code, out)
			}
			g.must("rm /full; echo kept > /kept; sleep 1000 & echo $! > /pid; rm /etc/group")
			dir := filepath.Join(t.TempDir(), "saved")
			if err := r.Checkpoint(t.Context(), g.id, dir, driver.CheckpointOptions{Stop: true, Layer: true}); err != nil {
				t.Fatal(err)
			}
			if err := r.Destroy(t.Context(), g.id); err != nil {
				t.Fatal(err)
			}
			spec := specOf(root, resources)
			h, err := r.Restore(t.Context(), spec, dir)
			if err != nil {
				t.Fatal(err)
			}
			g = r.connect(t, spec.ID, h)
			g.must("kill -0 $(cat /pid); test ! -e /etc/group; test ! -e /a; grep -q kept /kept; echo more > /more")
			dir = filepath.Join(t.TempDir(), "again")
			if err := r.Checkpoint(t.Context(), g.id, dir, driver.CheckpointOptions{}); err != nil {
				t.Fatal(err)
			}
			root, _ = s.commit(root, r.written(t, g.id), true)
			if got := r.start(t, specOf(root, resources)).must("cat /kept /more; ls /a /etc/group 2>&1 | wc -l"); got != "kept\nmore\n2" {
				t.Errorf("the layer of the restored box: %q", got)
			}
			spec = specOf(s.base(), resources)
			if _, err := r.Restore(t.Context(), spec, dir); sandbox.CodeOf(err) != sandbox.Invalid {
				t.Errorf("restore over another root filesystem: %v", err)
			}
		})
	}
}

// TestLayersWithTheNameOfAFrame checks that a box boots whatever names the layers have, and leaves none.
func TestLayersWithTheNameOfAFrame(t *testing.T) {
	r := newRig(t)
	s := shelf{t, t.TempDir()}
	g := r.start(t, specOf(s.base(), onDisk))
	g.must("mkdir /.modbox-frame; echo kept > /.modbox-frame/kept; echo file > /.modbox-frame-")
	root, _ := s.commit(s.base(), r.written(t, g.id), true)
	g = r.start(t, specOf(root, onDisk))
	if got, want := g.must(capabilities), r.start(t, specOf(s.base(), onDisk)).must(capabilities); got != want {
		t.Errorf("capabilities in the box:\n%s\nwant, as in a box without layers:\n%s", got, want)
	}
	if got := g.must("cat /.modbox-frame/kept /.modbox-frame-; ls -A / | grep -c modbox-frame"); got != "kept\nfile\n2" {
		t.Errorf("the box has %q", got)
	}
}

// TestTidyKeepsTheFramesThatAreNeeded restores a checkpoint with a frame of another version.
func TestTidyKeepsTheFramesThatAreNeeded(t *testing.T) {
	r := newRig(t)
	s := shelf{t, t.TempDir()}
	g := r.start(t, specOf(s.base(), onDisk))
	g.must("echo a > /a")
	root, _ := s.commit(s.base(), r.written(t, g.id), true)
	spec := specOf(root, onDisk)
	g = r.start(t, spec)
	dir := r.checkpoint(t, g, driver.CheckpointOptions{Stop: true})
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	m, err := saved.ReadManifest(dir)
	if err != nil || m.Frame == "" {
		t.Fatalf("the checkpoint names the frame %q, %v", m.Frame, err)
	}
	agents := filepath.Join(r.cfg.StateDir, "agents")
	const other = "frame-other.erofs"
	if err := os.Link(filepath.Join(agents, m.Frame), filepath.Join(agents, other)); err != nil {
		t.Fatal(err)
	}
	m.Frame = other
	if err := saved.WriteManifest(dir, m); err != nil {
		t.Fatal(err)
	}
	if err := r.Tidy([]string{dir}); err != nil {
		t.Fatal(err)
	}
	g = r.restore(t, spec, dir)
	g.must("grep -q a /a")
	if err := r.Destroy(t.Context(), g.id); err != nil {
		t.Fatal(err)
	}
	if err := r.Tidy(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Restore(t.Context(), spec, dir); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("restore without the frame: %v", err)
	}
}

// TestPlainTmp checks that files in /tmp belong to the layer, whether /tmp of the root was empty or not.
func TestPlainTmp(t *testing.T) {
	for name, resources := range map[string]sandbox.Resources{"InMemory": inMemory, "OnDisk": onDisk} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := shelf{t, t.TempDir()}
			root := s.base()
			for _, step := range []struct{ command, want string }{
				{"ls /tmp; echo a > /tmp/a; mkdir /tmp/d; echo b > /tmp/d/b; stat -c %a /tmp", "755"},
				{"ls /tmp; rm -r /tmp/*; grep -c ' /tmp ' /proc/mounts", "a\nd\n0"},
				{"ls /tmp; echo c > /tmp/c; stat -c %a /tmp", "755"},
				{"ls /tmp", "c"},
			} {
				spec := specOf(root, resources)
				spec.PlainTmp = true
				g := r.start(t, spec)
				if got, _ := g.sh(step.command); got != step.want {
					t.Errorf("%s: %q, want %q", step.command, got, step.want)
				}
				written := r.written(t, g.id)
				if err := r.Destroy(t.Context(), g.id); err != nil {
					t.Fatal(err)
				}
				root, _ = s.commit(root, written, true)
			}
		})
	}
}
