package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes has the children of this process, the first of a PID namespace. It also reaps the processes whose parents have
// ended, as the first process must. It is safe for concurrent use.
type processes struct {
	logs string // directory for their output

	mu    sync.Mutex
	ended map[int]chan syscall.WaitStatus // by process id; guarded by mu, which is held from each start to its entry
}

func newProcesses(logs string) *processes {
	p := &processes{logs: logs, ended: map[int]chan syscall.WaitStatus{}}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGCHLD)
	go func() {
		for range changed {
			p.reap()
		}
	}()
	return p
}

func (p *processes) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 {
			return
		}
		if ended, ok := p.ended[pid]; ok {
			ended <- status
			delete(p.ended, pid)
		}
	}
}

// start starts a command. Its output must be files.
func (p *processes) start(cmd *exec.Cmd) (ended <-chan syscall.WaitStatus, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := make(chan syscall.WaitStatus, 1)
	p.ended[cmd.Process.Pid] = c
	return c, nil
}

// run runs a program to its end. Its output is in the log of a name.
func (p *processes) run(log, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	ended, err := p.logged(log, cmd)
	if err != nil {
		return err
	}
	if status := <-ended; status != 0 {
		return fmt.Errorf("%q has ended with code %d: %s", cmd.Args, status.ExitStatus(), p.last(log))
	}
	return nil
}

// serve starts a program that must not end. When it does, the error is sent to failed.
func (p *processes) serve(failed chan<- error, name, program string, args ...string) error {
	ended, err := p.logged(name, exec.Command(program, args...))
	if err != nil {
		return err
	}
	go func() {
		status := <-ended
		failed <- fmt.Errorf("%s has ended with code %d: %s", name, status.ExitStatus(), p.last(name))
	}()
	return nil
}

// logged starts a command whose output is added to the log of a name.
func (p *processes) logged(name string, cmd *exec.Cmd) (<-chan syscall.WaitStatus, error) {
	log, err := os.OpenFile(p.path(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return p.start(cmd)
}

func (p *processes) path(name string) string { return filepath.Join(p.logs, name+".log") }

// last returns the end of a log.
func (p *processes) last(name string) string {
	text, _ := os.ReadFile(p.path(name))
	return string(text[max(0, len(text)-2000):])
}
