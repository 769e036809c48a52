package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// v2 is the unified hierarchy; base is the directory that contains the groups.
type v2 struct {
	base string
	ok   Controllers
}

// ownLeaf is the group into which the server moves when its own group must contain groups: a group
// of version 2 has either processes or children with controllers.
const ownLeaf = "server"

func openV2(h Host, parent, name string) (*v2, Controllers, error) {
	below := parent
	if below == "" && os.Geteuid() != 0 {
		below = strings.TrimSuffix(h.Own[""], "/"+ownLeaf)
	}
	top := filepath.Join(h.V2, below)
	v := &v2{base: filepath.Join(top, name)}
	if err := os.MkdirAll(v.base, 0o755); err != nil {
		return nil, Controllers{}, fmt.Errorf("control groups of version 2 cannot be used: %w", err)
	}
	// From the top down: a group passes on only the controllers that it was given.
	var errs []error
	for _, dir := range pathDown(h.V2, v.base) {
		if err := passOn(dir); err != nil {
			errs = append(errs, fmt.Errorf("pass controllers on from %s: %w", dir, err))
		}
	}
	passed, err := os.ReadFile(filepath.Join(v.base, "cgroup.subtree_control"))
	if err != nil {
		return nil, Controllers{}, fmt.Errorf("control groups of version 2 cannot be used: %w", err)
	}
	have := strings.Fields(string(passed))
	v.ok = Controllers{
		Memory:    slices.Contains(have, "memory"),
		CPU:       slices.Contains(have, "cpu"),
		Processes: slices.Contains(have, "pids"),
	}
	return v, v.ok, errors.Join(errs...)
}

// pathDown lists the directories from top to dir, both included.
func pathDown(top, dir string) []string {
	var all []string
	for {
		all = append(all, dir)
		if dir == top || dir == "/" || dir == "." {
			slices.Reverse(all)
			return all
		}
		dir = filepath.Dir(dir)
	}
}

// passOn lets the children of dir use the controllers that dir has. Groups above a delegated group
// cannot be written and need not be: errors are only reported.
func passOn(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	already, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	have, passed := strings.Fields(string(data)), strings.Fields(string(already))
	var errs []error
	for _, c := range []string{"memory", "cpu", "pids"} {
		if !slices.Contains(have, c) || slices.Contains(passed, c) {
			continue
		}
		err := write(dir, "cgroup.subtree_control", "+"+c)
		if errors.Is(err, unix.EBUSY) && stepAside(dir) {
			err = write(dir, "cgroup.subtree_control", "+"+c)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stepAside moves this process from dir into a child of dir, if no other process is in dir.
func stepAside(dir string) bool {
	pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(pids)) != fmt.Sprint(os.Getpid()) {
		return false
	}
	leaf := filepath.Join(dir, ownLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return false
	}
	return write(leaf, "cgroup.procs", os.Getpid()) == nil
}

func (v *v2) dirs(id string) []string { return []string{filepath.Join(v.base, id)} }
func (v *v2) parents() []string       { return []string{v.base} }

func (v *v2) limit(id string, l Limits) error {
	dir := filepath.Join(v.base, id)
	if v.ok.Memory && l.MemoryBytes > 0 {
		if err := write(dir, "memory.max", l.MemoryBytes); err != nil {
			return err
		}
		// Otherwise swap would circumvent the limit. The file is missing where the kernel does not
		// account swap.
		if err := write(dir, "memory.swap.max", 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if v.ok.CPU && l.CPUMilli > 0 {
		quota := fmt.Sprintf("%d %d", l.CPUMilli*cpuPeriod/1000, cpuPeriod)
		if err := write(dir, "cpu.max", quota); err != nil {
			return err
		}
	}
	if v.ok.Processes && l.Processes > 0 {
		return write(dir, "pids.max", l.Processes)
	}
	return nil
}

// start makes the kernel create the child in the group.
func (v *v2) start(id string, fn func(*syscall.SysProcAttr) error) error {
	dir, err := os.Open(filepath.Join(v.base, id))
	if err != nil {
		return fmt.Errorf("enter group %s: %w", id, err)
	}
	defer dir.Close()
	return fn(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())})
}

func (v *v2) usage(id string) (Usage, error) {
	dir := filepath.Join(v.base, id)
	var u Usage
	var errs []error
	read := func(to *int64, n int64, err error) { *to, errs = n, append(errs, err) }
	if v.ok.Memory {
		var cache int64
		n, err := readInt(dir, "memory.current")
		read(&u.MemoryBytes, n, err)
		n, err = readKey(dir, "memory.stat", "inactive_file")
		read(&cache, n, err)
		u.MemoryBytes = max(0, u.MemoryBytes-cache)
		n, err = readKey(dir, "memory.events", "oom_kill")
		read(&u.OOMKills, n, err)
	}
	n, err := readKey(dir, "cpu.stat", "usage_usec") // exists without the cpu controller also
	read(&u.CPUNanos, n*1000, err)
	if v.ok.Processes {
		n, err := readInt(dir, "pids.current")
		read(&u.Processes, n, err)
	}
	return u, errors.Join(errs...)
}
