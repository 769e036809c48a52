package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// silenceMax is the silence after which a stream of events connects again: the server sends
	// something every 15 seconds.
	silenceMax = time.Minute
	// messageMax bounds a line of a stream of events, in bytes.
	messageMax = 1 << 20
)

// Events has the calls for the events of all sandboxes of the workspace; [Sandboxes.Events] lists the
// events of a sandbox.
type Events struct{ *transport }

// EventFilter selects events of a workspace; the zero value selects all, oldest first.
type EventFilter struct {
	Sandbox      string   // an id or a name
	Types        []string // as "created"
	Since, Until time.Time
	AfterSeq     int64 // only events with a larger Seq
	Descending   bool
}

// FollowOptions select the events of a stream, and where it begins: after AfterSeq, else with the
// first event after Since, else with the next event to come.
type FollowOptions struct {
	Sandbox  string   // an id or a name
	Types    []string // as "created"
	Since    time.Time
	AfterSeq int64
}

// List lists events. Errors: NotFound for the sandbox; Invalid, naming the field.
func (c *Events) List(o EventFilter) *List[Event] {
	query := map[string]string{"sandbox": o.Sandbox, "since": timestamp(o.Since), "until": timestamp(o.Until)}
	if o.AfterSeq != 0 {
		query["after_seq"] = strconv.FormatInt(o.AfterSeq, 10)
	}
	if o.Descending {
		query["order"] = "desc"
	}
	l := newList[Event](c.transport, "/v1/events", query)
	for _, t := range o.Types {
		l.query.Add("type", t)
	}
	return l
}

// timestamp writes a time as a parameter; "" for the zero time.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Follow iterates over events as they happen, until ctx ends. When the connection breaks or the
// server restarts, it connects again and goes on after the last event: no event is missing or comes
// twice. To go on in another process, pass Seq of the last event as AfterSeq.
//
// It yields the error that ends it: the context's; NotFound for the sandbox; Invalid, naming the
// field; Unauthenticated or Forbidden also when the token loses its rights; and if the first
// connection cannot be made, its error.
func (c *Events) Follow(ctx context.Context, o FollowOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s := &eventStream{transport: c.transport, query: url.Values{}}
		for name, value := range map[string]string{"sandbox": o.Sandbox, "since": timestamp(o.Since)} {
			if value != "" {
				s.query.Set(name, value)
			}
		}
		s.query["type"] = o.Types
		if o.AfterSeq > 0 {
			s.last = strconv.FormatInt(o.AfterSeq, 10)
		}
		if err := s.run(ctx, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, err)
		}
	}
}

// eventStream is a stream over any number of connections.
type eventStream struct {
	transport *transport
	query     url.Values
	last      string // the id of the last message
	known     bool   // the server has answered before
}

// run calls each with every event until it returns false.
func (s *eventStream) run(ctx context.Context, each func(Event) bool) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 200*time.Millisecond, 15*time.Second
	for {
		before := s.last
		done, err := s.connect(ctx, each)
		if done || err != nil && !s.temporary(ctx, err) {
			return err
		}
		if s.last != before {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		var e *Error
		if errors.As(err, &e) {
			pause = max(pause, e.RetryAfter)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// temporary reports whether another connection may work.
func (s *eventStream) temporary(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !s.known {
		return false
	}
	var e *Error
	if !errors.As(err, &e) {
		return true
	}
	return e.Code == Unavailable || e.Code == QuotaExceeded || e.Code == Timeout || e.Code == Internal
}

// connect reads a connection to its end. done means that each returned false.
func (s *eventStream) connect(ctx context.Context, each func(Event) bool) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(silenceMax, cancel)
	defer silence.Stop()
	r := request{method: http.MethodGet, path: "/v1/events/stream", query: s.query, header: http.Header{}, repeat: !s.known}
	if s.last != "" {
		r.header.Set("Last-Event-ID", s.last)
	}
	resp, err := s.transport.send(ctx, r)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	s.known = true
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 16<<10), messageMax)
	m := message{}
	for lines.Scan() {
		silence.Reset(silenceMax)
		if len(lines.Bytes()) > 0 {
			m.add(lines.Bytes())
			continue
		}
		if done, err := s.take(&m, each); done || err != nil {
			return done, err
		}
		m = message{}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fmt.Errorf("read events: %w", err)
	}
	return false, nil
}

// take handles a whole message.
func (s *eventStream) take(m *message, each func(Event) bool) (done bool, err error) {
	switch {
	case m.event == "problem":
		var p problem
		if err := json.Unmarshal(m.data, &p); err != nil {
			return false, fmt.Errorf("read events: %w", err)
		}
		return false, &Error{Code: p.Code, Message: p.Detail, Fields: p.Errors}
	case len(m.data) > 0 && m.event == "":
		var e Event
		if err := json.Unmarshal(m.data, &e); err != nil {
			return false, fmt.Errorf("read an event: %w", err)
		}
		s.last = m.id
		return !each(e), nil
	}
	if m.id != "" {
		s.last = m.id
	}
	return false, nil
}

// message is a server-sent event.
type message struct {
	id, event string
	data      []byte
}

// add adds a line.
func (m *message) add(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "id":
		m.id = string(value)
	case "event":
		m.event = string(value)
	case "data":
		if len(m.data) > 0 {
			m.data = append(m.data, '\n')
		}
		m.data = append(m.data, value...)
	}
}
