package agent

import (
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs is clone_args of clone3.
type cloneArgs struct {
	flags      uint64
	_          [3]uint64
	exitSignal uint64
	_          [3]uint64
}

// step is a system call of a child.
type step struct {
	number uintptr
	args   [3]uintptr
}

// vfork makes a child by the system call number, clone3, with the arguments clone. The child makes the system calls from steps to
// last; the last call executes a program. When a call fails, the child stores the error in failure and ends. The caller stands
// still until the program is executed or the child has ended.
func vfork(number uintptr, clone *cloneArgs, steps, last *step, failure *uintptr) (pid, errno uintptr)

// raised is whether Go's runtime has raised the limit of open files for itself, which only [syscall.ForkExec]
// can undo for a child. It raises the limit to one less than the maximum.
var raised = func() bool {
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur+1 == limit.Max
}()

// forkExec is [syscall.ForkExec] of a program with at least one file, with a fifth of the system calls. A system call takes 10 µs in
// gVisor: Go's child restores the handlers of all signals one by one, and Go's parent has a pipe for the child's error.
// Of attr.Sys it uses Setsid, Setctty and Credential.
func forkExec(program string, argv []string, attr *syscall.ProcAttr) (int, error) {
	if raised || slices.Min(attr.Files) < uintptr(len(attr.Files)) { // a file would be in the way of another
		return syscall.ForkExec(program, argv, attr)
	}
	c, err := newChildPlan(program, argv, attr)
	if err != nil {
		return 0, err
	}
	syscall.ForkLock.Lock()
	pid, errno := vfork(unix.SYS_CLONE3, &c.clone, &c.steps[0], &c.steps[len(c.steps)-1], &c.failure)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(c)
	switch {
	case errno == uintptr(unix.ENOSYS), errno == uintptr(unix.EINVAL): // before Linux 5.5, or forbidden by a filter
		return syscall.ForkExec(program, argv, attr)
	case errno != 0:
		return 0, syscall.Errno(errno)
	case c.failure != 0:
		for {
			if _, err := unix.Wait4(int(pid), nil, 0, nil); err != unix.EINTR {
				return 0, syscall.Errno(c.failure)
			}
		}
	}
	return int(pid), nil
}

// childPlan has everything that a child reads. It is on the heap, where everything stays in its place.
type childPlan struct {
	clone        cloneArgs
	steps        []step
	failure      uintptr // the error of the step that failed
	program, dir *byte
	argv, env    []*byte
	groups       []uint32
}

func newChildPlan(program string, argv []string, attr *syscall.ProcAttr) (c *childPlan, err error) {
	c = &childPlan{clone: cloneArgs{
		flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD),
	}}
	if c.program, err = unix.BytePtrFromString(program); err != nil {
		return nil, err
	}
	if c.dir, err = unix.BytePtrFromString(attr.Dir); err != nil {
		return nil, err
	}
	if c.argv, err = syscall.SlicePtrFromStrings(argv); err != nil {
		return nil, err
	}
	if c.env, err = syscall.SlicePtrFromStrings(attr.Env); err != nil {
		return nil, err
	}
	add := func(number uintptr, args ...uintptr) {
		s := step{number: number}
		copy(s.args[:], args)
		c.steps = append(c.steps, s)
	}
	// In the order of [syscall.ForkExec].
	if attr.Sys.Setsid {
		add(unix.SYS_SETSID)
	}
	if cred := attr.Sys.Credential; cred != nil {
		c.groups = cred.Groups
		add(unix.SYS_SETGROUPS, uintptr(len(c.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(c.groups))))
		add(unix.SYS_SETGID, uintptr(cred.Gid))
		add(unix.SYS_SETUID, uintptr(cred.Uid))
	}
	if attr.Dir != "" {
		add(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)))
	}
	for to, from := range attr.Files {
		add(unix.SYS_DUP3, from, uintptr(to), 0)
	}
	if attr.Sys.Setctty {
		add(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1)
	}
	add(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.program)), uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.env[0])))
	return c, nil
}
