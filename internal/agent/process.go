package agent

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/proctree"
)

const (
	// drainGrace is how long after the exit to wait for output of other processes that still have
	// it open.
	drainGrace = 250 * time.Millisecond
	// defaultGrace is the time between SIGTERM and SIGKILL when a command's time limit has passed.
	defaultGrace = 2 * time.Second
	// killWait is how long the answer to a SIGKILL waits for the end of the process.
	killWait = 2 * time.Second
	// maxPipe bounds what a pipe can contain at the exit: the largest pipe that a process may ask
	// for.
	maxPipe = 1 << 20
	// mainKeep is how much of the main process's output is stored.
	mainKeep = 1 << 20
)

// process is a process that the agent started; it remains in the table long after its end.
type process struct {
	id      string
	command agentapi.Command // without Env, and with an Argv of at most agentapi.ShownArgv bytes
	started time.Time
	out     *output
	child   child
	grace   time.Duration // how long it runs with no client attached; 0: for ever

	terminal *os.File // nil without a TTY

	watch   *watch          // enforces its limits; nil when it has none
	known   proctree.Family // guarded by reaper.mu; its family when its time limit passed
	killing atomic.Bool     // kill the rest of its family when it exits

	collected atomic.Bool // its exit was sent to a client

	stdinMu sync.Mutex // orders writes of stdin
	stdin   *os.File   // nil when it has none
	eof     bool       // guarded by stdinMu; end of input was passed on

	mu          sync.Mutex
	taken       int64              // guarded by mu; stdin bytes accepted
	attached    int                // guarded by mu
	timedOut    bool               // guarded by mu
	exceeded    agentapi.LimitName // guarded by mu; the limit for which it was killed
	status      *agentapi.Exit     // guarded by mu; set at the exit
	open        int                // guarded by mu; 1 until the exit, plus the outputs that have not ended
	done        bool               // guarded by mu; exited, and all output read
	detachTimer *time.Timer        // guarded by mu; kills it when no client attaches in time
	timeout     *time.Timer        // guarded by mu
	ended       func(*process)     // called once when done
}

// startProcess starts a command. ended is called once when the process is done.
func (a *Agent) startProcess(cmd agentapi.Command, keep int64, ended func(*process)) (*process, error) {
	l, err := a.prepare(cmd)
	if err != nil {
		return nil, err
	}
	files, err := openPipes(cmd)
	if err != nil {
		return nil, err
	}
	defer files.closeTheirs()
	p := &process{
		id: cmd.ID, command: cmd.Shown(), started: time.Now(), ended: ended, grace: a.opts.DetachGrace,
		out: newOutput(keep, !cmd.Detach || cmd.Backpressure), stdin: files.stdin, open: 2,
	}
	p.child = child{last: p.atExit, ended: func(ws unix.WaitStatus) { p.exited(ws, files) }}
	if cmd.Detach {
		p.grace = 0
	}
	if cmd.TTY != nil {
		p.terminal = files.stdout
	}
	if files.stderr != nil {
		p.open++
	}
	if !cmd.Limits.IsZero() {
		p.watch = a.newWatch(p, cmd.Limits, l)
		exited := p.child.ended
		p.child.ended = func(ws unix.WaitStatus) { go exited(ws) } // it looks at files, and the reaper must go on
	}
	p.mu.Lock() // delays the exit until all fields are set
	defer p.mu.Unlock()
	if err := a.reaper.start(&p.child, func() (int, error) { return l.spawn(files.theirs) }); err != nil {
		files.closeOurs()
		return nil, err
	}
	if p.watch != nil {
		a.limits.add(p.watch)
	}
	if cmd.Timeout > 0 {
		p.timeout = time.AfterFunc(cmd.Timeout, p.timeUp)
	}
	go p.pump(agentapi.FrameStdout, files.stdout)
	if files.stderr != nil {
		go p.pump(agentapi.FrameStderr, files.stderr)
	}
	return p, nil
}

// pumpBuffers saves short commands the allocation of buffers.
var pumpBuffers = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// pump moves an output of the process into its buffer until the output ends, or until the process
// has exited and everything that it wrote was read; then it discards the rest.
func (p *process) pump(frame agentapi.FrameType, f *os.File) {
	b := pumpBuffers.Get().(*[chunkBytes]byte)
	defer pumpBuffers.Put(b)
	buf := b[:]
	for {
		n, err := f.Read(buf)
		p.out.append(frame, buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.drain(frame, f, buf)
			p.partDone()
			go p.discard(f)
			return
		}
		if err != nil {
			f.Close()
			p.partDone()
			return
		}
	}
}

// drain reads the available output without waiting. Everything that the process wrote before its exit
// is in the first maxPipe bytes, however much other processes go on to write.
func (p *process) drain(frame agentapi.FrameType, f *os.File, buf []byte) {
	f.SetReadDeadline(time.Time{})
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	for total := 0; total < maxPipe; {
		n := 0
		raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buf)
			return true // never wait
		})
		if err != nil || n <= 0 {
			return
		}
		p.out.append(frame, buf[:n])
		total += n
	}
}

// discard reads the output of background processes, so that they do not block. A terminal is closed
// instead.
func (p *process) discard(f *os.File) {
	defer f.Close()
	if p.terminal == nil {
		io.Copy(io.Discard, struct{ io.Reader }{f})
	}
}

// atExit runs while the process is a zombie, so that its pid cannot have been reused.
func (p *process) atExit() {
	if p.killing.Load() {
		p.killTree(p.child.pid)
	}
}

// exited records how the process ended, and gives its outputs drainGrace to end.
func (p *process) exited(ws unix.WaitStatus, files *pipes) {
	now := time.Now()
	exit := &agentapi.Exit{Code: ws.ExitStatus(), Duration: now.Sub(p.started), EndedAt: now}
	if ws.Signaled() {
		exit.Signal = int(ws.Signal())
		exit.Code = 128 + exit.Signal
	}
	if p.watch != nil {
		p.watch.over.Store(true)
		exit.Limit = p.watch.cause(exit.Code)
	}
	p.mu.Lock()
	exit.TimedOut, exit.Limit = p.timedOut, cmp.Or(p.exceeded, exit.Limit)
	p.status = exit
	if p.timeout != nil {
		p.timeout.Stop()
	}
	p.mu.Unlock()
	deadline := now.Add(drainGrace)
	files.stdout.SetReadDeadline(deadline)
	if files.stderr != nil {
		files.stderr.SetReadDeadline(deadline)
	}
	if p.stdin != nil && p.terminal == nil {
		p.stdin.Close() // wakes a blocked write
	}
	p.partDone()
}

// partDone counts down the exit and the outputs; after the last, the process is done.
func (p *process) partDone() {
	p.mu.Lock()
	p.open--
	last := p.open == 0
	p.done = last
	if last {
		p.stopDetachTimer()
	}
	p.mu.Unlock()
	if last {
		p.out.finish()
		p.ended(p)
	}
}

// timeUp ends the process because its time limit has passed: with SIGTERM, then with SIGKILL.
func (p *process) timeUp() {
	p.mu.Lock()
	if p.status != nil {
		p.mu.Unlock()
		return
	}
	p.timedOut = true
	grace := p.command.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	p.timeout = time.AfterFunc(grace, p.kill)
	p.mu.Unlock()
	p.ask(unix.SIGTERM)
}

// ask sends a signal, and marks the process so that the rest of its family is killed when it exits.
// It reports whether the process was alive.
func (p *process) ask(signal syscall.Signal) bool {
	p.killing.Store(true)
	return p.child.alive(func(pid int) {
		p.known = proctree.FamilyOf(pid, nil)
		unix.Kill(-pid, signal)
	})
}

// terminate asks the process to end, and kills what remains of it after grace.
func (p *process) terminate(n int, grace time.Duration) error {
	if n < 1 || n > 64 {
		return answer.Invalid("%d is not a signal", n)
	}
	p.mu.Lock()
	if p.timeout != nil {
		p.timeout.Stop()
	}
	if p.status == nil {
		p.timeout = time.AfterFunc(grace, p.kill)
	}
	p.mu.Unlock()
	if !p.ask(syscall.Signal(n)) {
		return answer.Errorf(agentapi.CodeNotFound, "the process %s has ended", p.id)
	}
	return nil
}

// kill ends the process, its group, session and descendants.
func (p *process) kill() {
	p.killing.Store(true)
	p.out.unblock()
	p.child.alive(p.killTree)
}

// killTree kills the process and its family. reaper.mu is held.
func (p *process) killTree(pid int) { proctree.Kill(pid, p.known) }

// signal sends a signal to the process group. SIGKILL reaches further, see proctree.Kill; signal then
// waits until the process has ended, so that the caller finds it ended: for killWait at most, and
// until ctx ends.
func (p *process) signal(ctx context.Context, n int) error {
	if n < 1 || n > 64 {
		return answer.Invalid("%d is not a signal", n)
	}
	if syscall.Signal(n) == unix.SIGKILL {
		p.killing.Store(true)
	}
	var err error
	running := p.child.alive(func(pid int) {
		if syscall.Signal(n) == unix.SIGKILL {
			p.killTree(pid)
			return
		}
		err = unix.Kill(-pid, syscall.Signal(n))
	})
	if !running {
		return answer.Errorf(agentapi.CodeNotFound, "the process %s has ended", p.id)
	}
	if syscall.Signal(n) == unix.SIGKILL {
		timer := time.NewTimer(killWait)
		defer timer.Stop()
		select {
		case <-p.child.reaped:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return err
}

// resize sets the size of the process's terminal.
func (p *process) resize(size agentapi.Size) error {
	if p.terminal == nil {
		return answer.Invalid("the process %s has no terminal", p.id)
	}
	if err := setSize(p.terminal, size); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// writeStdin passes data to the process. It drops data after the process closed its stdin, or after
// closeStdin, as a shell would.
func (p *process) writeStdin(data []byte) {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	p.feed(data)
}

// writeStdinAt is writeStdin for data that is preceded by its offset: bytes that were already
// accepted are skipped, and data after a gap is dropped.
func (p *process) writeStdinAt(data []byte) {
	const offsetSize = 8
	if len(data) < offsetSize {
		return
	}
	offset, data := int64(binary.BigEndian.Uint64(data)), data[offsetSize:]
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	p.mu.Lock()
	old := p.taken - offset
	p.mu.Unlock()
	if old >= 0 && old < int64(len(data)) {
		p.feed(data[old:])
	}
}

// feed counts data as accepted and writes it to the process. stdinMu is held.
func (p *process) feed(data []byte) {
	p.mu.Lock()
	p.taken += int64(len(data))
	p.mu.Unlock()
	if p.stdin != nil {
		p.stdin.Write(data)
	}
}

// closeStdin ends the process's input; for a terminal it sends the end-of-file character, as a user
// would. A client that attaches again repeats the call.
func (p *process) closeStdin() {
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	switch {
	case p.stdin == nil || p.eof:
	case p.terminal != nil:
		const endOfFile = 4
		p.stdin.Write([]byte{endOfFile})
	default:
		p.stdin.Close()
	}
	p.eof = true
}

// attach adds a reader at an offset of the output.
func (p *process) attach(offset int64) (*outputReader, agentapi.Started, error) {
	r, err := p.out.attach(offset)
	if err != nil {
		return nil, agentapi.Started{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached++
	p.stopDetachTimer()
	return r, agentapi.Started{ProcessInfo: p.infoLocked(), Offset: r.pos, Stdin: p.taken}, nil
}

// detach removes a reader. A process with a grace ends after it, unless it exits or a client
// attaches before.
func (p *process) detach(r *outputReader) {
	r.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.attached--; p.attached == 0 && p.grace > 0 && !p.done {
		p.startDetachTimer()
	}
}

// startDetachTimer begins the grace of a process without attached clients. When a client attaches
// and leaves again, a new full grace begins, even if the previous one had just passed.
//
// Preconditions: p.mu is held.
func (p *process) startDetachTimer() {
	var grace *time.Timer
	grace = time.AfterFunc(p.grace, func() {
		p.mu.Lock()
		alone := p.detachTimer == grace
		p.mu.Unlock()
		if alone {
			p.kill()
		}
	})
	p.detachTimer = grace
}

// stopDetachTimer ends the grace: a client attached, or the process is done.
//
// Preconditions: p.mu is held.
func (p *process) stopDetachTimer() {
	if p.detachTimer != nil {
		p.detachTimer.Stop()
		p.detachTimer = nil
	}
}

func (p *process) info() agentapi.ProcessInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.infoLocked()
}

func (p *process) infoLocked() agentapi.ProcessInfo {
	info := agentapi.ProcessInfo{ID: p.id, PID: p.child.pid, Argv: p.command.Argv, StartedAt: p.started, Limited: p.watch != nil}
	if p.done {
		exit := *p.status
		info.Exit = &exit
	}
	return info
}
