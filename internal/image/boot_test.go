package image_test

import (
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
)

// busybox makes the entries of a small system: one program with many names.
func busybox(t *testing.T) []entry {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("the Debian package busybox-static is not installed: %v", err)
	}
	entries := []entry{dir("bin", 0o755), file("bin/busybox", string(program), 0o755), dir("tmp", 0o1777), dir("proc", 0o555), dir("dev", 0o755),
		file("etc/passwd", "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/srv:/bin/sh\n", 0o644), file("etc/group", "root:x:0:\napp:x:1000:\n", 0o644)}
	for _, name := range []string{"sh", "cat", "ls", "stat", "id", "pwd", "echo", "ln", "rm", "env", "wc"} {
		entries = append(entries, link(tarLink, "bin/"+name, "bin/busybox"))
	}
	return entries
}

// TestPulledImageRuns boots an image of several layers from a registry with gVisor.
func TestPulledImageRuns(t *testing.T) {
	gvisortest.Need(t)
	reg, s := registrytest.New(t), pullStore(t, t.TempDir())
	small := file("srv/small", "small", 0o640)
	small.Uid, small.Gid = 1000, 1000
	small.PAXRecords = map[string]string{"SCHILY.xattr.user.note": "kept in the layer"}
	home := dir("srv", 0o755)
	home.Uid, home.Gid = 1000, 1000
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{User: "app", WorkingDir: "/srv", Env: []string{"GREETING=hello"}},
		gzipped(t, append(busybox(t), file("srv/gone", "x", 0o644), file("opt/old", "x", 0o644))...),
		gzipped(t, home, file("srv/.wh.gone", "", 0), dir("opt", 0o755), file("opt/.wh..wh..opq", "", 0), file("opt/new", "new", 0o644), small,
			file("opt/zeros", string(make([]byte, 5<<20)), 0o644), link(tarLink, "opt/also", "opt/new"))))
	img, err := s.Pull(t.Context(), ref, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, path, err := s.Resolve(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	img.MemoryBytes = 256 << 20
	checkBoot(t, img, path, []struct{ command, want string }{
		{"id -un; pwd; echo $GREETING", "app\n/srv\nhello"},
		{"ls", "small\n"},
		{"cat small; stat -c %a:%u:%g small", "small640:1000:1000"},
		{"ls /opt", "also\nnew\nzeros\n"},
		{"stat -c %h /bin/busybox /opt/new", "12\n2\n"},
		{"[ $(stat -c %i /opt/new) = $(stat -c %i /opt/also) ] && echo same", "same"},
		{"wc -c /opt/zeros", "5242880"},
		{"echo more >> small && cat small && ln small second && stat -c %h second", "more\n2"},
	})
}
