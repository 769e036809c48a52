// Package edge is the HTTP wrapper around every handler of the server: request
// ids, panics, and the one place that logs what went wrong on our side.
package edge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/tracing"
)

// RequestIDHeader carries the id of a request, made by us, in every answer.
const RequestIDHeader = "X-Request-Id"

type contextKey struct{}

type request struct {
	id       string
	remote   string
	logger   *slog.Logger
	reserved reservation // of its body
	closed   bool        // it failed because its client disconnected
}

// Admission bounds what a client may have under way: conns.Tracker.
type Admission interface {
	// Begin begins a request, and returns what to ask when its user is known and what to
	// call at its end. Errors: QuotaExceeded.
	Begin(r *http.Request) (countUser func(user string) error, end func(), err error)
}

// Options are how requests are wrapped.
type Options struct {
	// Logger receives the errors of the server. Must be set.
	Logger *slog.Logger
	// Access gets one line for each request; nil for none.
	Access *slog.Logger
	// AccessURLs has requests to the URLs of sandboxes logged at level info instead of debug.
	AccessURLs bool
	// Admission may be nil.
	Admission Admission
	// Memory counts bodies that are read as a whole; nil counts none.
	Memory Memory
	// Metrics measures the requests; nil for none.
	Metrics *Metrics
	// Traces begins a trace for each request; nil for none.
	Traces *tracing.Tracer
}

// statusClientClosed is the status in the log, metrics and traces of a request that failed because its client
// disconnected, which is no failure of the server. nginx has it, HTTP does not.
const statusClientClosed = 499

// Wrap is [Options.Wrap] with only a logger.
func Wrap(logger *slog.Logger, next http.Handler) http.Handler {
	return Options{Logger: logger}.Wrap(next)
}

// Wrap gives every request an id, turns panics into code internal, and logs
// both with that id. A panic after the answer has begun ends the connection, so
// that the client does not take a part for the whole. Bodies and answers must go on:
// docs/limits.md says how fast.
func (o Options) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		q := &request{id: uuid.NewString(), remote: r.RemoteAddr, logger: o.Logger, reserved: reservation{memory: o.Memory}}
		w.Header().Set(RequestIDHeader, q.id)
		ctx, span := o.Traces.Request(r)
		ctx = context.WithValue(ctx, contextKey{}, q)
		var countUser func(string) error
		var refused error
		if o.Admission != nil {
			var end func()
			if countUser, end, refused = o.Admission.Begin(r); refused == nil {
				defer end()
			}
		}
		record := access.New(countUser)
		r2 := r.WithContext(access.WithRecord(ctx, record))
		o.Metrics.begin()
		t, body := newTransfer(w, r, record)
		r2.Body = body
		defer func() {
			v := recover()
			if v != nil && v != http.ErrAbortHandler {
				o.Logger.ErrorContext(ctx, "panic", "request_id", q.id, "method", r.Method, "route", record.Route(),
					"panic", v, "stack", string(debug.Stack()))
				if !t.started {
					apierror.New(sandbox.Errorf(sandbox.Internal, "panic"), q.id).Write(t)
					v = nil
				}
			}
			q.reserved.end()
			t.end()
			if q.closed {
				t.status = statusClientClosed
			}
			o.log(r2, q.id, record, t, begun)
			o.Metrics.end(r2, record, t, begun, v != nil)
			span.Answered(methodLabel(r.Method), routeLabel(record.Route()), cmp.Or(t.status, http.StatusOK), q.id)
			if v != nil {
				panic(http.ErrAbortHandler)
			}
		}()
		if refused != nil {
			Error(t, r2, refused)
			return
		}
		next.ServeHTTP(t, r2)
	})
}

// RequestID returns the id of the request, "" outside of [Wrap].
func RequestID(ctx context.Context) string {
	if q, ok := ctx.Value(contextKey{}).(*request); ok {
		return q.id
	}
	return ""
}

// RemoteAddr returns where the request came from, address and port; "" outside of [Wrap].
func RemoteAddr(ctx context.Context) string {
	if q, ok := ctx.Value(contextKey{}).(*request); ok {
		return q.remote
	}
	return ""
}

// LogBroken logs why an answer ends before its end: the client sees only that the connection
// breaks. It logs nothing if the client has disconnected.
func LogBroken(ctx context.Context, err error) {
	audit.FromContext(ctx).Fail(sandbox.CodeOf(err))
	if q, ok := ctx.Value(contextKey{}).(*request); ok && ctx.Err() == nil {
		q.logger.WarnContext(ctx, "answer broke off", "request_id", q.id, "error", err)
	}
}

// Log logs err when it is a fault of ours; the audit log alone records errors of callers. Every
// error of a handler goes through here exactly once.
func Log(ctx context.Context, err error) {
	audit.FromContext(ctx).Fail(sandbox.CodeOf(err))
	if e := (sandbox.Elsewhere{}); errors.As(err, &e) {
		access.FromContext(ctx).SetElsewhere(e.Range)
	}
	if sandbox.CodeOf(err) != sandbox.Internal {
		return
	}
	q, ok := ctx.Value(contextKey{}).(*request)
	if !ok {
		return
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		q.closed = true // there is no answer
		return
	}
	q.logger.ErrorContext(ctx, "request failed", "request_id", q.id, "error", err)
}

// Problem logs err when it must be and returns its public side.
func Problem(ctx context.Context, err error) *apierror.Problem {
	if errors.Is(err, context.DeadlineExceeded) && sandbox.CodeOf(err) == sandbox.Internal {
		err = sandbox.Wrap(sandbox.Timeout, err, "it did not finish in time")
	}
	Log(ctx, err)
	return apierror.New(err, RequestID(ctx))
}

// Error answers a request with err.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 && (r.ContentLength < 0 || r.ContentLength > 256<<10) {
		// Otherwise net/http waits, before it answers, for as much more of the body.
		w.Header().Set("Connection", "close")
	}
	Problem(r.Context(), err).Write(w)
}

// Handler is an HTTP handler that returns its error instead of answering it. It
// must not return one after it has begun to answer.
type Handler func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP answers the request, and the error when there is one.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		Error(w, r, err)
	}
}
