// Package edge is the HTTP wrapper around every handler of the server: request
// ids, panics, and the one place that logs what went wrong on our side.
package edge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/api/wire"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// RequestIDHeader carries the id of a request, made by us, in every answer.
const RequestIDHeader = "X-Request-Id"

type contextKey struct{}

type request struct {
	id     string
	remote string
	logger *slog.Logger
}

// Wrap gives every request an id, turns panics into code internal, and logs
// both with that id. A panic after the answer has begun ends the connection, so
// that the client does not take a part for the whole.
func Wrap(logger *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := &request{id: uuid.NewString(), remote: r.RemoteAddr, logger: logger}
		w.Header().Set(RequestIDHeader, q.id)
		r = r.WithContext(context.WithValue(r.Context(), contextKey{}, q))
		started := &startedWriter{ResponseWriter: w}
		defer func() {
			switch v := recover(); {
			case v == nil:
			case v == http.ErrAbortHandler:
				panic(v)
			default:
				logger.ErrorContext(r.Context(), "panic", "request_id", q.id, "method", r.Method, "route", r.Pattern,
					"panic", v, "stack", string(debug.Stack()))
				if started.started {
					panic(http.ErrAbortHandler)
				}
				wire.NewProblem(sandbox.Errorf(sandbox.Internal, "panic"), q.id).Write(w)
			}
		}()
		next.ServeHTTP(started, r)
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

// Log logs err when it is a fault of ours; errors that the caller is told are
// noted in the audit log alone. Every error of a handler goes through here exactly once.
func Log(ctx context.Context, err error) {
	audit.FromContext(ctx).Fail(sandbox.CodeOf(err))
	if sandbox.CodeOf(err) != sandbox.Internal {
		return
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return // the client went away; nobody is told anything
	}
	q, ok := ctx.Value(contextKey{}).(*request)
	if !ok {
		return
	}
	q.logger.ErrorContext(ctx, "request failed", "request_id", q.id, "err", err)
}

// Problem logs err when it must be and returns its public side.
func Problem(ctx context.Context, err error) *wire.Problem {
	if errors.Is(err, context.DeadlineExceeded) && sandbox.CodeOf(err) == sandbox.Internal {
		err = sandbox.Wrap(sandbox.Timeout, err, "it did not finish in time")
	}
	Log(ctx, err)
	return wire.NewProblem(err, RequestID(ctx))
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

// startedWriter remembers whether the answer has begun.
type startedWriter struct {
	http.ResponseWriter
	started bool
}

func (w *startedWriter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.started = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *startedWriter) Write(p []byte) (int, error) {
	w.started = true
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach flush, hijack and deadlines.
func (w *startedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// BodyTime is how long a body that is read as a whole may take to arrive. Bodies
// that are streamed on have no such limit.
const BodyTime = 30 * time.Second

// Body returns the request's body, bounded in size and time; done lifts the time
// limit again, which would otherwise end the request's context later.
func Body(w http.ResponseWriter, r *http.Request, max int64) (body io.Reader, done func()) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(BodyTime)) // a transport without deadlines, as in tests
	return http.MaxBytesReader(w, r.Body, max), func() { _ = c.SetReadDeadline(time.Time{}) }
}
