// Package loopfs gives a test a small ext4 file system of its own, on a loop device, that
// can be filled and whose power can be cut. It needs root, loop devices and mkfs.ext4.
package loopfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FS is a mounted file system; the end of the test unmounts and removes it.
type FS struct {
	// Dir is where it is mounted.
	Dir string

	t     testing.TB
	image string
	cut   bool // the power was cut since it was mounted
}

// New makes a file system of size bytes, all of them usable, and mounts it; options are further
// options of mkfs.ext4. The test is skipped unless MODBOX_TEST_GVISOR is 1, like tests of
// sandboxes; without root or loop devices it fails, because it would prove nothing.
func New(t testing.TB, size int64, options ...string) *FS {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("needs root and loop devices: set MODBOX_TEST_GVISOR=1 (make test does)")
	}
	// Not in t.TempDir: its removal must come after the unmount, and its name is too long for sockets.
	work, err := os.MkdirTemp("/tmp", "mbxfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(work); err != nil {
			t.Errorf("remove file system image: %v", err)
		}
	})
	f := &FS{t: t, Dir: filepath.Join(work, "fs"), image: filepath.Join(work, "image")}
	if err := os.Mkdir(f.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	image, err := os.Create(f.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(image.Truncate(size), image.Close()); err != nil {
		t.Fatal(err)
	}
	f.run("mkfs.ext4", slices.Concat([]string{"-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"}, options, []string{f.image})...)
	f.Mount()
	t.Cleanup(func() {
		if err := unix.Unmount(f.Dir, 0); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: it is not mounted
			t.Errorf("unmount %s: %v", f.Dir, err)
			_ = unix.Unmount(f.Dir, unix.MNT_DETACH)
		}
	})
	return f
}

// Mount mounts the file system, again after Unmount. After a cut of the power it checks and repairs the file system first, as a machine does that
// starts: a shutdown of ext4 may leave a directory whose block is older than its inode. A test counts files that the repair removes as lost.
func (f *FS) Mount() {
	f.t.Helper()
	if f.cut {
		f.repair()
		f.cut = false
	}
	// Direct, as a disk is: through the page cache, each flush of the device would write
	// all that anything has written to the file system.
	device := strings.TrimSpace(f.run("losetup", "--find", "--show", "--direct-io=on", f.image))
	f.run("mount", device, f.Dir)
	f.run("losetup", "--detach", device) // with the unmount
}

// Unmount unmounts the file system. Nothing may have files of it open, but processes that
// were just killed: the kernel closes their files in its own time.
func (f *FS) Unmount() {
	f.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // polling the kernel
		err := unix.Unmount(f.Dir, 0)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			f.t.Fatalf("unmount %s: %v", f.Dir, err)
		}
	}
}

// repair replays the journal, and repairs what is damaged nevertheless.
func (f *FS) repair() {
	f.t.Helper()
	const changed = 1
	var exit *exec.ExitError
	switch out, err := exec.Command("e2fsck", "-f", "-y", f.image).CombinedOutput(); {
	case err == nil:
	case errors.As(err, &exit) && exit.ExitCode() == changed:
		f.t.Logf("e2fsck after the cut:\n%s", out) // the counts of free blocks alone are reason enough
	default:
		f.t.Fatalf("e2fsck: %v\n%s", err, out)
	}
}

// extShutdown is EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32); noLogFlush drops what the
// journal holds in memory, as a loss of power does.
const (
	extShutdown = 0x8004587d
	noLogFlush  = 2
)

// CutPower drops everything that has not reached the disk and fails every later access,
// until Unmount and Mount.
func (f *FS) CutPower() {
	f.t.Helper()
	dir, err := os.Open(f.Dir)
	if err != nil {
		f.t.Fatal(err)
	}
	defer dir.Close()
	f.cut = true
	flags := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), extShutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		f.t.Fatalf("cut the power of %s: %v", f.Dir, errno)
	}
}

// Free returns the bytes that are free.
func (f *FS) Free() int64 {
	f.t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(f.Dir, &st); err != nil {
		f.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// Fill makes a file at Dir/name that leaves at most left bytes free, and returns what removes it.
func (f *FS) Fill(name string, left int64) (remove func()) {
	f.t.Helper()
	path := filepath.Join(f.Dir, name)
	file, err := os.Create(path)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	// The file's own metadata also needs space: smaller pieces fill the rest.
	for end, piece := int64(0), f.Free(); piece >= 4096; {
		piece = min(piece, f.Free()-left)
		if piece < 4096 {
			break
		}
		switch err := unix.Fallocate(int(file.Fd()), 0, end, piece); {
		case err == nil:
			end += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		default:
			f.t.Fatalf("fill %s: %v", f.Dir, err)
		}
	}
	return func() {
		f.t.Helper()
		if err := os.Remove(path); err != nil {
			f.t.Error(err)
		}
	}
}

func (f *FS) run(name string, args ...string) string {
	f.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		f.t.Fatal(fmt.Errorf("%s %v: %w\n%s", name, args, err, out))
	}
	return string(out)
}
