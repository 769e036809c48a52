package audit

import (
	"net/http"
	"time"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
)

// Operation describes the operation of a route for the log.
type Operation struct {
	// Action is the name of the action, from the operation IDs of /v1, whichever API was used:
	// create-sandbox, exec.
	Action string
	// Route is the pattern, Needs the permission that it requires.
	Route string
	Needs account.Permission
	// Fail answers a request that cannot be recorded; if nil, the answer is the bare status.
	Fail func(http.ResponseWriter, *http.Request, error)
}

// requestIDHeader is the header with the id of a request in its answer.
const requestIDHeader = "X-Request-Id"

// Handler records each request to next as an operation; see the package comment. It must be the
// handler of a [http.ServeMux], whose path values it reads. Routes that change or run something
// need IntentHandler also. op must not change after the first request.
func (l *Log) Handler(op *Operation, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := l.ready(op.Action); err != nil {
			op.fail(w, r, err)
			return
		}
		e := l.begin(op, w, r)
		answer := &statusWriter{ResponseWriter: w}
		finished := false
		defer func() {
			defer l.leave(e)
			if !finished { // a panic
				e.Fail(sandbox.Internal)
			}
			if access.FromContext(r.Context()).PassedOn() {
				e.drop()
				return
			}
			if err := e.end(r.Context(), answer.status); err != nil {
				l.logger.ErrorContext(r.Context(), "audit record not written in time", "error", err)
			}
		}()
		next.ServeHTTP(answer, r.WithContext(WithEntry(r.Context(), e)))
		finished = true
	})
}

// IntentHandler stores the intent of an operation before next runs, and refuses the request if that
// fails. Its place is after authorization.
func (l *Log) IntentHandler(op *Operation, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !runsCommand(op.Action) {
			if err := FromContext(r.Context()).Begin(r.Context()); err != nil {
				op.fail(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// fail answers a request that is refused because it cannot be recorded.
func (op *Operation) fail(w http.ResponseWriter, r *http.Request, err error) {
	if op.Fail == nil {
		http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
		return
	}
	op.Fail(w, r, err)
}

func (l *Log) begin(op *Operation, w http.ResponseWriter, r *http.Request) *Entry {
	e := l.entry(op, w.Header().Get(requestIDHeader), r.RemoteAddr, r.UserAgent())
	named(&e.record, op.Route, r)
	l.enter(e)
	return e
}

// entry returns the entry of an operation that a client at remote asked for with its program.
func (l *Log) entry(op *Operation, requestID, remote, program string) *Entry {
	e := &Entry{log: l, begun: time.Now()}
	var address string
	address, e.group = Client(remote)
	e.record = Record{
		Action: op.Action, Route: op.Route, Permission: string(op.Needs), RequestID: requestID,
		Address: text(address, idMax), UserAgent: text(program, agentMax),
	}
	return e
}

// statusWriter records the status of the answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach flush, hijack and deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
