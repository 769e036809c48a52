package executions

import (
	"io"
	"net/http"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/api/scans"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
)

// streamExec is POST …/exec/stream: the command's output as it comes, one JSON
// object a line, and a ping after each silence. It ends with exit, or with error
// when how the command ended is not known.
func (h *Commands) streamExec(w http.ResponseWriter, r *http.Request) error {
	in, err := route.Decode[wire.Exec](w, r, bodyMax)
	if err != nil {
		return err
	}
	cmd, err := h.command(r.Context(), r.PathValue("sandbox"), in)
	if err != nil {
		return err
	}
	ctx, report := codescan.Collect(r.Context())
	if ctx, err = h.prepare(ctx, r.PathValue("sandbox"), &in, cmd); err != nil {
		return err
	}
	stdin := stdinOf(in)
	command.Give(&cmd, stdin)
	ctx = codescan.WithStdin(ctx, stdin)
	session, err := command.Start(ctx, h.commands(r.Context(), r.PathValue("sandbox"), in.Shell != ""), cmd)
	if err != nil {
		return err
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		session.Feed(stdin)
	}()
	defer func() {
		session.Close()
		<-fed
	}()
	audit.FromContext(r.Context()).Start()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := edge.Talk(w, h.Ping)
	defer out.Stop()
	if out.Send(started(session.Info(), report)) != nil {
		return nil // the client is gone; closing the session kills the command
	}
	for {
		f, err := session.Next()
		if err == io.EOF {
			return nil
		}
		m := message(f)
		if err != nil {
			p := edge.Problem(r.Context(), err)
			m = wire.StreamMessage{Type: wire.StreamError, Code: string(p.Code), Message: p.Detail}
		}
		if m.Type != "" && out.Send(m) != nil || err != nil {
			return nil
		}
	}
}

func started(p agentapi.ProcessInfo, report *codescan.Report) wire.StreamMessage {
	return wire.StreamMessage{Type: wire.StreamStarted, PID: p.PID, ProcessID: p.ID, StartedAt: route.Optional(p.StartedAt), Scan: scans.Shown(report)}
}

// message translates a frame; a frame without a translation has no type.
func message(f agentapi.Frame) wire.StreamMessage {
	switch f.Type {
	case agentapi.FrameStdout:
		return wire.StreamMessage{Type: wire.StreamStdout, Data: f.Data}
	case agentapi.FrameStderr:
		return wire.StreamMessage{Type: wire.StreamStderr, Data: f.Data}
	case agentapi.FrameExit:
		code, ms := f.Exit.Code, f.Exit.Duration.Milliseconds()
		return wire.StreamMessage{Type: wire.StreamExit, ExitCode: &code, Signal: f.Exit.Signal, TimedOut: f.Exit.TimedOut, LimitExceeded: string(f.Exit.Limit), DurationMS: &ms}
	default:
		return wire.StreamMessage{}
	}
}
