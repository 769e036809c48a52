package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// v1 is a set of hierarchies with a controller each; base maps the usable controllers to the
// directory that contains the groups.
type v1 struct {
	base map[string]string
}

func openV1(h Host, parent, name string) (*v1, Controllers, error) {
	v := &v1{base: map[string]string{}}
	var errs []error
	for _, c := range controllersV1 {
		point, mounted := h.V1[c]
		if !mounted {
			continue
		}
		below := parent
		if below == "" && os.Geteuid() != 0 {
			below = h.Own[c]
		}
		dir := filepath.Join(point, below, name)
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = unix.Access(dir, unix.W_OK)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the %s control group of version 1 cannot be used: %w", c, err))
			continue
		}
		v.base[c] = dir
	}
	_, memory := v.base["memory"]
	_, cpu := v.base["cpu"]
	_, pids := v.base["pids"]
	return v, Controllers{Memory: memory, CPU: cpu, Processes: pids}, errors.Join(errs...)
}

// dir returns the group's directory in a hierarchy; "" when that cannot be used.
func (v *v1) dir(controller, id string) string {
	base, ok := v.base[controller]
	if !ok {
		return ""
	}
	return filepath.Join(base, id)
}

func (v *v1) dirs(id string) []string {
	var dirs []string
	for _, base := range v.parents() {
		dirs = append(dirs, filepath.Join(base, id))
	}
	return dirs
}

func (v *v1) parents() []string {
	var dirs []string
	for _, c := range controllersV1 {
		base, ok := v.base[c]
		if ok && (len(dirs) == 0 || dirs[len(dirs)-1] != base) { // cpu and cpuacct are often one hierarchy
			dirs = append(dirs, base)
		}
	}
	return dirs
}

func (v *v1) limit(id string, l Limits) error {
	if dir := v.dir("memory", id); dir != "" && l.MemoryBytes > 0 {
		// The limit of memory and swap must never be below the limit of memory: for a raise it is
		// written first; for a lowering this first write fails, and the write below succeeds.
		_ = write(dir, "memory.memsw.limit_in_bytes", l.MemoryBytes)
		if err := write(dir, "memory.limit_in_bytes", l.MemoryBytes); err != nil {
			return err
		}
		// Memory and swap together, so that swap does not circumvent the limit. The file is missing
		// where the kernel does not account swap.
		err := write(dir, "memory.memsw.limit_in_bytes", l.MemoryBytes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if dir := v.dir("cpu", id); dir != "" && l.CPUMilli > 0 {
		if err := write(dir, "cpu.cfs_period_us", cpuPeriod); err != nil {
			return err
		}
		if err := write(dir, "cpu.cfs_quota_us", l.CPUMilli*cpuPeriod/1000); err != nil {
			return err
		}
	}
	if dir := v.dir("pids", id); dir != "" && l.Processes > 0 {
		return write(dir, "pids.max", l.Processes)
	}
	return nil
}

// start moves a thread of this process into the group and calls fn there: a child is created in the
// group of the thread that starts it, and a thread that moves itself does not wait for others. The
// thread is not used again.
func (v *v1) start(id string, fn func(*syscall.SysProcAttr) error) error {
	done := make(chan error, 1)
	go v.startOnThread(id, fn, done)
	return <-done
}

func (v *v1) startOnThread(id string, fn func(*syscall.SysProcAttr) error, done chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	if unix.Gettid() == unix.Getpid() {
		// The process's first thread cannot end, so it would stay in the group. While it is
		// occupied here, another goroutine is certain to be on another thread.
		another := make(chan error, 1)
		go v.startOnThread(id, fn, another)
		done <- <-another
		runtime.UnlockOSThread()
		return
	}
	for _, dir := range v.dirs(id) {
		if err := write(dir, "tasks", 0); err != nil {
			done <- fmt.Errorf("enter group %s: %w", id, err)
			return
		}
	}
	done <- fn(&syscall.SysProcAttr{})
}

func (v *v1) usage(id string) (Usage, error) {
	var u Usage
	var errs []error
	read := func(to *int64, n int64, err error) { *to, errs = n, append(errs, err) }
	if dir := v.dir("memory", id); dir != "" {
		var cache int64
		n, err := readInt(dir, "memory.usage_in_bytes")
		read(&u.MemoryBytes, n, err)
		n, err = readKey(dir, "memory.stat", "total_inactive_file")
		read(&cache, n, err)
		u.MemoryBytes = max(0, u.MemoryBytes-cache)
		n, err = readKey(dir, "memory.oom_control", "oom_kill")
		read(&u.OOMKills, n, err)
	}
	if dir := v.dir("cpuacct", id); dir != "" {
		n, err := readInt(dir, "cpuacct.usage")
		read(&u.CPUNanos, n, err)
	}
	if dir := v.dir("pids", id); dir != "" {
		n, err := readInt(dir, "pids.current")
		read(&u.Processes, n, err)
	}
	return u, errors.Join(errs...)
}
