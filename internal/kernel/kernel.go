package kernel

import "github.com/modbox/modbox/internal/kernelapi"

// kernel is an interpreter that keeps its state between executions.
type kernel interface {
	// execute executes code and returns when it has ended and emit has all its events. An error
	// says that the interpreter ended. One goroutine at a time calls it.
	execute(code string, emit func(kernelapi.Event)) (outcome, error)
	// interrupt interrupts the code that executes, if it lets itself be interrupted. again says that
	// an earlier call did not end it.
	interrupt(again bool)
	// settle returns when no interrupt that was sent can reach what executes next. It is called
	// after an execution that was interrupted.
	settle()
	// kill ends the interpreter and its processes.
	kill()
	// pid returns the process id of the interpreter, which leads its own session.
	pid() int
	// hasEnded reports whether the interpreter has ended.
	hasEnded() bool
}

// outcome is how an execution ended.
type outcome struct {
	failed bool // the code ended with an error
	count  int  // the execution's number in the interpreter, 0 if it has none
}
