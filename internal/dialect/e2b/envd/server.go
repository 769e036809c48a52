// Package envd serves what the published E2B clients call inside a sandbox: commands by the service
// process.Process, files by filesystem.Filesystem and HTTP. The server answers for the sandbox, over
// calls to its agent; no program of the clients runs in it.
package envd

import (
	"context"
	"errors"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/modbox/modbox/internal/access"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/filesystem/filesystemconnect"
	"github.com/modbox/modbox/internal/dialect/e2b/envdpb/process/processconnect"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// Port is the port at which the clients expect this service.
const Port = 49983

const (
	// messageMax bounds a message of a client, which may carry input for a command; pieceMax bounds the
	// messages of a stream of input.
	messageMax = 8 << 20
	pieceMax   = 64 << 10
	// viaToken is the value of Via in the audit log for access by a sandbox's own token.
	viaToken = "sandbox-url"
	// tokenHeader has the access token of the sandbox.
	tokenHeader = "X-Access-Token"
)

// Server serves all sandboxes. Safe for concurrent use.
type Server struct {
	credentials e2b.Credentials
	mux         *http.ServeMux
	work        *background.Group // the connections to processes, and the watches
	users       *accounts
}

// New returns a server, which records what it does in log. The caller closes it.
func New(calls *guest.Calls, credentials e2b.Credentials, log *audit.Log) (*Server, error) {
	users, err := newAccounts(calls)
	if err != nil {
		return nil, err
	}
	s := &Server{credentials: credentials, mux: http.NewServeMux(), work: background.New(), users: users}
	s.work.Start()
	processes := newProcesses(s.work, calls, users)
	files := &files{calls: calls, users: users, watchers: newWatchers(s.work, calls)}
	transfers := &transfers{calls: calls, users: users, credentials: credentials}
	_, processHandler := processconnect.NewProcessHandler(processes, connect.WithReadMaxBytes(messageMax))
	_, inputHandler := processconnect.NewProcessHandler(processes, connect.WithReadMaxBytes(pieceMax))
	_, fileHandler := filesystemconnect.NewFilesystemHandler(files, connect.WithReadMaxBytes(pieceMax))
	processHandler, fileHandler = counted(processHandler), counted(fileHandler)
	download, err := compressed(transfers.handler(transfers.download))
	if err != nil {
		users.close()
		return nil, err
	}
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for pattern, rt := range map[string]route{
		"POST /process.Process/List":                   {handler: processHandler},
		"POST /process.Process/Connect":                {handler: processHandler},
		"POST /process.Process/Start":                  {handler: processHandler, action: "exec-stream"},
		"POST /process.Process/Update":                 {handler: processHandler},
		"POST /process.Process/StreamInput":            {handler: inputHandler},
		"POST /process.Process/SendInput":              {handler: processHandler},
		"POST /process.Process/SendSignal":             {handler: processHandler},
		"POST /process.Process/CloseStdin":             {handler: processHandler},
		"POST /filesystem.Filesystem/Stat":             {handler: fileHandler},
		"POST /filesystem.Filesystem/ListDir":          {handler: fileHandler},
		"POST /filesystem.Filesystem/WatchDir":         {handler: fileHandler},
		"POST /filesystem.Filesystem/MakeDir":          {handler: fileHandler, action: "make-directory"},
		"POST /filesystem.Filesystem/Move":             {handler: fileHandler, action: "move-file"},
		"POST /filesystem.Filesystem/Remove":           {handler: fileHandler, action: "delete-file"},
		"POST /filesystem.Filesystem/CreateWatcher":    {handler: fileHandler},
		"POST /filesystem.Filesystem/RemoveWatcher":    {handler: fileHandler},
		"POST /filesystem.Filesystem/GetWatcherEvents": {handler: fileHandler},
		"GET /files":          {handler: download, signed: true},
		"POST /files":         {handler: transfers.handler(transfers.upload), action: "write-files", signed: true},
		"POST /files/compose": {handler: transfers.handler(transfers.compose), action: "write-files"},
		"GET /metrics":        {handler: transfers.handler(transfers.metrics)},
		"GET /envs":           {handler: transfers.handler(transfers.envs)},
	} {
		s.register(log, pattern, rt)
	}
	return s, nil
}

// route is a handler with its name in the audit log.
type route struct {
	handler http.Handler
	// action is its name in the audit log; "" if it changes nothing, or only a command that is recorded.
	action string
	// signed is whether the handler checks the signature of a URL itself.
	signed bool
}

// register adds a route.
func (s *Server) register(log *audit.Log, pattern string, rt route) {
	next := rt.handler
	var op *audit.Operation
	if rt.action != "" {
		op = &audit.Operation{Action: rt.action, Route: pattern, Fail: e2b.WriteError}
		next = log.IntentHandler(op, next)
	}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := visitOf(r.Context())
		e := audit.FromContext(r.Context())
		e.Via(viaToken, v.sb.Workspace)
		e.Object("sandbox", v.ref, v.sb.Name)
		token, err := s.credentials.Check(e2b.Access, v.sb.ID, r.Header.Get(tokenHeader))
		if err == nil && !token && !rt.signed {
			err = sandbox.Errorf(sandbox.Unauthenticated, "this sandbox wants its access token in %s", tokenHeader)
		}
		if err != nil {
			e2b.WriteError(w, r, err)
			return
		}
		v.token = token
		next.ServeHTTP(flusher{w}, r)
	})
	if op != nil {
		h = log.Handler(op, h)
	}
	s.mux.Handle(pattern, access.Routed(pattern, h))
}

// counted counts the memory of the body of a request, which next reads as a whole, for the sandbox's
// workspace.
func counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r2 := *r
		r2.Body = struct {
			io.Reader
			io.Closer
		}{edge.Whole(r.Context(), r.Body), r.Body}
		next.ServeHTTP(w, &r2)
	})
}

// flusher lets package connect flush: it does not look behind a wrapper.
type flusher struct{ http.ResponseWriter }

// Flush implements http.Flusher.
func (f flusher) Flush() {
	_ = http.NewResponseController(f.ResponseWriter).Flush() // the next write finds the error
}

// Unwrap lets http.ResponseController reach deadlines.
func (f flusher) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// Close ends the connections to processes, which go on, and all watches, and waits for their end.
func (s *Server) Close() {
	s.work.Stop()
	s.work.Cancel()
	_ = s.work.Wait(context.Background()) // no error without the end of its context
	s.users.close()
}

// visit is a request to a sandbox. A client with the sandbox's token acts for the sandbox's owner.
type visit struct {
	sb     sandbox.Sandbox
	caller sandbox.Caller
	ref    string
	token  bool // it came with the access token
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// ServeSandbox answers a request to a running sandbox.
func (s *Server) ServeSandbox(w http.ResponseWriter, r *http.Request, sb sandbox.Sandbox) {
	v := &visit{sb: sb, ref: string(sb.ID), caller: sandbox.Caller{User: sb.CreatedBy, Workspace: sb.Workspace}}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, v))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if _, pattern := s.mux.Handler(r); pattern == "" {
		e2b.WriteError(w, r, sandbox.Errorf(sandbox.NotFound, "there is no route %s %s", r.Method, r.URL.Path))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// public returns an error for an answer by Connect.
func public(ctx context.Context, err error) error {
	var already *connect.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	code, message := describe(ctx, err)
	return connect.NewError(code, errors.New(message))
}
