package audit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// LongAfter is how long a command runs until it is recorded as started.
	LongAfter = time.Second

	idMax        = 256 // bytes of an id or a name
	agentMax     = 256
	detailMax    = 512
	detailsCount = 16
)

// Who is somebody who does something.
type Who struct {
	User           sandbox.UserID
	Workspace      sandbox.WorkspaceID
	Token, Session string
	Role           sandbox.Role
	Administrator  bool
}

// Entry is what becomes the record of one operation. All methods are safe for
// concurrent use, do nothing on a nil *Entry, and nothing after the operation's end.
type Entry struct {
	log   *Log
	begun time.Time
	group string // of addresses, whose refusals are counted together

	mu      sync.Mutex
	record  Record       // guarded by mu
	told    bool         // guarded by mu; the object was told, not read out of the path
	fault   sandbox.Code // guarded by mu
	script  string       // guarded by mu
	long    *time.Timer  // guarded by mu; until the command counts as long
	started bool         // guarded by mu; it was recorded as started
	intent  string       // guarded by mu; the id of its intent, "" before there is one
	ended   bool         // guarded by mu
}

type contextKey struct{}

// FromContext returns the entry of the operation under way, nil when it is not recorded.
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

// By says who does it. Fields that are empty leave what was said before.
func (e *Entry) By(who Who) {
	e.note(func(r *Record) {
		set := func(to *string, v string) {
			if v != "" {
				*to = text(v, idMax)
			}
		}
		set(&r.User, string(who.User))
		set(&r.Workspace, string(who.Workspace))
		set(&r.Token, who.Token)
		set(&r.Session, who.Session)
		set(&r.Role, string(who.Role))
		r.Admin = r.Admin || who.Administrator
	})
}

// Via says by what means it is done when nobody is signed in, and in whose workspace.
func (e *Entry) Via(via string, ws sandbox.WorkspaceID) {
	e.note(func(r *Record) { r.Via, r.Workspace = via, string(ws) })
}

// Object says which object it is done to; the first that is said counts. A name
// may be "".
func (e *Entry) Object(kind, id, name string) {
	e.note(func(r *Record) {
		if !e.told {
			e.told = true
			r.ObjectKind, r.ObjectID, r.ObjectName = kind, text(id, idMax), text(name, idMax)
		}
	})
}

// Made says which object it made: that is the object when there is no other, and
// a detail otherwise.
func (e *Entry) Made(kind, id, name string) {
	e.note(func(r *Record) {
		if !e.told {
			e.told = true
			r.ObjectKind, r.ObjectID, r.ObjectName = kind, text(id, idMax), text(name, idMax)
			return
		}
		detail(r, kind, id)
	})
}

// Detail adds something worth knowing; a second value of a name is added to the first.
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

// Code says what the command to come is given on stdin to execute: it is recorded
// as if it were its last argument.
func (e *Entry) Code(script string) { e.note(func(*Record) { e.script = script }) }

// runsCommand reports whether operations of an action say which command they run,
// with [Entry.Command], before they do anything: that is then what is put down first.
func runsCommand(action string) bool {
	switch action {
	case "exec", "exec-stream", "exec-attach", "start-execution":
		return true
	}
	return false
}

// freesSpace reports whether operations of an action free space on the disk. They are done
// while it is too full for their records, which are then kept in memory.
func freesSpace(action string) bool { return action == "delete-sandbox" }

// Begin puts down that the operation is done, with what is known about it, and
// returns when that is written: nothing may be done before. It outlives a loss of power
// unless it is about a command, of which there are too many to wait for the disk each
// time. Doing it again puts down what is known then. Errors: Unavailable; nothing may
// be done then.
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
		e.intent = rand.Text()
	}
	r := e.record.clone()
	it := item{begun: &sandbox.AuditIntent{ID: e.intent}, synced: !runsCommand(r.Action), nobody: r.User == "" && r.Via == "" && e.group != "", inMemory: freesSpace(r.Action)}
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
		// There is no intent to end: the end of this operation is bounded as its beginning is.
		e.mu.Lock()
		e.intent = ""
		e.mu.Unlock()
	}
	e.Fail(sandbox.Unavailable)
	return unavailable()
}

// Command says which command it is about to run, the last one counts, and puts that
// down as Begin does; values of the environments are hidden in it. When the command
// runs longer than [LongAfter], or at once when it is streamed, that it started is
// recorded. Errors: Unavailable; it must not be run then.
func (e *Entry) Command(ctx context.Context, argv []string, envs ...map[string]string) error {
	e.note(func(r *Record) {
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

// Start records that it goes on, once.
func (e *Entry) Start() {
	e.note(func(r *Record) {
		if e.started {
			return
		}
		e.started = true
		begun := r.clone()
		begun.Outcome = Started
		stamp(begun, e.begun)
		if err := e.log.put(item{record: begun}); err != nil { // the intent is there nevertheless
			e.log.logger.Error("audit record that a command goes on not written", "request_id", begun.RequestID, "error", err)
		}
	})
}

// Fail says with which code it was refused or failed; the last one counts.
func (e *Entry) Fail(code sandbox.Code) {
	if e == nil || code == "" {
		return
	}
	e.note(func(*Record) { e.fault = code })
}

// stamp says when the record is made, of what began at a time.
func stamp(r *Record, begun time.Time) {
	now := time.Now()
	r.Time, r.DurationMS = now.UTC().Format(sandbox.AuditTime), now.Sub(begun).Milliseconds()
}

// interrupt ends what goes on when the server ends.
func (e *Entry) interrupt() {
	r, ok := e.finish()
	if !ok {
		return
	}
	r.Outcome = Interrupted
	stamp(&r, e.begun)
	_ = e.write(context.Background(), &r, false) // the log's Close waits for it
}

// finish returns the record of what ends, unless it has ended before.
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
	return e.record, true
}

// end adds the record of what has ended with an HTTP status. It returns when that is
// written, unless it is about a command that was put down before, or after some time with an error: it is then
// written later, or recorded as interrupted.
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
		r.Outcome = Canceled
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

// write queues the end of the operation, nil when it has no record, and may wait
// until it is written.
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

// refused reports whether the operation did nothing. A command that failed ran, or
// may have, as a change of files may have been half done, and what somebody did not
// wait for may be done: nobody gets rid of those records by being refused before.
func (e *Entry) refused(r *Record) bool {
	switch {
	case r.Outcome == OK || e.started || len(r.Command) > 0 || r.Details["path"] != "":
		return false
	case r.Outcome == Canceled:
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

// kindOf returns what the objects of a collection are called: sandboxes, sandbox.
func kindOf(collection string) string {
	for _, end := range [][2]string{{"ies", "y"}, {"xes", "x"}, {"s", ""}} {
		if stem, ok := strings.CutSuffix(collection, end[0]); ok {
			return stem + end[1]
		}
	}
	return collection
}

// beginning returns enough of a secret id to tell it from others.
func beginning(id string) string {
	if len(id) > 8 {
		return id[:8] + "…"
	}
	return ""
}

// named fills in what the path of a request says: the first object is what it is
// done to, the others are details. The workspace is said elsewhere.
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
			value = beginning(value) // who has all of it may use the stream
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
