package kernel

import (
	"fmt"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

const (
	// interruptGrace is how long code that was interrupted may go on before its interpreter is killed.
	interruptGrace = 5 * time.Second
	// interruptInterval is the time between interrupts of code that goes on.
	interruptInterval = time.Second
)

// interpreterContext is a context: an interpreter and the runs that wait for it.
type interpreterContext struct {
	spec    kernelapi.ContextSpec
	dir     string
	created time.Time
	queue   chan *queued
	closing chan struct{} // closed when the context is to end
	tasks   chan func()   // executed between runs
	ready   chan struct{} // closed when the first start has ended
	failed  error         // the error of the first start, after ready

	starting sync.Mutex // serialises starts

	mu         sync.Mutex
	kernel     kernel // guarded by mu; nil if none was started
	current    *run   // guarded by mu; executes
	starts     int    // guarded by mu
	generation int    // guarded by mu; restarts that were asked for
	closed     bool   // guarded by mu
}

// queued is a run that waits. One that was queued before a restart is not executed after it.
type queued struct {
	*run
	generation int
}

func newContext(dir string, spec kernelapi.ContextSpec) *interpreterContext {
	return &interpreterContext{
		spec: spec, dir: dir, created: time.Now().UTC(),
		queue: make(chan *queued, kernelapi.MaxQueue), closing: make(chan struct{}), tasks: make(chan func()), ready: make(chan struct{}),
	}
}

// work starts the interpreter and executes runs until the context is closed.
func (c *interpreterContext) work() {
	_, c.failed = c.start()
	close(c.ready)
	for {
		select {
		case r := <-c.queue:
			c.execute(r)
		case task := <-c.tasks:
			task()
		case <-c.closing:
			for {
				select {
				case r := <-c.queue:
					lost(r.run, "the context was deleted")
				default:
					return
				}
			}
		}
	}
}

// start starts the interpreter unless it runs, and reports whether it did.
func (c *interpreterContext) start() (started bool, err error) {
	c.starting.Lock()
	defer c.starting.Unlock()
	c.mu.Lock()
	runs := c.kernel != nil && !c.kernel.hasEnded()
	c.mu.Unlock()
	if runs {
		return false, nil
	}
	k, err := startKernel(c.dir, &c.spec)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		k.kill()
		return false, &kernelapi.Error{Code: kernelapi.CodeNotFound, Message: "the context was deleted"}
	}
	c.kernel = k
	c.starts++
	return true, nil
}

// enqueue has r executed after the runs before it.
func (c *interpreterContext) enqueue(r *run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return notFound(c.spec.ID)
	}
	select {
	case c.queue <- &queued{r, c.generation}:
		return nil
	default:
		return &kernelapi.Error{Code: kernelapi.CodeTooMany, Message: fmt.Sprintf("%d runs already wait for context %q", kernelapi.MaxQueue, c.spec.ID)}
	}
}

// lost ends a run that is not executed, or whose interpreter ended.
func lost(r *run, why string) {
	r.emit(kernelapi.Event{Type: kernelapi.Failure, Name: "InterpreterEnded", Value: why})
	r.emit(kernelapi.Event{Type: kernelapi.End, Status: kernelapi.Lost})
}

// execute executes a run to its end.
func (c *interpreterContext) execute(r *queued) {
	restarted, err := c.start()
	c.mu.Lock()
	k, old := c.kernel, r.generation != c.generation
	if err == nil && !old {
		c.current = r.run
	}
	restarted = restarted && c.starts > 1
	c.mu.Unlock()
	r.emit(kernelapi.Event{Type: kernelapi.Started, Context: c.spec.ID, Restarted: restarted, Limited: r.limits != kernelapi.Limits{}})
	switch {
	case err != nil:
		lost(r.run, err.Error())
		return
	case old:
		lost(r.run, "the context was restarted before the code was executed")
		return
	}
	defer func() {
		c.mu.Lock()
		c.current = nil
		c.mu.Unlock()
	}()
	if cause := r.stopped(); cause != "" { // while it waited
		r.emit(kernelapi.Event{Type: kernelapi.End, Status: cause})
		return
	}
	begun := time.Now()
	limits := r.limits
	if limits == (kernelapi.Limits{}) {
		limits = c.spec.Limits
	}
	limited, err := limit(r.run, k, limits, c.spec.Cwd)
	if err != nil {
		lost(r.run, err.Error())
		return
	}
	over := watch(r.run, k)
	out, err := k.execute(r.code, r.emit)
	over()
	exceeded := limited.end(err != nil || out.failed)
	if err == nil && r.stopped() != "" {
		k.settle()
	}
	end := kernelapi.Event{Type: kernelapi.End, Status: kernelapi.OK, ExecutionCount: out.count, Duration: time.Since(begun), Limit: exceeded}
	switch cause := r.stopped(); {
	case err != nil:
		why := err.Error()
		if exceeded != "" {
			why = fmt.Sprintf("the code exceeded its limit of %s: %v", exceeded, err)
		}
		r.emit(kernelapi.Event{Type: kernelapi.Failure, Name: "InterpreterEnded", Value: why})
		end.Status = kernelapi.Lost
		if cause != "" {
			end.Status = cause
		}
	case cause != "":
		end.Status = cause
	case out.failed:
		end.Status = kernelapi.Failed
	}
	r.emit(end)
}

// watch interrupts the interpreter when the run is to be stopped or its time is over, and kills it
// if that does not help. The caller calls over when the execution has ended.
func watch(r *run, k kernel) (over func()) {
	done, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		var timeout <-chan time.Time
		if r.timeout > 0 {
			timer := time.NewTimer(r.timeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-done:
			return
		case <-timeout:
			r.interrupt(kernelapi.TimedOut)
		case <-r.stop:
		}
		interruptUntil(done, k)
	}()
	return func() {
		close(done)
		<-left
	}
}

// interruptUntil interrupts what executes until done is closed, and kills the interpreter if that
// takes too long. A program that is just being started can miss an interrupt.
func interruptUntil(done <-chan struct{}, k kernel) {
	kill := time.NewTimer(interruptGrace)
	defer kill.Stop()
	again := time.NewTicker(interruptInterval)
	defer again.Stop()
	k.interrupt(false)
	for {
		select {
		case <-done:
			return
		case <-again.C:
			k.interrupt(true)
		case <-kill.C:
			k.kill()
			<-done
			return
		}
	}
}

// interrupt interrupts the run that executes, if there is one.
func (c *interpreterContext) interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.interrupt(kernelapi.Interrupted)
	}
}

// restart ends the interpreter and starts another. Runs that execute or wait are lost.
func (c *interpreterContext) restart() error {
	<-c.ready
	c.mu.Lock()
	c.generation++
	k := c.kernel
	c.mu.Unlock()
	if k != nil {
		k.kill()
		for tick := time.NewTicker(time.Millisecond); !k.hasEnded(); <-tick.C {
			// its process is about to be reaped
		}
	}
	_, err := c.start()
	return err
}

// close ends the interpreter and all runs.
func (c *interpreterContext) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	close(c.closing)
	if c.kernel != nil {
		c.kernel.kill()
	}
}

// view returns the context for callers.
func (c *interpreterContext) view() kernelapi.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := kernelapi.Context{
		ID: c.spec.ID, Language: c.spec.Language, Cwd: c.spec.Cwd, State: kernelapi.Idle,
		CreatedAt: c.created, Restarts: max(0, c.starts-1), Limits: c.spec.Limits,
	}
	switch {
	case c.kernel == nil || c.kernel.hasEnded():
		v.State = kernelapi.Ended
	case c.current != nil:
		v.State = kernelapi.Busy
	}
	return v
}
