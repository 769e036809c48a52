package code

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// freeLine is the length from which the line of an event counts as memory.
	freeLine = 64 << 10
	// perByte is the memory of a byte of a line: the line, its event, and the answer made of that.
	perByte = 3
	// maxLine bounds the line of an event.
	maxLine = kernelapi.MaxEvent + 1<<10
	// maxLines bounds the lines of a run together: each event that a run always has may come in addition.
	maxLines = kernelapi.MaxEvents + 4<<20
	// timeoutSlack bounds the time of a run beyond its timeout: runs before it in its context, the start
	// of an interpreter, an interpreter that must be killed.
	timeoutSlack = time.Hour
	// endTimeout bounds the wait for the end of an answer whose last event was read.
	endTimeout = 100 * time.Millisecond
	// interruptTimeout bounds the interruption of a run whose caller is gone.
	interruptTimeout = 5 * time.Second
)

// Run is code that runs for one caller. It continues when the sandbox is saved for a checkpoint or
// a fork. One goroutine at a time uses it.
type Run struct {
	target *target
	ctx    context.Context
	cancel context.CancelFunc
	id     string
	spec   kernelapi.Run

	body     io.ReadCloser // of the answer under way, or nil
	lines    *bufio.Reader
	seq      int   // of the last event
	bytes    int   // of all events
	reserved int64 // bytes that are counted as memory of the longest line
	kept     int64 // bytes that the caller keeps
	ended    bool
}

// Start starts code in a running sandbox. ctx bounds the run. Errors: as for every call into a
// sandbox; Invalid; NotFound for the context; QuotaExceeded if too many runs wait for it;
// Unsupported if the language is not installed; CodeBlocked.
func (s *Service) Start(ctx context.Context, c sandbox.Caller, ref string, spec kernelapi.Run) (*Run, error) {
	if spec.Context != "" && !validID().MatchString(spec.Context) {
		return nil, noContext(spec.Context)
	}
	t, err := s.open(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	r := &Run{target: t, id: rand.Text(), spec: spec}
	r.ctx, r.cancel = context.WithTimeoutCause(ctx, spec.Timeout+timeoutSlack,
		sandbox.Errorf(sandbox.Timeout, "the supervisor of interpreters did not report the end of the code in time"))
	name := spec.Language
	if spec.Context != "" {
		name = spec.Context
	}
	if err := audit.FromContext(ctx).Command(ctx, []string{name, spec.Code}, t.talk.Env()); err != nil {
		r.release()
		return nil, err
	}
	if err := t.talk.CheckLimits(agentapi.Limits(spec.Limits)); err != nil {
		r.release()
		return nil, err
	}
	if err := r.review(); err != nil {
		r.release()
		return nil, err
	}
	for {
		err := r.connect(true)
		if err == nil {
			return r, nil
		}
		if err := t.again(err); err != nil {
			r.release()
			if errors.Is(err, errNotRunning) {
				err = errAnswer
			}
			return nil, err
		}
	}
}

// review scans the code if the policy of the workspace demands it. Errors: CodeBlocked; NotFound for the context.
func (r *Run) review() error {
	source := codescan.Source(r.spec.Language, r.spec.Code)
	if r.spec.Context != "" {
		source = codescan.SourceIn(func(ctx context.Context) (string, error) { return r.target.language(ctx, r.spec.Context) }, r.spec.Code)
	}
	return r.target.talk.Review(r.ctx, []codescan.Code{source})
}

// language returns the language of a context. Errors: NotFound.
func (t *target) language(ctx context.Context, id string) (string, error) {
	if slices.Contains(codescan.Languages, id) {
		return id, nil // the context that a language has without a request for it
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, sandbox.Errorf(sandbox.Timeout, "the supervisor of interpreters did not answer in time"))
	defer cancel()
	var all kernelapi.Contexts
	err := t.call(ctx, false, http.MethodGet, "/contexts", nil, &all)
	if errors.Is(err, errNotRunning) {
		return "", noContext(id)
	}
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(c kernelapi.Context) bool { return c.ID == id })
	if i < 0 {
		return "", noContext(id)
	}
	return all[i].Language, check(&all[i])
}

// connect starts the run, or reads its events from where it broke off.
func (r *Run) connect(start bool) error {
	resp, err := r.target.send(r.ctx, start, http.MethodPost, fmt.Sprintf("/runs/%s?after=%d", r.id, r.seq), r.spec)
	if err != nil {
		return err
	}
	r.body, r.lines = resp.Body, bufio.NewReaderSize(resp.Body, freeLine)
	return nil
}

// Next returns the next event: one Started first, one End last, then io.EOF. Any other error says
// why it is not known how the run ended. Errors: Unavailable when the sandbox was paused or taken
// back to a checkpoint; Unsupported when the supervisor is too old for limits; Ended; AgentUnreachable; QuotaExceeded when there is no memory for the event.
func (r *Run) Next() (kernelapi.Event, error) {
	if r.ended {
		return kernelapi.Event{}, io.EOF
	}
	for {
		ev, err := r.read()
		if err == nil {
			r.ended = ev.Type == kernelapi.End
			if ev.Type == kernelapi.Started && !ev.Limited && r.spec.Limits != (kernelapi.Limits{}) {
				return ev, errNoLimits // closing the run interrupts it
			}
			record(audit.FromContext(r.ctx), &ev)
			return ev, nil
		}
		if r.ctx.Err() != nil {
			return ev, context.Cause(r.ctx)
		}
		if sandbox.CodeOf(err) == sandbox.QuotaExceeded {
			return ev, err
		}
		if err := r.target.again(err); err != nil {
			return ev, err
		}
		r.body.Close()
		for {
			err := r.connect(false)
			if err == nil {
				break
			}
			if err := r.target.again(err); err != nil {
				return ev, err
			}
		}
	}
}

// record adds what an event says to the output in the audit log: text, values as text, and the code's error.
func record(entry *audit.Entry, ev *kernelapi.Event) {
	switch ev.Type {
	case kernelapi.Stdout, kernelapi.Stderr:
		entry.Output(ev.Type == kernelapi.Stderr, []byte(ev.Text))
	case kernelapi.Result:
		var text string
		if json.Unmarshal(ev.Data["text/plain"], &text) == nil { // otherwise it has no text
			entry.Output(false, []byte(text+"\n"))
		}
	case kernelapi.Failure:
		entry.Output(true, []byte(ev.Name+": "+ev.Value+"\n"))
	}
}

// read reads the next event.
func (r *Run) read() (kernelapi.Event, error) {
	var ev kernelapi.Event
	line, err := r.line()
	if err != nil {
		return ev, err
	}
	if r.bytes += len(line); r.bytes > maxLines || json.Unmarshal(line, &ev) != nil || !r.valid(&ev) {
		return ev, errAnswer
	}
	r.seq = ev.Seq
	return ev, nil
}

var (
	types    = []kernelapi.EventType{kernelapi.Stdout, kernelapi.Stderr, kernelapi.Result, kernelapi.Failure, kernelapi.End}
	limits   = []kernelapi.LimitName{"", kernelapi.LimitMemory, kernelapi.LimitCPU, kernelapi.LimitFileSize, kernelapi.LimitProcesses}
	statuses = []kernelapi.Status{kernelapi.OK, kernelapi.Failed, kernelapi.Interrupted, kernelapi.TimedOut, kernelapi.Lost}
)

// valid reports whether ev can be the next event.
func (r *Run) valid(ev *kernelapi.Event) bool {
	switch {
	case ev.Seq != r.seq+1, (ev.Type == kernelapi.Started) != (ev.Seq == 1):
		return false
	case ev.Type == kernelapi.Started:
		return validID().MatchString(ev.Context)
	case ev.Type == kernelapi.End:
		return slices.Contains(statuses, ev.Status) && slices.Contains(limits, ev.Limit) && ev.Duration >= 0 && ev.ExecutionCount >= 0
	default:
		return slices.Contains(types, ev.Type)
	}
}

// line reads a line of at most maxLine bytes; the memory of a long one is counted.
func (r *Run) line() ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if err == nil && line == nil {
			return part, nil
		}
		if len(line)+len(part) > maxLine {
			return nil, errAnswer
		}
		if err := r.reserve(perByte * int64(len(line)+len(part))); err != nil {
			return nil, err
		}
		if line = append(line, part...); err == nil {
			return line, nil
		}
	}
}

// reserve counts memory for lines of a length.
func (r *Run) reserve(length int64) error {
	if length <= r.reserved {
		return nil
	}
	more := max(length, 2*r.reserved) - r.reserved
	if err := r.target.talk.Reserve(more); err != nil {
		return err
	}
	r.reserved += more
	return nil
}

// Keep counts bytes of events that the caller keeps, until Close. Errors: QuotaExceeded.
func (r *Run) Keep(bytes int64) error {
	if err := r.target.talk.Reserve(bytes); err != nil {
		return err
	}
	r.kept += bytes
	return nil
}

// Close ends the run, which is interrupted unless its end was read.
func (r *Run) Close() {
	if r.ended { // the end of the answer, which has most likely arrived, lets its connection serve the next run
		late := time.AfterFunc(endTimeout, r.cancel)
		_, _ = r.lines.Peek(1)
		late.Stop()
	}
	if r.body != nil {
		r.body.Close()
	}
	if !r.ended {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), interruptTimeout)
		_ = r.target.once(ctx, false, http.MethodDelete, "/runs/"+r.id, nil, nil) // without an answer the run ends for lack of readers
		cancel()
	}
	r.release()
}

func (r *Run) release() {
	r.cancel()
	r.target.talk.Release(r.reserved + r.kept)
	r.reserved, r.kept = 0, 0
	r.target.talk.End()
}
