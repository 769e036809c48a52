// Package process has processes of the host: found and killed without ever confusing a process with
// a later process of the same number, and their scores and memory.
package process

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

// Mark identifies a process until the host restarts.
type Mark struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // start time in the kernel's ticks
}

// Process is a process of the host, held by a pidfd.
type Process struct {
	Mark
	fd    *os.File
	child bool // a child of this server, which has to reap it
}

// Child returns a process that this process has just started, and takes ownership of its pidfd. The
// caller reaps it by [Process.Reap] or [Process.KillAndWait]. On an error the child still runs.
func Child(pid, pidfd int) (*Process, error) {
	p, err := open(pid, pidfd)
	if err != nil {
		return nil, err
	}
	p.child = true
	return p, nil
}

// open takes ownership of a pidfd. The file is non-blocking, so that waiting does not block a
// thread.
func open(pid, pidfd int) (*Process, error) {
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	p := &Process{Mark: Mark{PID: pid}, fd: os.NewFile(uintptr(pidfd), "pidfd")}
	_, start, err := ParentAndStart(pid)
	if err != nil {
		p.fd.Close()
		return nil, err
	}
	p.Start = start
	return p, nil
}

// ErrNone reports that the process is not running.
var ErrNone = errors.New("no such process")

// Find returns the running process that m identifies, or [ErrNone]. The caller closes it.
func (m Mark) Find() (*Process, error) {
	if m.PID <= 1 {
		return nil, ErrNone
	}
	fd, err := unix.PidfdOpen(m.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", m.PID, err)
	}
	p, err := open(m.PID, fd)
	if err != nil {
		return nil, ErrNone // it ended meanwhile
	}
	// The pidfd was opened first: if the times agree now, it is that process.
	if p.Start != m.Start || p.Exited() {
		p.Close()
		return nil, ErrNone
	}
	return p, nil
}

// ParentAndStart returns a process's parent, and its start time in the kernel's ticks.
func ParentAndStart(pid int) (parent int, start uint64, err error) {
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
func (p *Process) control(fn func(fd int) error) error {
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

// Exited reports whether the process has ended; a zombie has.
func (p *Process) Exited() bool {
	gone := false
	_ = p.control(func(fd int) error { gone = readable(fd); return nil })
	return gone
}

// Wait returns when the process has ended, or with an error when p was closed.
func (p *Process) Wait() error {
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

// Reap returns the exit status of an ended child, once; the kernel retains a child that nobody
// reaps as a zombie. It returns false for a process that is not a child.
func (p *Process) Reap() (unix.WaitStatus, bool) {
	if !p.child {
		return 0, false // another process could have the number by now
	}
	var ws unix.WaitStatus
	pid, err := unix.Wait4(p.PID, &ws, unix.WNOHANG, nil)
	return ws, err == nil && pid == p.PID
}

// Kill ends the process. It does nothing when the process has ended.
func (p *Process) Kill() error {
	err := p.control(func(fd int) error { return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) })
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return nil
}

// KillAndWait kills the process and returns once it has ended. When ctx ends first, p cannot be
// used any more.
func (p *Process) KillAndWait(ctx context.Context) error {
	if err := p.Kill(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- p.Wait() }()
	select {
	case err := <-done:
		p.Reap()
		return err
	case <-ctx.Done():
		p.Close()
		<-done
		return fmt.Errorf("process %d does not end: %w", p.PID, context.Cause(ctx))
	}
}

// Close releases p, which ends its [Process.Wait]; the process goes on.
func (p *Process) Close() { _ = p.fd.Close() }

// BootID changes when the host restarts.
func BootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // always there
	return strings.TrimSpace(string(data))
}
