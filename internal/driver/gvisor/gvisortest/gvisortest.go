// Package gvisortest provides tests with what a real box needs: the two executables and a small
// root filesystem. Tests with real boxes run only with MODBOX_TEST_GVISOR=1, see [Need].
package gvisortest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
)

// Need skips the test unless MODBOX_TEST_GVISOR=1 enables tests with real boxes.
func Need(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip("runs real boxes: set MODBOX_TEST_GVISOR=1")
	}
}

// Wanted reports whether tests with real boxes are enabled.
func Wanted() bool { return os.Getenv("MODBOX_TEST_GVISOR") == "1" }

// Binaries returns the paths of modbox-sandbox and modbox-agent: the executables named by
// MODBOX_SANDBOX_BIN and MODBOX_AGENT_BIN, and otherwise executables that it builds into dir. Call it once per
// process, from TestMain: linking gVisor takes a while.
func Binaries(dir string) (sandbox, agent string, err error) {
	if sandbox, err = binary(dir, "modbox-sandbox", os.Getenv("MODBOX_SANDBOX_BIN")); err != nil {
		return "", "", err
	}
	agent, err = binary(dir, "modbox-agent", os.Getenv("MODBOX_AGENT_BIN"))
	return sandbox, agent, err
}

func binary(dir, name, given string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	flags := "-s -w"
	if name == "modbox-agent" {
		flags += " -R 0x200000" // as scripts/build.sh, which says why
	}
	return build(filepath.Join(dir, name), "cmd/"+name, flags)
}

// build makes a static executable of a package of this module with flags for the linker.
func build(out, pkg, flags string) (string, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags="+flags, "-o", out, "github.com/modbox/modbox/"+pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
	}
	return out, nil
}

// busybox is the path used by the Debian package busybox-static.
const busybox = "/bin/busybox"

// applets are the commands of the root filesystem, all provided by busybox.
var applets = strings.Fields(`sh ash cat ls cp mv rm mkdir rmdir ln chmod chown dd df du echo env false true
	find grep head tail hostname id kill ps sleep sync touch wc nc wget httpd mount umount su seq yes test
	uname date stat sort tr cut sed awk expr sha256sum md5sum truncate tar gzip readlink whoami ulimit setsid
	nohup timeout usleep vi xargs tty stty printf pwd od hexdump mknod free nproc pidof killall`)

// RootFS writes an EROFS root filesystem with busybox into dir and returns its path. In addition to
// the usual directories it contains:
//
//   - the user "user", 1000:1000
//   - /bin/euid, owned by root and set-user-id, which prints its effective user
func RootFS(dir string) (string, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return "", fmt.Errorf("the Debian package busybox-static is not installed: %w", err)
	}
	helper, err := build(filepath.Join(dir, "euid"), "internal/driver/gvisor/gvisortest/euid", "-s -w")
	if err != nil {
		return "", err
	}
	euid, err := os.ReadFile(helper)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "rootfs.erofs")
	out, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer out.Close()
	b := &builder{w: erofs.Create(out, erofs.WithTempDir(dir))}
	for _, d := range []string{"bin", "dev", "etc", "home", "lib", "proc", "root", "run", "sys", "tmp", "usr", "usr/bin", "var"} {
		b.mkdir("/"+d, 0o755, 0)
	}
	b.mkdir("/home/user", 0o755, 1000)
	b.file("/bin/busybox", program, 0o755)
	for _, name := range applets {
		b.check(b.w.Symlink("busybox", "/bin/"+name))
	}
	b.file("/bin/euid", euid, 0o755|os.ModeSetuid)
	b.file("/etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"), 0o644)
	b.file("/etc/group", []byte("root:x:0:\nuser:x:1000:\n"), 0o644)
	b.check(b.w.Close())
	if b.err != nil {
		return "", fmt.Errorf("write root filesystem: %w", b.err)
	}
	return path, out.Close()
}

// builder remembers the first error.
type builder struct {
	w   *erofs.Writer
	err error
}

func (b *builder) check(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) mkdir(name string, mode os.FileMode, owner int) {
	b.check(b.w.Mkdir(name, mode))
	b.check(b.w.Chown(name, owner, owner))
}

func (b *builder) file(name string, data []byte, mode os.FileMode) {
	f, err := b.w.Create(name)
	if err != nil {
		b.check(err)
		return
	}
	_, err = f.Write(data)
	b.check(err)
	b.check(f.Chmod(mode))
	b.check(f.Close())
}
