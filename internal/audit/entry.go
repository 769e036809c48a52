package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// LongAfter is the running time after which the log records that a command has started.
	LongAfter = time.Second

	idMax        = 256 // bytes of an ID or a name
	agentMax     = 256
	detailMax    = 512
	detailsCount = 16
)

// Actor identifies the user or token of an operation.
type Actor struct {
	User           sandbox.UserID
	Workspace      sandbox.WorkspaceID
	Token, Session string
	Role           account.Role
	Administrator  bool
}

// Entry collects the record of an operation. All methods are safe for concurrent use; they do
// nothing on a nil *Entry and after the operation's end.
type Entry struct {
	log   *Log
	begun time.Time
	group string // group of addresses whose refusals are counted together

	mu       sync.Mutex
	record   Record       // guarded by mu
	explicit bool         // guarded by mu; the object was set by Object, not taken from the path
	fault    sandbox.Code // guarded by mu
	script   string       // guarded by mu
	outputs  bool         // guarded by mu; its output is recorded
	files    bool         // guarded by mu; its output is the content of files
	stdout   output       // guarded by mu
	stderr   output       // guarded by mu
	values   secrets      // guarded by mu; that must not appear in its output
	long     *time.Timer  // guarded by mu; fires when the command counts as long
	started  bool         // guarded by mu; the start was recorded
	intent   string       // guarded by mu; the id of its intent, "" before there is one
	ended    bool         // guarded by mu
}

type contextKey struct{}

// FromContext returns the entry of the operation in progress, or nil when it is not recorded.
func FromContext(ctx context.Context) *Entry {
	e, _ := ctx.Value(contextKey{}).(*Entry)
	return e
}

// note changes the record unless the operation has ended.
func (e *Entry) note(change func(r *Record)) {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		change(&e.record)
	}
}

// By sets the actor. Empty fields leave earlier values.
func (e *Entry) By(actor Actor) {
	e.note(func(r *Record) {
		set := func(to *string, v string) {
			if v != "" {
				*to = text(v, idMax)
			}
		}
		set(&r.User, string(actor.User))
		set(&r.Workspace, string(actor.Workspace))
		set(&r.Token, actor.Token)
		set(&r.Session, actor.Session)
		set(&r.Role, string(actor.Role))
		r.Admin = r.Admin || actor.Administrator
	})
}

// Via sets the means of access when nobody is signed in, and the workspace that is accessed.
func (e *Entry) Via(via string, ws sandbox.WorkspaceID) {
	e.note(func(r *Record) { r.Via, r.Workspace = via, string(ws) })
}

// Object sets the object of the operation; only the first call counts. The name may be "".
func (e *Entry) Object(kind, id, name string) {
	e.note(func(r *Record) {
		if !e.explicit {
			e.explicit = true
			r.ObjectKind, r.ObjectID, r.ObjectName = kind, text(id, idMax), text(name, idMax)
		}
	})
}

// Made sets the object that the operation created: it becomes the object if there is no other, and
// a detail otherwise.
func (e *Entry) Made(kind, id, name string) {
	e.note(func(r *Record) {
		if !e.explicit {
			e.explicit = true
			r.ObjectKind, r.ObjectID, r.ObjectName = kind, text(id, idMax), text(name, idMax)
			return
		}
		detail(r, kind, id)
	})
}

// Detail adds a detail; a second value for a name is appended to the first.
func (e *Entry) Detail(name, value string) {
	e.note(func(r *Record) { detail(r, name, value) })
}

func detail(r *Record, name, value string) {
	if r.Details == nil {
		r.Details = map[string]string{}
	}
	old, there := r.Details[name]
	switch {
	case value == "" || value == old || !there && len(r.Details) == detailsCount || len(old) >= detailMax:
		return
	case there:
		value = old + ", " + value
	}
	r.Details[name] = text(value, detailMax)
}

// Code sets the script that the command will get on stdin to execute: it is recorded like a last
// argument.
func (e *Entry) Code(script string) { e.note(func(*Record) { e.script = script }) }

// runsCommand reports whether operations of an action call [Entry.Command] before they do anything;
// that call then stores the first intent.
func runsCommand(action string) bool {
	switch action {
	case "exec", "exec-stream", "exec-attach", "start-execution", "run-code", "run-code-stream":
		return true
	}
	return false
}

// freesSpace reports whether operations of an action free space on the disk. They are done even
// while the disk is too full for their records, which are then kept in memory.
func freesSpace(action string) bool { return action == "delete-sandbox" }

// Begin stores the intent of the operation with the facts known about it, and returns when that is
// written: nothing may be done before. The intent survives a loss of power, unless it is about a
// command; commands are too frequent to wait for the disk each time. Calling it again updates the
// intent. Errors: Unavailable; nothing may be done then.
func (e *Entry) Begin(ctx context.Context) error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	if e.ended {
		e.mu.Unlock()
		return nil
	}
	first := e.intent == ""
	if first {
		e.intent = string(e.log.cfg.Owner.NewID()) // which says to other servers whose intent it is
	}
	r := e.record.clone()
	it := item{begun: &Intent{ID: e.intent}, synced: !runsCommand(r.Action), nobody: r.User == "" && r.Via == "" && e.group != "", inMemory: freesSpace(r.Action)}
	e.mu.Unlock()
	r.Outcome = Started
	stamp(r, e.begun)
	var err error
	if it.begun.Record, err = json.Marshal(r); err == nil {
		err = e.log.putWait(ctx, it)
	}
	if err == nil {
		return nil
	}
	if first && errors.Is(err, errFull) {
		// There is no intent to remove: the end of this operation is limited like its beginning.
		e.mu.Lock()
		e.intent = ""
		e.mu.Unlock()
	}
	e.Fail(sandbox.Unavailable)
	return unavailable()
}

// Command sets the command that is about to run (the last call counts) and stores the intent as
// Begin does; it hides values of the environments. When the command runs longer than [LongAfter],
// or at once when it is streamed, its start is recorded. Errors: Unavailable; the command must not
// run then.
func (e *Entry) Command(ctx context.Context, argv []string, envs ...map[string]string) error {
	outputs, err := e.recordsOutputs(ctx)
	if err != nil {
		return err
	}
	e.note(func(r *Record) {
		if e.outputs = outputs && !e.files; e.outputs {
			e.values = secretsOf(envs)
		}
		if e.script != "" {
			argv = append(slices.Clone(argv), e.script)
		}
		kept, truncated := command(argv, envs)
		r.Command, r.CommandTruncated = kept, truncated
		if e.long == nil {
			e.long = time.AfterFunc(LongAfter, e.Start)
		}
	})
	return e.Begin(ctx)
}

// recordsOutputs reports whether the workspace of the operation has its outputs recorded.
func (e *Entry) recordsOutputs(ctx context.Context) (bool, error) {
	if e == nil {
		return false, nil
	}
	e.mu.Lock()
	ws := sandbox.WorkspaceID(e.record.Workspace)
	e.mu.Unlock()
	return e.log.RecordsOutputs(ctx, ws)
}

// Start records the start of the operation, once.
func (e *Entry) Start() {
	e.note(func(r *Record) {
		if e.started {
			return
		}
		e.started = true
		begun := r.clone()
		begun.Outcome = Started
		stamp(begun, e.begun)
		if err := e.log.put(item{record: begun}); err != nil { // the intent exists nevertheless
			e.log.logger.Error("audit record of the start of a command not written", "request_id", begun.RequestID, "error", err)
		}
	})
}

// Fail sets the code with which it was refused or failed; the last call counts.
func (e *Entry) Fail(code sandbox.Code) {
	if e == nil || code == "" {
		return
	}
	e.note(func(*Record) { e.fault = code })
}

// stamp sets the time of the record, and the duration since begun.
func stamp(r *Record, begun time.Time) {
	now := time.Now()
	r.Time, r.DurationMS = now.UTC().Format(TimeFormat), now.Sub(begun).Milliseconds()
}

// interrupt ends the operation when the server ends before it.
func (e *Entry) interrupt() {
	r, ok := e.finish()
	if !ok {
		return
	}
	r.Outcome = Interrupted
	stamp(&r, e.begun)
	_ = e.write(context.Background(), &r, false) // Close of the log waits for it
}

// finish returns the record of the ended operation, unless it has ended before.
func (e *Entry) finish() (Record, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return Record{}, false
	}
	e.ended = true
	if e.long != nil {
		e.long.Stop()
	}
	if len(e.stdout.text)+len(e.stderr.text) > 0 {
		e.log.outputs.put(&e.record, &e.stdout, &e.stderr, e.values)
	}
	return e.record, true
}

// end adds the record of an operation that ended with an HTTP status. It returns when that is
// written, unless it is about a command with an intent, or with an error after a timeout: the
// record is then written later, or recovered as interrupted.
func (e *Entry) end(ctx context.Context, status int) error {
	e.mu.Lock()
	code := e.fault
	e.mu.Unlock()
	r, ok := e.finish()
	if !ok {
		return nil
	}
	r.Status = status
	switch {
	case ctx.Err() != nil && (code == sandbox.Internal || code == "" && status == 0):
		r.Outcome = Cancelled
	case code != "":
		r.Outcome = string(code)
	case status >= http.StatusBadRequest:
		r.Outcome = Failed
	default:
		r.Outcome = OK
	}
	stamp(&r, e.begun)
	if e.refused(&r) && !e.log.limit.allow(&r, e.group) {
		if e.intent == "" {
			return nil
		}
		return e.write(ctx, nil, false)
	}
	return e.write(ctx, &r, e.intent == "" || !runsCommand(r.Action))
}

// drop ends an operation that another server does, and records: this server has not begun it.
func (e *Entry) drop() {
	if _, ok := e.finish(); !ok || e.intent == "" {
		return
	}
	if err := e.write(context.Background(), nil, false); err != nil {
		e.log.logger.Error("audit intent of a forwarded request not removed", "error", err)
	}
}

// write queues the end of the operation (r is nil if it has no record) and, with wait, waits until
// it is written.
func (e *Entry) write(ctx context.Context, r *Record, wait bool) error {
	it := item{record: r, ended: e.intent}
	var err error
	if wait {
		err = e.log.putWait(context.WithoutCancel(ctx), it)
	} else {
		err = e.log.put(it)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errFull): // and nothing was done
		e.log.limit.count(r, e.group)
		return nil
	}
	return fmt.Errorf("record the end of %s %s: %w", e.record.Action, e.record.RequestID, err)
}

// refused reports whether the operation did nothing. A failed command may have run, a failed change
// of files may be half done, and a request whose client did not wait may have been done: the limit
// of refusals must not suppress those records.
func (e *Entry) refused(r *Record) bool {
	switch {
	case r.Outcome == OK || e.started || len(r.Command) > 0 || r.Details["path"] != "":
		return false
	case r.Outcome == Cancelled:
		return r.User == "" && r.Via == ""
	}
	return true
}

// clone returns a copy that does not change with r.
func (r *Record) clone() *Record {
	c := *r
	if r.Details != nil {
		c.Details = make(map[string]string, len(r.Details))
		for k, v := range r.Details {
			c.Details[k] = v
		}
	}
	return &c
}

// kindOf returns the kind of the objects of a collection: sandbox for sandboxes.
func kindOf(collection string) string {
	for _, end := range [][2]string{{"ies", "y"}, {"xes", "x"}, {"s", ""}} {
		if stem, ok := strings.CutSuffix(collection, end[0]); ok {
			return stem + end[1]
		}
	}
	return collection
}

// beginning returns enough of a secret ID to identify it.
func beginning(id string) string {
	if len(id) > 8 {
		return id[:8] + "…"
	}
	return ""
}

// named takes the objects from the path of a request: the first is the object of the operation, the
// others are details. The workspace is set elsewhere.
func named(r *Record, pattern string, q *http.Request) {
	before := ""
	for part := range strings.SplitSeq(pattern, "/") {
		name, isParam := strings.CutPrefix(part, "{")
		if !isParam {
			before = part
			continue
		}
		name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "...")
		kind, value := kindOf(before), q.PathValue(name)
		if kind == "stream" {
			value = beginning(value) // the whole value would give access to the stream
		}
		switch {
		case name == "workspace_id" || value == "":
		case r.ObjectKind != "":
			detail(r, kind, value)
		default:
			r.ObjectKind, r.ObjectID = kind, text(value, idMax)
			if _, ok := sandbox.ParseID(value); !ok && kind == "sandbox" {
				r.ObjectID, r.ObjectName = "", r.ObjectID
			}
		}
	}
}

// WithEntry returns a context that carries the entry.
func WithEntry(ctx context.Context, e *Entry) context.Context {
	return context.WithValue(ctx, contextKey{}, e)
}
