package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// sameDockerfile uses only features that Docker's classic builder also supports.
const sameDockerfile = `FROM base:1 AS tools
WORKDIR /make
COPY src/ ./src/
COPY src/a.txt src/b.txt renamed/
RUN mkdir -p out/deep && cat src/a.txt src/b.txt > out/deep/both && ln -s deep/both out/link && chmod 4755 out/deep/both && ln out/deep/both out/hard
RUN mkdir -m 1777 out/sticky && chown 12:34 out/deep && mkfifo out/pipe
FROM base:1
ARG NAME=nobody
ENV DIR=/srv/app TEXT="hello $NAME"
WORKDIR $DIR
COPY --from=tools /make/out ./out
COPY --from=tools --chown=7:8 /make/src /srv/owned
COPY --from=tools --chown=crew:crew /make/renamed/a.txt /srv/named
ADD plain.tar /unpacked/
ADD packed.tar.gz ./packed
ADD src/a.txt /added/
COPY *.cfg conf/
COPY src/a.txt /etc/replaced
COPY src/b.txt /by-link/new
COPY bin/run.sh /usr/local/bin/
RUN mkdir -m 1777 /srv/all && echo "$TEXT" > greeting && rm /etc/removed && rm -r /etc/gone && mkdir /etc/gone && echo new > /etc/gone/new
USER 1000:1001
RUN id -u > /srv/all/uid && pwd > /srv/all/pwd && echo "$DIR" > /srv/all/dir
COPY . /ctx/
ENTRYPOINT ["/bin/sh"]
CMD ["-c", "cat greeting"]
`

// TestSameFilesAsDocker compares the results of Docker's own tools and of our builder for a
// Dockerfile: names, kinds, modes, owners, link targets, sizes and contents.
func TestSameFilesAsDocker(t *testing.T) {
	if os.Getenv("MODBOX_TEST_DOCKER") != "1" {
		t.Skip("needs Docker: set MODBOX_TEST_DOCKER=1")
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	writeBase(t, base)
	dir := t.TempDir()
	writeSameContext(t, dir)

	docker := startDocker(t)
	docker.run(t, "import", base, "base:1")
	docker.run(t, "build", "--network=none", "--build-arg", "NAME=you", "-t", "same:1", dir)
	id := strings.TrimSpace(docker.run(t, "create", "same:1"))
	theirs := filesOfTar(t, strings.NewReader(docker.run(t, "export", id)))

	s := testserver.Start(t)
	baseDir := t.TempDir()
	if err := os.Rename(base, filepath.Join(baseDir, "base.tar")); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, baseDir, map[string]string{"Dockerfile": "FROM scratch\nADD base.tar /\n"})
	for _, args := range [][]string{{"-t", "base:1", baseDir}, {"--build-arg", "NAME=you", "-t", "same:1", dir}} {
		if _, said, err := runBuild(t, s, args...); err != nil {
			t.Fatalf("modbox build %v: %v\n%s", args, err, said)
		}
	}
	sb := s.MustCreate(client.CreateOptions{Image: "same:1"})
	out, said, code := run(t, s, "", "exec", "--user", "0:0", sb.ID, "--", "sh", "-c",
		`cd /; for f in *; do case $f in dev|proc|sys) ;; *) set -- "$@" "$f";; esac; done; exec tar -cf - "$@"`)
	if code != 0 {
		t.Fatalf("tar in the sandbox: %d\n%s", code, said)
	}
	ours := filesOfTar(t, strings.NewReader(out))
	if len(theirs) < 60 {
		t.Errorf("Docker's image has %d files only", len(theirs))
	}
	if d := cmp.Diff(theirs, ours); d != "" {
		t.Errorf("files that differ (-Docker +Modbox):\n%s", d)
	}
}

// writeBase writes a small system as a tar.
func writeBase(t *testing.T, name string) {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("the Debian package busybox-static is not installed: %v", err)
	}
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	add := func(h tar.Header, content string) {
		t.Helper()
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin/", "dev/", "etc/", "etc/gone/", "home/", "proc/", "root/", "srv/", "sys/", "usr/", "usr/local/", "usr/local/bin/", "real/", "var/", "run/"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, "")
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, "")
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, string(program))
	for _, tool := range []string{"sh", "cat", "chmod", "chown", "id", "ln", "ls", "mkdir", "mkfifo", "rm", "tar", "echo", "pwd"} {
		add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + tool, Linkname: "busybox", Mode: 0o777}, "")
	}
	add(tar.Header{Typeflag: tar.TypeSymlink, Name: "by-link", Linkname: "/real", Mode: 0o777}, "")
	for file, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\ncrew:x:4321:4321::/home:/bin/sh\n", "etc/group": "root:x:0:\ncrew:x:4321:\n",
		"etc/removed": "gone soon", "etc/replaced": "as it was", "etc/gone/old": "x",
	} {
		add(tar.Header{Name: file, Mode: 0o640}, content)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// writeSameContext writes what sameDockerfile is built from.
func writeSameContext(t *testing.T, dir string) {
	t.Helper()
	writeFiles(t, dir, map[string]string{
		"Dockerfile": sameDockerfile, ".dockerignore": "**/*.tmp\n!keep.tmp\nignored\n", "src/a.txt": "A\n", "src/b.txt": "B\n", "src/sub/c": "",
		"src/x.tmp": "x", "keep.tmp": "k", "ignored/y": "y", "one.cfg": "1", "two.cfg": "2", "bin/run.sh": "#!/bin/sh\n", "large": strings.Repeat("0123456789", 100_000),
	})
	for name, mode := range map[string]os.FileMode{"src/a.txt": 0o600, "src/b.txt": 0o444, "src/sub": 0o700, "src": 0o750, "one.cfg": 0o644} {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../nowhere/at/all", filepath.Join(dir, "src", "dangling")); err != nil {
		t.Fatal(err)
	}
	var plain, packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	w := tar.NewWriter(io.MultiWriter(&plain, zw))
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o711, Uid: 5, Gid: 6},
		{Name: "d/owned", Mode: 0o640, Uid: 55, Gid: 66, Size: 4}, {Typeflag: tar.TypeSymlink, Name: "d/link", Linkname: "owned", Mode: 0o777, Uid: 55, Gid: 66},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "text"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"plain.tar": plain.String(), "packed.tar.gz": packed.String()})
}

// filesOfTar describes the files of a tar, except files that a container gets when it runs.
func filesOfTar(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	sums := map[string]string{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		name := path.Clean(h.Name)
		top, _, _ := strings.Cut(name, "/")
		switch {
		case name == ".", top == "dev", top == "proc", top == "sys", top == ".dockerenv",
			name == "etc/hosts", name == "etc/hostname", name == "etc/resolv.conf", name == "etc/mtab":
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, tr); err != nil {
			t.Fatal(err)
		}
		what := fmt.Sprintf("%c %04o %d:%d %d %.8x %s", h.Typeflag, h.Mode&0o7777, h.Uid, h.Gid, h.Size, sum.Sum(nil), h.Linkname)
		if h.Typeflag == tar.TypeLink { // which of the names comes first is a matter of the tool
			what = sums[path.Clean(h.Linkname)]
		}
		sums[name], files[name] = what, what
	}
}

// dockerd is Docker, with nothing outside of its directories.
type dockerd struct{ socket string }

// startDocker starts Docker until the test ends.
func startDocker(t *testing.T) *dockerd {
	t.Helper()
	dir, err := os.MkdirTemp("", "mbd") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // for a start that fails; what dockerd leaves is looked at below
	d := &dockerd{socket: filepath.Join(dir, "docker.sock")}
	daemon := exec.Command("dockerd", "--iptables=false", "--bridge=none", "--storage-driver=vfs", "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--cgroup-parent=/"+filepath.Base(dir),
		"--pidfile", filepath.Join(dir, "pid"), "-H", "unix://"+d.socket)
	_, noPlugins := os.Stat("/run/docker") // Docker makes it wherever its own files are
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		t.Fatalf("start dockerd (scripts/install-deps.sh --test installs it): %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(5 * time.Minute):
			t.Error("dockerd does not end")
			_ = daemon.Process.Kill()
			<-ended
		}
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("dockerd said:\n%s", data[max(0, len(data)-4000):])
		}
		// Where mounts are not shared dockerd binds its data to itself, and may leave that.
		_ = syscall.Unmount(filepath.Join(dir, "data"), syscall.MNT_DETACH)
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil || strings.Contains(string(mounts), dir) {
			t.Errorf("dockerd left mounts below %s (%v)", dir, err)
		}
		if err := errors.Join(log.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
		if noPlugins != nil {
			_ = errors.Join(os.Remove("/run/docker/plugins"), os.Remove("/run/docker")) // unless something else is there now
		}
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			groups, _ := filepath.Glob(pattern + filepath.Base(dir)) // the pattern is right
			for _, group := range groups {
				if err := os.Remove(group); err != nil {
					t.Errorf("dockerd left a control group: %v", err)
				}
			}
		}
	})
	for deadline := time.Now().Add(5 * time.Minute); ; {
		if exec.CommandContext(t.Context(), "docker", "-H", "unix://"+d.socket, "version").Run() == nil {
			return d
		}
		select {
		case err := <-ended:
			data, _ := os.ReadFile(log.Name())
			ended <- err
			t.Fatalf("dockerd ended: %v\n%s", err, data)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("dockerd does not answer")
		}
	}
}

// run runs docker and returns what it wrote.
func (d *dockerd) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "docker", append([]string{"-H", "unix://" + d.socket}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=0", "DOCKER_CONFIG="+t.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("docker %s: %v\n%s%s", strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}
