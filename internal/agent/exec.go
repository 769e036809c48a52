package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agentapi"
)

// processID is the syntax of process ids.
var processID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// exec starts a process and attaches to it, or attaches to an existing process with that id.
func (a *Agent) exec(w http.ResponseWriter, r *http.Request) error {
	frames := agentapi.NewFrameReader(r.Body)
	f, err := frames.Next()
	if err != nil {
		return answer.Invalid("no command was sent: %v", err)
	}
	var cmd agentapi.Command
	if f.Type != agentapi.FrameStart {
		return answer.Invalid("the first frame is 0x%02x, not a command", f.Type)
	}
	if err := json.Unmarshal(f.Data, &cmd); err != nil {
		return answer.Invalid("cannot decode the command: %v", err)
	}
	if !processID.MatchString(cmd.ID) || cmd.ID == agentapi.MainID {
		return answer.Invalid("the command's id %q is not 1 to 64 of A-Z a-z 0-9 _ -", cmd.ID)
	}
	keep := int64(agentapi.ReplayWindow)
	if cmd.Backpressure {
		keep *= 2 // includes output that the reader has read but not stored yet when it is killed
	}
	p, err := a.procs.start(cmd.ID, func(ended func(*process)) (*process, error) {
		return a.startProcess(cmd, keep, ended)
	})
	if err != nil {
		return err
	}
	return serveProcess(w, r, p, frames, 0)
}

func (a *Agent) attach(w http.ResponseWriter, r *http.Request) error {
	offset, err := strconv.ParseInt(r.FormValue("offset"), 10, 64)
	if err != nil {
		return answer.Invalid("offset %q is not a number", r.FormValue("offset"))
	}
	p, err := a.procs.find(r.PathValue("id"))
	if err != nil {
		return err
	}
	return serveProcess(w, r, p, agentapi.NewFrameReader(r.Body), offset)
}

// serveProcess connects a stream to a process until either ends.
func serveProcess(w http.ResponseWriter, r *http.Request, p *process, frames *agentapi.FrameReader, offset int64) error {
	reader, started, err := p.attach(offset)
	if err != nil {
		return err
	}
	defer p.detach(reader)
	buf, err := agentapi.AppendJSONFrame(nil, agentapi.FrameStarted, started)
	if err != nil {
		return err
	}
	go readInput(frames, p)
	flusher := http.NewResponseController(w)
	if _, err := w.Write(buf); err != nil {
		return answer.ErrAborted
	}
	flusher.Flush()
	if err := sendOutput(r.Context(), w, flusher, reader, buf); err != nil {
		return answer.ErrAborted
	}
	buf, err = agentapi.AppendJSONFrame(buf[:0], agentapi.FrameExit, p.info().Exit)
	if err != nil {
		return answer.ErrAborted
	}
	if _, err := w.Write(buf); err == nil {
		p.collected.Store(true)
	}
	return nil
}

// sendOutput sends output in frames until all of it was sent.
func sendOutput(ctx context.Context, w http.ResponseWriter, flusher *http.ResponseController, reader *outputReader, buf []byte) error {
	for {
		frame, data, err := reader.next(ctx, agentapi.MaxFrame)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return nil
		}
		buf = agentapi.AppendFrame(buf[:0], frame, data)
		if _, err := w.Write(buf); err != nil {
			return err
		}
		if !reader.advance(len(data)) {
			flusher.Flush()
		}
	}
}

// readInput passes the host's frames to the process until the stream ends. It accepts stdin even
// when the process does not read it, so that the stream never stalls.
func readInput(frames *agentapi.FrameReader, p *process) {
	for {
		f, err := frames.Next()
		if err != nil {
			return
		}
		switch f.Type {
		case agentapi.FrameStdin:
			p.writeStdin(f.Data)
		case agentapi.FrameStdinAt:
			p.writeStdinAt(f.Data)
		case agentapi.FrameEOF:
			p.closeStdin()
		}
	}
}

func (a *Agent) processes(w http.ResponseWriter, _ *http.Request) error {
	list := []agentapi.ProcessInfo{}
	for _, p := range a.procs.list() {
		list = append(list, p.info())
	}
	return answer.JSON(w, list)
}

func (a *Agent) signal(w http.ResponseWriter, r *http.Request) error {
	var req agentapi.SignalRequest
	if err := answer.Decode(r, &req); err != nil {
		return err
	}
	p, err := a.procs.find(r.PathValue("id"))
	if err != nil {
		return err
	}
	if req.Grace > 0 {
		return p.terminate(req.Signal, req.Grace)
	}
	return p.signal(r.Context(), req.Signal)
}

func (a *Agent) resize(_ http.ResponseWriter, r *http.Request) error {
	var size agentapi.Size
	if err := answer.Decode(r, &size); err != nil {
		return err
	}
	p, err := a.procs.find(r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.resize(size)
}
