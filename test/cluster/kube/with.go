package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// prefix begins the names of the directories and control groups of clusters.
const prefix = "mbkube-"

// with runs a command with a cluster in a directory, and returns the exit code of the command. The nodes have the images in images/*.tar of the directory.
//
// The cluster and the command are in PID, mount and network namespaces of their own ([hub]), and each node in further namespaces
// ([node]). So nothing of it can survive: when the first process of the namespaces ends, the kernel ends all the others, and removes mounts
// and interfaces. It also ends when this process is killed. This process removes the rest, the directory and the control groups; it also does so for
// clusters whose process was killed.
func with(args []string) (code int, err error) {
	if len(args) < 2 || !strings.HasPrefix(filepath.Base(args[0]), prefix) {
		return 2, fmt.Errorf("usage: kube with DIR/%s... CMD...", prefix)
	}
	dir := args[0]
	lock, err := locked(dir)
	if err != nil {
		return 1, err
	}
	defer lock.Close()
	defer func() {
		if code != 0 || err != nil {
			keepLogs(dir)
		}
		err = errors.Join(err, remove(dir))
	}()
	if err := errors.Join(sweep(filepath.Dir(dir)), makeGroups(filepath.Base(dir))); err != nil {
		return 1, err
	}
	// The kernel sends the signal of Pdeathsig when this thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", append([]string{"hub"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err = cmd.Wait()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return max(1, ended.ExitCode()), nil
	}
	return 0, err
}

// locked locks the directory of a cluster.
func locked(dir string) (*os.File, error) {
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// sweep removes what killed processes have left.
func sweep(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "lock")); err != nil {
			continue // another process makes or removes it
		}
		lock, err := locked(dir)
		if err != nil {
			continue // in use
		}
		err = remove(dir)
		_ = lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// remove removes the control groups and the directory of a cluster whose processes have ended.
func remove(dir string) error {
	var errs []error
	for _, hierarchy := range hierarchies() {
		errs = append(errs, removeGroup(filepath.Join(hierarchy, filepath.Base(dir))))
	}
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

func removeGroup(path string) error {
	below, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range below {
		if entry.IsDir() {
			if err := removeGroup(filepath.Join(path, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(path)
}

// hierarchies are the mount points of control groups.
func hierarchies() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}
	}
	controllers, _ := filepath.Glob(filepath.Join(root, "*"))
	return controllers
}

// makeGroups makes the control groups of the nodes.
func makeGroups(name string) error {
	for _, hierarchy := range hierarchies() {
		for n := range nodes {
			dir := hierarchy
			for _, part := range []string{name, nodeName(n)} {
				parent := dir
				dir = filepath.Join(parent, part)
				if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
					return err
				}
				for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // of version 1, where they must be set
					text, err := os.ReadFile(filepath.Join(parent, file))
					if err != nil || len(strings.TrimSpace(string(text))) == 0 {
						continue
					}
					if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// keepLogs keeps the logs of a cluster in the directory that MODBOX_KUBE_LOGS names.
func keepLogs(dir string) {
	kept := os.Getenv("MODBOX_KUBE_LOGS")
	if kept == "" {
		return
	}
	err := errors.Join(os.RemoveAll(kept), os.MkdirAll(filepath.Dir(kept), 0o755))
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(filepath.Join(dir, "logs")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube: the logs are not kept:", err)
		return
	}
	fmt.Fprintln(os.Stderr, "kube: the logs of the cluster are in", kept)
}
