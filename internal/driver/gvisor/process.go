package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a process of the host, identified by a pidfd so that it is never confused with a later
// process of the same number.
type process struct {
	pid   int
	start uint64 // start time in the kernel's ticks: with pid unique until the host restarts
	fd    *os.File
	child bool // a child of this server, which has to reap it
}

// newProcess takes ownership of a pidfd. The file is non-blocking, so that waiting does not block a
// thread.
func newProcess(pid, pidfd int) (*process, error) {
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	p := &process{pid: pid, fd: os.NewFile(uintptr(pidfd), "pidfd")}
	start, err := startTime(pid)
	if err != nil {
		p.fd.Close()
		return nil, err
	}
	p.start = start
	return p, nil
}

// errNoProcess reports that the process is not running.
var errNoProcess = errors.New("no such process")

// findProcess returns the process with that number and start time, or errNoProcess.
func findProcess(pid int, start uint64) (*process, error) {
	if pid <= 1 {
		return nil, errNoProcess
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, errNoProcess
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	p, err := newProcess(pid, fd)
	if err != nil {
		return nil, errNoProcess // it ended meanwhile
	}
	// The pidfd was opened first: if the times agree now, it is that process.
	if p.start != start || p.exited() {
		p.close()
		return nil, errNoProcess
	}
	return p, nil
}

// startTime returns when a process started.
func startTime(pid int) (uint64, error) {
	_, start, err := parentAndStart(pid)
	return start, err
}

// parentAndStart returns a process's parent and start time.
func parentAndStart(pid int) (parent int, start uint64, err error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// The name, in parentheses, may contain anything; the fields after the last parenthesis are
	// numbers.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	const parentField, startField = 4 - 3, 22 - 3 // the 4th and 22nd in proc(5), which counts from 1; the first two are cut off
	if len(fields) <= startField {
		return 0, 0, fmt.Errorf("process %d: unknown format of stat", pid)
	}
	if parent, err = strconv.Atoi(fields[parentField]); err != nil {
		return 0, 0, fmt.Errorf("process %d: parent: %w", pid, err)
	}
	if start, err = strconv.ParseUint(fields[startField], 10, 64); err != nil {
		return 0, 0, fmt.Errorf("process %d: start: %w", pid, err)
	}
	return parent, start, nil
}

// control calls fn with the pidfd. It does not wait, and fails once p is closed. (os.File.Fd would
// make the file blocking.)
func (p *process) control(fn func(fd int) error) error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = fn(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// exited reports whether the process has ended; a zombie has.
func (p *process) exited() bool {
	gone := false
	_ = p.control(func(fd int) error { gone = readable(fd); return nil })
	return gone
}

// wait returns when the process has ended, or with an error when p was closed.
func (p *process) wait() error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool { return readable(int(fd)) })
}

// readable reports whether a pidfd's process has ended.
func readable(fd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n == 1
}

// reap returns the exit status of an ended child, once; the kernel retains a child that nobody
// reaps as a zombie. It returns false for a process that is not a child.
func (p *process) reap() (unix.WaitStatus, bool) {
	if !p.child {
		return 0, false // another process could have the number by now
	}
	var ws unix.WaitStatus
	pid, err := unix.Wait4(p.pid, &ws, unix.WNOHANG, nil)
	return ws, err == nil && pid == p.pid
}

// kill ends the process. It does nothing when the process has ended.
func (p *process) kill() error {
	err := p.control(func(fd int) error { return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	return nil
}

// killAndWait kills the process and returns once it has ended. When ctx ends first, p cannot be
// used any more.
func (p *process) killAndWait(ctx context.Context) error {
	if err := p.kill(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- p.wait() }()
	select {
	case err := <-done:
		p.reap()
		return err
	case <-ctx.Done():
		p.close()
		<-done
		return fmt.Errorf("process %d does not end: %w", p.pid, context.Cause(ctx))
	}
}

func (p *process) close() { _ = p.fd.Close() }

// bootID changes when the host restarts.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // always there
	return strings.TrimSpace(string(data))
}
