package recipe_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/sandbox"
)

// programs puts shell scripts by those names first in PATH, and nothing else
// that Debian looks for. Each begins with variables, because tools get few of the
// environment's.
func programs(t *testing.T, variables, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	head := "#!/bin/sh\n"
	for name, value := range variables {
		head += fmt.Sprintf("%s='%s'\n", name, value)
	}
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(head+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "cat", "cp", "sleep"} { // for the scripts
		if err := os.Symlink("/bin/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// npmArchive is a package as npm packs it, and its integrity value.
func npmArchive(t *testing.T) (name, integrity string) {
	t.Helper()
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	_, err := gz.Write(tarball(t,
		file("package/bin/tool", "tool", 0o755), file("package/lib/a.js", "a", 0o600), file("package/docs/d.md", "d", 0o644),
		file("package/README.md", "r", 0o644), file("package/../../escape", "e", 0o644), link(tar.TypeSymlink, "package/lib/s", "/etc")))
	if err := errors.Join(err, gz.Close()); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), "p-1.2.3.tgz")
	if err := os.WriteFile(name, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(buf.Bytes())
	return name, "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

func debianRecipe(t *testing.T, integrity string) *recipe.Recipe {
	t.Helper()
	r, err := recipe.Load(fstest.MapFS{
		"recipe.yaml": {Data: fmt.Appendf(nil, `
name: a/b
date: 2025-01-02
debian: {suite: trixie, packages: [bash, curl], exclude_files: [/usr/share/x/*]}
npm:
  - package: p
    version: 1.2.3
    integrity: %s
    files: {bin/tool: /usr/local/bin/tool, "": /usr/lib/p, lib: /usr/lib/only}
    exclude: [docs]
  - {package: q, version: 1.0.0, integrity: sha512-x, arch: other, files: {"": /q}}
pip:
  - {package: six, version: 1.17.0, sha256: [4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274]}
  - {package: other, version: "1", sha256: [4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274], arch: other}
setup: s.sh
memory: 64Mi
`, integrity)},
		"s.sh":           {Data: []byte("true\n")},
		"files/etc/motd": {Data: []byte("hello")},
		"build/extra":    {Data: []byte("extra")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bootstrap runs Debian.Bootstrap in a new directory.
func bootstrap(ctx context.Context, t *testing.T, r *recipe.Recipe, w io.Writer) (dir string, events []phase.Event, err error) {
	t.Helper()
	dir = t.TempDir()
	err = recipe.Debian{Mirror: "http://mirror.test/debian"}.Bootstrap(ctx, recipe.Job{
		Recipe: r, Dir: dir, Progress: func(e phase.Event) { events = append(events, e) },
	}, w)
	return dir, events, err
}

const fakeNPM = `while [ "$1" != --pack-destination ]; do shift; done; cp "$ARCHIVE" "$2"`

func TestDebian(t *testing.T) {
	archive, integrity := npmArchive(t)
	args := filepath.Join(t.TempDir(), "args")
	programs(t, map[string]string{"ARCHIVE": archive, "ARGS": args}, map[string]string{"npm": fakeNPM, "mmdebstrap": `
for a in "$@"; do echo "$a"; done >"$ARGS"
echo "$SOURCE_DATE_EPOCH" >>"$ARGS"
cat >&2 <<'END'
I: running apt-get update...
0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.
Get:1 http://mirror.test/debian trixie/main amd64 bash amd64 5.2.37-2 [1501 kB]
Setting up bash (5.2.37-2) ...
Setting up curl (8.14.1) ...
I: running --customize-hook in shell: sh -c 'x' exec /tmp/y
I: creating tarball...
END
echo the tar`})

	var out bytes.Buffer
	dir, events, err := bootstrap(t.Context(), t, debianRecipe(t, integrity), &out)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != "the tar\n" {
		t.Errorf("output = %q, want what mmdebstrap wrote", out.String())
	}
	wantEvents := []phase.Event{
		{Phase: phase.Fetching, Message: "p 1.2.3"},
		{Phase: phase.Downloading, Done: 1, Total: 2, Message: "bash 5.2.37-2"},
		{Phase: phase.Installing, Done: 1, Total: 2, Message: "bash"},
		{Phase: phase.Installing, Done: 2, Total: 2, Message: "curl"},
		{Phase: phase.Setup, Message: "running the recipe's script"},
		{Phase: phase.Writing, Message: "packing files"},
	}
	if d := cmp.Diff(wantEvents, events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	data, err := os.ReadFile(args)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--include=bash,curl\n", "--dpkgopt=path-exclude=/usr/share/x/*\n", "--customize-hook=tar-in overlay.tar /\n",
		"/.pip.sh'\n--customize-hook=chroot \"$1\" env BUILD=/.modbox-build sh -eu '/.modbox-build/.setup-0.sh'\n", "MMDEBSTRAP_APT_CONFIG", "\ntrixie\n-\nhttp://mirror.test/debian\n1735776000\n",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("mmdebstrap's arguments and date have no %q:\n%s", want, data)
		}
	}
	checkOverlay(t, filepath.Join(dir, "overlay.tar"))
}

// checkOverlay compares names, modes and contents of the staged files.
func checkOverlay(t *testing.T, name string) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]string{}
	for tr := tar.NewReader(f); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		got[hdr.Name] = fmt.Sprintf("%o %d:%d %s", hdr.Mode, hdr.Uid, hdr.Gid, data)
	}
	if finish := got[".modbox-build/.finish.sh"]; !strings.Contains(finish, "dpkg-query") {
		t.Errorf("finish script = %q", finish)
	}
	delete(got, ".modbox-build/.finish.sh")
	if pip := got[".modbox-build/.pip.sh"]; !strings.Contains(pip, "--require-hashes") || !strings.Contains(pip, "$BUILD/.pip-requirements") {
		t.Errorf("script for Python packages = %q", pip)
	}
	delete(got, ".modbox-build/.pip.sh")
	want := map[string]string{
		"etc/motd":                        "644 0:0 hello",
		".modbox-build/extra":             "644 0:0 extra",
		".modbox-build/.setup-0.sh":       "755 0:0 true\n",
		".modbox-build/.npm-packages":     "644 0:0 npm\tp\t1.2.3\tall\npip\tsix\t1.17.0\tall\n",
		".modbox-build/.pip-requirements": "644 0:0 six==1.17.0 --hash=sha256:4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274\n",
		"usr/local/bin/tool":              "755 0:0 tool",
		"usr/lib/only/a.js":               "644 0:0 a",
		"usr/lib/p/README.md":             "644 0:0 r",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("overlay (-want +got):\n%s", d)
	}
}

// TestDebianLeavesTheHostsMountsAlone: mmdebstrap has mounts of its own, and nothing that
// it unmounts is unmounted on the host.
func TestDebianLeavesTheHostsMountsAlone(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can share its mounts with mmdebstrap")
	}
	archive, integrity := npmArchive(t)
	mounts := filepath.Join(t.TempDir(), "mounts")
	programs(t, map[string]string{"ARCHIVE": archive, "MOUNTS": mounts}, map[string]string{"npm": fakeNPM, "mmdebstrap": `
cat /proc/self/mountinfo >"$MOUNTS"
exit 1`})
	_, _, err := bootstrap(t.Context(), t, debianRecipe(t, integrity), io.Discard)
	wantCode(t, "Bootstrap", err, sandbox.Unavailable)
	its, err := os.ReadFile(mounts)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if id, own, _ := strings.Cut(string(its), " "); strings.HasPrefix(string(ours), id+" ") || !strings.Contains(own, " / ") {
		t.Errorf("mmdebstrap has the mounts of the host:\n%s", its)
	}
	if strings.Contains(string(its), " shared:") {
		t.Errorf("mounts of mmdebstrap are shared with the host:\n%s", its)
	}
}

func TestDebianErrors(t *testing.T) {
	archive, integrity := npmArchive(t)
	const mmdebstrap = "echo E: the mirror is away >&2; exit 1"
	for name, c := range map[string]struct {
		scripts   map[string]string
		integrity string
		code      sandbox.Code
		says      string
	}{
		"no_mmdebstrap":  {nil, integrity, sandbox.Unavailable, "install the Debian package mmdebstrap"},
		"no_npm":         {map[string]string{"mmdebstrap": mmdebstrap}, integrity, sandbox.Unavailable, "install the Debian package npm"},
		"npm_fails":      {map[string]string{"mmdebstrap": mmdebstrap, "npm": "echo no such thing >&2; exit 1"}, integrity, sandbox.Unavailable, "p@1.2.3: no such thing"},
		"npm_nothing":    {map[string]string{"mmdebstrap": mmdebstrap, "npm": ""}, integrity, sandbox.Internal, "0 archives"},
		"other_content":  {map[string]string{"mmdebstrap": mmdebstrap, "npm": fakeNPM}, "sha512-AAAA", sandbox.Internal, "the recipe says sha512-AAAA"},
		"mmdebstrap_not": {map[string]string{"mmdebstrap": mmdebstrap, "npm": fakeNPM}, integrity, sandbox.Unavailable, "E: the mirror is away"},
	} {
		t.Run(name, func(t *testing.T) {
			programs(t, map[string]string{"ARCHIVE": archive}, c.scripts)
			_, _, err := bootstrap(t.Context(), t, debianRecipe(t, c.integrity), io.Discard)
			wantCode(t, "Bootstrap", err, c.code)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error %q does not say %q", err, c.says)
			}
		})
	}
}

// TestDebianStops: when its context ends, mmdebstrap gets a SIGTERM and may clean up.
func TestDebianStops(t *testing.T) {
	archive, integrity := npmArchive(t)
	cleaned := filepath.Join(t.TempDir(), "cleaned")
	programs(t, map[string]string{"ARCHIVE": archive, "CLEANED": cleaned}, map[string]string{"npm": fakeNPM, "mmdebstrap": `
trap 'echo yes >"$CLEANED"; exit 1' TERM
echo "Setting up bash (1) ..." >&2
while :; do sleep 0.1; done`})
	ctx, cancel := context.WithCancel(t.Context())
	err := recipe.Debian{}.Bootstrap(ctx, recipe.Job{Recipe: debianRecipe(t, integrity), Dir: t.TempDir(), Progress: func(e phase.Event) {
		if e.Phase == phase.Installing {
			cancel()
		}
	}}, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Bootstrap() error = %v, want %v", err, context.Canceled)
	}
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("mmdebstrap did not get to clean up: %v", err)
	}
}

// buildsFor, when set, makes the test binary a process that bootstraps with the
// recipe whose npm package has this integrity value, until it is killed.
const buildsFor = "IMAGE_TEST_BUILDS_FOR"

// TestDebianDiesWithItsServer kills a process that bootstraps; what mmdebstrap
// started must be told, although mmdebstrap itself does not tell it.
func TestDebianDiesWithItsServer(t *testing.T) {
	if integrity := os.Getenv(buildsFor); integrity != "" {
		_, _, err := bootstrap(t.Context(), t, debianRecipe(t, integrity), io.Discard)
		t.Fatalf("the bootstrap ended: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	archive, integrity := npmArchive(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	programs(t, map[string]string{"ARCHIVE": archive, "PIPE": pipe}, map[string]string{"npm": fakeNPM, "mmdebstrap": `
trap : TERM
export GROUP=$PPID
sh -c 'trap "echo told; exit" TERM; echo $GROUP; while :; do sleep 0.1; done' >"$PIPE" 2>/dev/null </dev/null`})
	cmd := exec.Command(self, "-test.run=^TestDebianDiesWithItsServer$")
	cmd.Env = append(os.Environ(), buildsFor+"="+integrity, "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said, err := os.OpenFile(pipe, os.O_RDWR, 0) // read and write: opening does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	if err := said.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	lines.Scan()
	group, err := strconv.Atoi(lines.Text())
	if err != nil {
		t.Fatalf("mmdebstrap's child says %q (%v), want its process group", lines.Text(), lines.Err())
	}
	t.Cleanup(func() { _ = unix.Kill(-group, unix.SIGKILL) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "told" {
		t.Errorf("after its server died mmdebstrap's child says %q (%v), want that it was told", lines.Text(), lines.Err())
	}
}
