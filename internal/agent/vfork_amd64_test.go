package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// forks are Go's way to start a program, and the agent's.
var forks = []func(string, []string, *syscall.ProcAttr) (int, error){syscall.ForkExec, forkExec}

// unraised makes forkExec use vfork, whatever the limit of open files.
func unraised(t *testing.T) {
	before := raised
	raised = false
	t.Cleanup(func() { raised = before })
}

// TestForkExec compares all that a program inherits.
func TestForkExec(t *testing.T) {
	unraised(t)
	for name, sys := range map[string]*syscall.SysProcAttr{
		"plain":   {},
		"session": {Setsid: true},
		"user":    {Setsid: true, Credential: &syscall.Credential{Uid: 1234, Gid: 1235, Groups: []uint32{7, 8}}},
		"groups":  {Credential: &syscall.Credential{Uid: 1234, Gid: 1235, Groups: []uint32{}}},
	} {
		t.Run(name, func(t *testing.T) {
			if sys.Credential != nil && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			var outputs []string
			for _, fork := range forks {
				r, w, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				script := `echo "$0" "$@"; env; pwd; ls /proc/self/fd; grep -E '^(Sig[^Q]|Shd|Uid|Gid|Groups|Cap)' /proc/self/status; [ "$(cut -d' ' -f6 /proc/$$/stat)" = $$ ] && echo leads; echo error >&2; exit 3`
				null, err := os.Open(os.DevNull)
				if err != nil {
					t.Fatal(err)
				}
				defer null.Close()
				pid, err := fork("/bin/sh", []string{"sh", "-c", script, "one", "two words"}, &syscall.ProcAttr{
					Dir: "/usr", Env: []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, Files: []uintptr{null.Fd(), w.Fd(), w.Fd()}, Sys: sys,
				})
				w.Close()
				if err != nil {
					t.Fatal(err)
				}
				out, err := io.ReadAll(r)
				if err != nil {
					t.Fatal(err)
				}
				var status unix.WaitStatus
				if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 3 {
					t.Errorf("Wait4() = %v, status %d", err, status.ExitStatus())
				}
				outputs = append(outputs, string(out))
			}
			if diff := cmp.Diff(outputs[0], outputs[1]); diff != "" {
				t.Errorf("the program sees (-Go, +ours):\n%s", diff)
			}
		})
	}
}

// TestForkExecFails compares the errors, and looks for a child that nobody waits for.
func TestForkExecFails(t *testing.T) {
	unraised(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	for name, mode := range map[string]os.FileMode{script: 0o755, filepath.Join(dir, "plain"): 0o644} {
		if err := os.WriteFile(name, []byte("#!/missing\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		program, dir string
		argv         []string
	}{
		"missing":     {program: "/missing", dir: "/"},
		"interpreter": {program: script, dir: "/"},
		"permission":  {program: filepath.Join(dir, "plain"), dir: "/"},
		"directory":   {program: dir, dir: "/"},
		"cwd":         {program: "/bin/true", dir: "/missing"},
		"zero":        {program: "/bin/true", dir: "/", argv: []string{"a\x00b"}},
		"long":        {program: "/bin/true", dir: "/", argv: []string{string(slices.Repeat([]byte{'x'}, 1<<20))}},
	} {
		t.Run(name, func(t *testing.T) {
			var errs []error
			for _, fork := range forks {
				pid, err := fork(c.program, append([]string{"x"}, c.argv...), &syscall.ProcAttr{
					Dir: c.dir, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{},
				})
				if err == nil {
					t.Fatalf("started %d", pid)
				}
				errs = append(errs, err)
			}
			if !errors.Is(errs[1], errs[0]) {
				t.Errorf("forkExec() = %v, want %v", errs[1], errs[0])
			}
			var info siginfo
			if err := unix.Waitid(unix.P_ALL, 0, &info.raw, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil); err == nil && info.pid() != 0 {
				t.Errorf("%d was not waited for", info.pid())
			}
		})
	}
}
