package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/modbox/modbox/internal/kernelapi"
)

// process is the process of an interpreter, the leader of its own session.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended

	// The outputs' write ends: bytes written to an output after the process has written to it
	// arrive after the process's bytes.
	outputs [2]*os.File
	readers sync.WaitGroup

	draining sync.Mutex // one drain at a time

	mu    sync.Mutex
	emit  func(kernelapi.Event) // guarded by mu; receives output, nil while nothing runs
	tail  []byte                // guarded by mu; the last output of a process that is not ready yet
	marks [2]chan struct{}      // guarded by mu; closed when an output's reader arrives at the mark
	mark  []byte                // guarded by mu
}

// tailSize is how much output explains why an interpreter did not start.
const tailSize = 2 << 10

// startProcess starts an interpreter with its outputs read, and the extra files from descriptor 3
// on. Without stdin, it reads /dev/null.
func startProcess(argv []string, spec *kernelapi.ContextSpec, env []string, stdin *os.File, extra ...*os.File) (*process, error) {
	p := &process{ended: make(chan struct{})}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.ExtraFiles = spec.Cwd, extra
	cmd.Env = append(os.Environ(), env...)
	for name, value := range spec.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var reads [2]*os.File
	var err error
	for i := range reads {
		if reads[i], p.outputs[i], err = os.Pipe(); err != nil {
			p.closeFiles()
			return nil, err
		}
	}
	cmd.Stdout, cmd.Stderr = p.outputs[0], p.outputs[1]
	if err := cmd.Start(); err != nil {
		p.closeFiles()
		reads[0].Close()
		reads[1].Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	p.cmd = cmd
	for i, kind := range []kernelapi.EventType{kernelapi.Stdout, kernelapi.Stderr} {
		p.readers.Go(func() {
			defer reads[i].Close()
			p.read(reads[i], i, kind)
		})
	}
	go func() {
		_ = cmd.Wait() // how it ended is in ProcessState
		p.kill()       // its processes end with it
		p.drain()
		p.closeFiles()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) closeFiles() {
	for _, f := range p.outputs {
		if f != nil {
			f.Close()
		}
	}
}

// read passes an output on until all its write ends are closed.
func (p *process) read(r io.Reader, which int, kind kernelapi.EventType) {
	buf := make([]byte, 64<<10)
	var text utf8Text
	var pending []byte // the last bytes read, which may be the beginning of a mark
	for {
		n, err := r.Read(buf)
		p.mu.Lock()
		data := append(pending, buf[:n]...)
		pending = nil
		if p.mark != nil && p.marks[which] != nil {
			if before, after, found := bytes.Cut(data, p.mark); found {
				p.output(kind, text.next(before, true))
				close(p.marks[which])
				p.marks[which] = nil
				data = after
			} else if err == nil {
				cut := len(data) - overlap(data, p.mark)
				data, pending = data[:cut], bytes.Clone(data[cut:])
			}
		}
		p.output(kind, text.next(data, err != nil))
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// overlap returns the length of the longest end of data that begins mark.
func overlap(data, mark []byte) int {
	for n := min(len(data), len(mark)-1); n > 0; n-- {
		if bytes.HasSuffix(data, mark[:n]) {
			return n
		}
	}
	return 0
}

// output passes text on; p.mu is locked.
func (p *process) output(kind kernelapi.EventType, text string) {
	switch {
	case text == "":
	case p.emit != nil:
		p.emit(kernelapi.Event{Type: kind, Text: text})
	default:
		p.tail = append(p.tail, text...)
		p.tail = p.tail[max(0, len(p.tail)-tailSize):]
	}
}

// attach passes output to emit from now on. nil drops it; its last part explains how the process ended.
func (p *process) attach(emit func(kernelapi.Event)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.emit, p.tail = emit, nil
}

// drain returns when all output that was written so far has been passed on.
func (p *process) drain() {
	p.draining.Lock()
	defer p.draining.Unlock()
	var arrived [2]chan struct{}
	mark := append([]byte{0}, randomText()...)
	p.mu.Lock()
	p.mark = mark
	for i := range arrived {
		arrived[i] = make(chan struct{})
		p.marks[i] = arrived[i]
	}
	p.mu.Unlock()
	for i, f := range p.outputs {
		if _, err := f.Write(mark); err != nil {
			return // the process has ended
		}
		<-arrived[i] // the reader reads until the write end is closed, which is after the last drain
	}
}

// signalInterrupt sends SIGINT to the process and to what it runs in the foreground.
func (p *process) signalInterrupt() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT) }

// kill ends the process and its process group.
func (p *process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// pid implements kernel.
func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// how says how the process ended, and its last output.
func (p *process) how() error {
	<-p.ended
	p.mu.Lock()
	defer p.mu.Unlock()
	message := "the interpreter ended: " + p.cmd.ProcessState.String()
	if len(p.tail) > 0 {
		message += ": " + string(bytes.ToValidUTF8(bytes.TrimSpace(p.tail), []byte("\uFFFD")))
	}
	return errors.New(message)
}
