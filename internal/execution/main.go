package execution

import (
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// FollowMain records the image's own command, which the agent of a box has just started, and copies
// its output as soon as the sandbox runs; the agent keeps the output until then. The record of an
// earlier start of the command ends. An error is only logged: the sandbox is usable without the
// record.
func (s *Service) FollowMain(b *box.Box, argv []string) {
	if s.streams == nil || len(argv) == 0 {
		return
	}
	s.live.loseMain(b)
	sb := b.View().Sandbox
	x, err := s.queue(b.Context(), sandbox.Caller{Workspace: sb.Workspace, User: sb.CreatedBy}, b, &Request{Kind: sandbox.Main, Argv: argv}, false)
	if err != nil {
		s.logFailure("record the main command of sandbox "+string(b.ID), err)
		return
	}
	x.dropRequest() // the agent has started it
	s.work.Go(func() { s.execute(x) })
}

// loseMain notes that the process of a box's main command is gone.
func (x *liveExecutions) loseMain(b *box.Box) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.ids {
		if e.box == b && e.view().Kind == sandbox.Main {
			e.lost.Store(true)
		}
	}
}

// errLost is the error for an execution whose process id another process has.
var errLost = &agentapi.Error{Code: agentapi.CodeNotFound, Message: "the sandbox was started anew, and its main command with it"}

// processID returns the agent's id of an execution's process.
func processID(e *sandbox.Execution) string {
	if e.Kind == sandbox.Main {
		return agentapi.MainID
	}
	return string(e.ID)
}
