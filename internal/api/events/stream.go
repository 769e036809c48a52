package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/eventstream"
	"github.com/modbox/modbox/internal/sandbox"
)

// reconnectMS is the pause before a browser connects again, in milliseconds.
const reconnectMS = 1000

// stream is GET /v1/events/stream.
func (h *Events) stream(w http.ResponseWriter, req *http.Request) error {
	filter, from, err := h.parse(req)
	if err != nil {
		return err
	}
	every, err := interval(req.URL.Query().Get("stats"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	stream, err := h.Hub.Follow(ctx, route.Caller(ctx), filter, from)
	if err != nil {
		return err
	}
	defer stream.Close()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		h.watch(ctx, req, cancel)
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not collect the answer
	w.WriteHeader(http.StatusOK)
	out := &writer{w: w, control: http.NewResponseController(w)}
	if out.send(fmt.Sprintf("retry: %d\nid: %d\n\n", reconnectMS, stream.Cursor())) != nil {
		return nil // the client is gone
	}
	err = h.follow(ctx, out, stream, &measurements{Events: h, caller: route.Caller(ctx), sandbox: filter.Sandbox, every: every})
	if cause := context.Cause(ctx); err != nil && req.Context().Err() == nil {
		if cause != nil {
			err = cause
		}
		if eventstream.IsEnding(err) {
			return nil // the client connects again
		}
		out.problem(req, err)
	}
	return nil
}

// follow sends events and measurements until the stream ends; it returns nil when the client is gone.
func (h *Events) follow(ctx context.Context, out *writer, stream *eventstream.Stream, m *measurements) error {
	wake := time.NewTimer(0)
	defer wake.Stop()
	ping, measure := time.Now().Add(h.Ping), time.Now()
	for {
		wait := time.Until(ping)
		if m.every > 0 {
			wait = min(wait, time.Until(measure))
		}
		wake.Reset(wait)
		events, err := stream.Next(ctx, wake.C)
		if err != nil {
			return err
		}
		now := time.Now()
		switch {
		case len(events) > 0:
			err = out.events(events)
		case !now.Before(ping):
			err = out.send(fmt.Sprintf(": ping\nid: %d\n\n", stream.Cursor()))
		}
		if len(events) > 0 || !now.Before(ping) {
			ping = now.Add(h.Ping)
		}
		if err == nil && m.every > 0 && !now.Before(measure) {
			err = out.measurements(m.take(ctx))
			measure = time.Now().Add(m.every)
		}
		if err != nil {
			return nil
		}
	}
}

// watch ends ctx when the credentials of the request do not permit to read events any more.
func (h *Events) watch(ctx context.Context, req *http.Request, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(h.Ping) // for what expires
	defer tick.Stop()
	for {
		changed := h.Auth.Changed() // before the check
		switch err := h.check(req); {
		case err == nil, ctx.Err() != nil:
		case sandbox.CodeOf(err) == sandbox.Internal: // the next check may work
			edge.Log(req.Context(), err)
		default:
			cancel(err)
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check returns nil while the credentials of the request permit to read events.
func (h *Events) check(req *http.Request) error {
	id, err := h.Auth.Authenticate(req)
	if err == nil && (!id.May(account.SandboxesRead) || id.Workspace != route.Caller(req.Context()).Workspace) {
		err = sandbox.Errorf(sandbox.Forbidden, "your permission to read events was withdrawn")
	}
	return err
}

// parse reads the parameters of a stream.
func (h *Events) parse(req *http.Request) (f sandbox.EventFilter, from eventstream.From, err error) {
	q := req.URL.Query()
	for name := range q {
		switch name {
		case "sandbox", "type", "since", "after_seq", "stats":
		default:
			return f, from, sandbox.InvalidField(sandbox.Excerpt(name), "is not a parameter of this route; the parameters are sandbox, type, since, after_seq and stats")
		}
	}
	if f, err = h.filter(req.Context(), q.Get("sandbox"), q["type"]); err != nil {
		return f, from, err
	}
	if since := q.Get("since"); since != "" {
		if from.Since, err = time.Parse(time.RFC3339, since); err != nil {
			return f, from, sandbox.InvalidField("since", "must be a time such as 2026-01-31T12:00:00Z")
		}
	}
	field, after := "after_seq", q.Get("after_seq")
	if last := req.Header.Get("Last-Event-ID"); last != "" {
		field, after = "Last-Event-ID", last
	}
	if after != "" {
		seq, err := strconv.ParseInt(after, 10, 64)
		if err != nil || seq < 0 {
			return f, from, sandbox.InvalidField(field, "must be the number of an event")
		}
		from.After = &seq
	}
	return f, from, nil
}

// writer writes the messages of a stream.
type writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *writer) send(text string) error {
	if _, err := o.w.Write([]byte(text)); err != nil {
		return err
	}
	return o.control.Flush()
}

func (o *writer) events(list []sandbox.Event) error {
	var b bytes.Buffer
	for i := range list {
		data, err := json.Marshal(Show(list[i]))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "id: %d\ndata: %s\n\n", list[i].Seq, data)
	}
	return o.send(b.String())
}

// problem sends the error that ends a stream.
func (o *writer) problem(req *http.Request, err error) {
	data, encodeErr := json.Marshal(edge.Problem(req.Context(), err))
	if encodeErr != nil {
		return
	}
	_ = o.send("event: problem\ndata: " + string(data) + "\n\n") // a client that is gone misses it
}
