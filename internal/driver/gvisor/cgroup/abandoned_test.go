package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
)

// hierarchies returns the ways to open a parent on this host: in its hierarchies of version 1, and
// in the unified hierarchy, which a hybrid host also has.
func hierarchies(t *testing.T) map[string]func(name string) (*cgroup.Parent, error) {
	t.Helper()
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" {
		t.Skip("changes the host's control groups: set MODBOX_TEST_GVISOR=1")
	}
	host, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(string) (*cgroup.Parent, error){
		"host": func(name string) (*cgroup.Parent, error) { return host.Open("", name) },
	}
	if mount := "/sys/fs/cgroup/unified"; exists(filepath.Join(mount, "cgroup.procs")) {
		ways["unified"] = func(name string) (*cgroup.Parent, error) { return cgroup.OpenUnified(mount, name) }
	}
	return ways
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// tree lists the directories of control groups whose path contains the text.
func tree(t *testing.T, text string) []string {
	t.Helper()
	list := []string{}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // other groups come and go
			return err
		}
		if err == nil && d.IsDir() && strings.Contains(path, text) {
			list = append(list, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestRemoveAbandoned starts a server after three others: a running server, a server that was
// killed, and a server that was killed while a process of a box goes on.
func TestRemoveAbandoned(t *testing.T) {
	for name, open := range hierarchies(t) {
		t.Run(name, func(t *testing.T) {
			base := fmt.Sprintf("modbox-test-%d-%s-", os.Getpid(), name)
			isParent := func(name string) bool { return strings.HasPrefix(name, base) }
			parents := map[string]*cgroup.Parent{}
			for _, name := range []string{"own", "runs", "killed", "boxes"} {
				p, err := open(base + name)
				if err != nil {
					t.Fatal(err)
				}
				parents[name] = p
				t.Cleanup(func() {
					if err := p.Remove(); err != nil {
						t.Error(err)
					}
					p.Close()
				})
				for _, group := range []string{"one", "two"} {
					g := p.Group(group)
					if err := g.Create(cgroup.Limits{}); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := g.Remove(context.Background()); err != nil {
							t.Error(err)
						}
					})
				}
			}
			child := sleepIn(t, parents["boxes"].Group("two"))
			parents["killed"].Close() // as the end of its process does
			parents["boxes"].Close()

			before := tree(t, base)
			if err := parents["own"].RemoveAbandoned(isParent, time.Hour); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before, tree(t, base)); d != "" {
				t.Errorf("groups that are not old enough (-before +after):\n%s", d)
			}
			if err := parents["own"].RemoveAbandoned(isParent, 0); err != nil {
				t.Fatal(err)
			}
			for _, left := range tree(t, base) {
				_, below, _ := strings.Cut(left, base)
				if strings.HasPrefix(below, "killed") || below == "boxes/one" {
					t.Errorf("group %s is left", left)
				}
			}
			for _, kept := range []string{"own/one", "runs/one", "boxes/two"} {
				if len(tree(t, base+kept)) == 0 {
					t.Errorf("group %s was removed", base+kept)
				}
			}
			if err := syscall.Kill(child, 0); err != nil {
				t.Errorf("process of a box whose server was killed: %v, want it alive", err)
			}
			// The server that was killed starts again.
			again, err := open(base + "killed")
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			if err := again.Group("one").Create(cgroup.Limits{}); err != nil {
				t.Errorf("Create after the parent was removed and made again: %v", err)
			}
		})
	}
}

// sleepIn starts a process in a group that lives until the end of the test.
func sleepIn(t *testing.T, g *cgroup.Group) int {
	t.Helper()
	var child *os.Process
	err := g.Start(func(attr *syscall.SysProcAttr) (err error) {
		child, err = os.StartProcess("/bin/sleep", []string{"sleep", strconv.Itoa(600)}, &os.ProcAttr{Sys: attr})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Kill()
		_, _ = child.Wait() // it was killed
	})
	return child.Pid
}
