package umounter

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"gvisor.dev/gvisor/runsc/specutils"
)

// Every box of the other tests ends at its start unless /proc is gone afterwards. Here the program must not succeed
// without having detached anything.
func TestProgramFails(t *testing.T) {
	own := specutils.ExePath
	t.Cleanup(func() { specutils.ExePath = own })
	Register()
	if runtime.GOARCH != "amd64" {
		if specutils.ExePath != own {
			t.Errorf("gVisor's helper is %s, want its own", specutils.ExePath)
		}
		return
	}
	if specutils.ExePath == own {
		t.Fatal("gVisor uses its own executable")
	}
	for name, sent := range map[string]string{"nobodyAsks": "", "notAllowed": "x"} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := w.WriteString(sent); err != nil {
				t.Fatal(err)
			}
			w.Close()
			cmd := exec.Command(specutils.ExePath, "umount", "--sync-fd=3", "/proc")
			cmd.ExtraFiles = []*os.File{r}
			cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{
				// In a user namespace of its own, it may not detach what the host has mounted.
				Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			}
			err = cmd.Run()
			if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != 1 {
				t.Errorf("the program ended with %v, want status 1", err)
			}
			if _, err := os.Stat("/proc/self"); err != nil {
				t.Errorf("it has removed the /proc of this test: %v", err)
			}
		})
	}
}
