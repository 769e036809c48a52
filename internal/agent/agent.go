package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/fileserver"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	maxHeaderBytes = 64 << 10
	// maxStreams is the limit per connection; the client of agentapi opens far fewer.
	maxStreams = 256
	// idleHeader bounds how long a new connection may take to send its first header.
	idleHeader = 30 * time.Second
	// quiet is how long a connection may be without data from the host before the agent pings the
	// host, and silent how long the host may take to answer. The host itself sends pings more
	// often, so the agent pings only connections that broke without its noticing: connections that
	// gVisor saved half closed, and connections that nobody reads. They would block the processes
	// attached to them for ever.
	quiet, silent = 30 * time.Second, 30 * time.Second
)

// Options are the settings of an agent. The zero value is an agent that is not init and uses the
// root of the filesystem.
type Options struct {
	// Version is the version in the answer of Health.
	Version string
	// Init is whether this process is PID 1 of the sandbox: then it reaps all children, and
	// Configure sets the host name.
	Init bool
	// Root is a directory that replaces / in paths of files, working directories, and the user
	// database. Processes themselves are NOT confined to it: it exists for tests.
	Root string
	// Blank is whether PID 1 has no root filesystem before a configuration with layers.
	Blank bool
	// Mounts are the mounts to move into the root that this configuration makes, see [ComposeRoot].
	Mounts []string
	// DetachGrace replaces [agentapi.DetachGrace] when it is not 0.
	DetachGrace time.Duration
	// WatchedDirs replaces [agentapi.MaxWatchedDirs], and QueuedEvents the number of unsent events
	// of a watch, when they are not 0.
	WatchedDirs, QueuedEvents int
	// WatchWait, when it is not 0, replaces how long a new watch waits for another to end when the
	// sandbox has the maximum number of watches.
	WatchWait time.Duration
	// Log receives problems that no caller gets as an error; nil discards them.
	Log *slog.Logger
}

// Agent answers the calls of package agentapi. It is safe for concurrent use.
type Agent struct {
	opts    Options
	log     *slog.Logger
	reaper  *reaper
	procs   *table
	limits  supervisor
	tunnels chan struct{} // holds a token for each open tunnel
	root    rootdir.Root
	files   *fileserver.Server
	server  *http.Server // of connections to the agent's port
	direct  *http.Server // of connections that were handed over
	conns   *conns
	calls   sync.RWMutex // held shared by every handler; Close takes it for good
	close   func() error // ends the agent, once

	furnishing sync.Mutex
	furnished  bool // guarded by furnishing

	mu         sync.Mutex
	config     agentapi.Config // guarded by mu
	configured bool            // guarded by mu
	main       *process        // guarded by mu; nil when there is none
}

// New returns an agent. An agent with Init must be the only one in its process, and nothing else in
// the process may wait for children.
func New(opts Options) *Agent {
	if opts.DetachGrace == 0 {
		opts.DetachGrace = agentapi.DetachGrace
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	a := &Agent{
		opts:    opts,
		log:     opts.Log,
		root:    rootdir.Root(opts.Root),
		reaper:  newReaper(opts.Init),
		procs:   newTable(),
		tunnels: make(chan struct{}, maxTunnels),
		conns:   newConns(),
	}
	a.files = fileserver.New(fileserver.Options{
		Root: a.root, Config: a.defaults, WatchedDirs: opts.WatchedDirs, QueuedEvents: opts.QueuedEvents, WatchWait: opts.WatchWait, Log: opts.Log,
	})
	a.close = sync.OnceValue(a.end)
	routes := a.routes()
	a.server, a.direct = a.newServer(routes), a.newServer(routes)
	// Web pages in the sandbox could make a browser send such requests to the port.
	a.direct.Protocols.SetHTTP1(true)
	return a
}

// newServer returns a server that speaks HTTP/2.
func (a *Agent) newServer(routes http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           routes,
		ConnContext:       withConn,
		Protocols:         &protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: idleHeader,
		ErrorLog:          slog.NewLogLogger(a.opts.Log.Handler(), slog.LevelWarn),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: agentapi.MaxInFlight,
			MaxReceiveBufferPerStream:     agentapi.StreamWindow,
			MaxReadFrameSize:              agentapi.MaxFrame,
			SendPingTimeout:               quiet,
			PingTimeout:                   silent,
		},
	}
}

// Serve answers connections of l until l fails or Close is called; after Close it returns nil. It
// may be called for several listeners.
func (a *Agent) Serve(l net.Listener) error {
	server := a.server
	_, whole := l.(handover)
	if whole {
		server = a.direct
	}
	if err := server.Serve(nudgingListener{l, a.conns, whole}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// closeTimeout bounds how long Close waits for killed processes.
const closeTimeout = time.Minute

// Close ends all connections and kills all processes that the agent started, with their families.
// It waits, within bounds, for calls and processes to end.
func (a *Agent) Close() error { return a.close() }

func (a *Agent) end() error {
	err := errors.Join(a.server.Close(), a.direct.Close())
	a.conns.closeWhole() // a server does not close the connections of tunnels
	a.killAll()          // calls may wait for processes
	over := make(chan struct{})
	go func() {
		a.calls.Lock()
		close(over)
	}()
	timeout := time.After(closeTimeout)
	select {
	case <-over:
	case <-timeout:
		a.log.Warn("calls have not ended")
		return err
	}
	a.killAll() // processes that the last calls started
	select {
	case <-a.procs.idle():
	case <-timeout:
		a.log.Warn("killed processes have not ended")
	}
	return err
}

func (a *Agent) killAll() {
	for _, p := range a.procs.list() {
		p.kill()
	}
}

func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, h) })
	}
	handle("GET /health", a.health)
	handle("POST /configure", a.configure)
	handle("POST /exec", a.exec)
	handle("GET /processes", a.processes)
	handle("POST /processes/{id}/attach", a.attach)
	handle("POST /processes/{id}/signal", a.signal)
	handle("POST /processes/{id}/resize", a.resize)
	handle("POST /tunnel", a.tunnel)
	handle("GET /files", a.files.Read)
	handle("PUT /files", a.files.Write)
	handle("DELETE /files", a.files.Remove)
	handle("GET /files/stat", a.files.Stat)
	handle("GET /files/list", a.files.List)
	handle("POST /files/mkdir", a.files.MakeDir)
	handle("POST /files/move", a.files.Move)
	handle("GET /files/archive", a.files.Pack)
	handle("PUT /files/archive", a.files.Unpack)
	handle("PUT /files/layer", a.restoreLayer)
	handle("GET /files/watch", a.files.Watch)
	return mux
}

// answer runs a handler and writes the error that it returns. A panic of a handler affects its own
// call only.
func (a *Agent) answer(w http.ResponseWriter, r *http.Request, h func(http.ResponseWriter, *http.Request) error) {
	defer func() {
		if v := recover(); v != nil {
			if v != http.ErrAbortHandler {
				a.log.Error("handler panicked", "path", r.URL.Path, "panic", v)
			}
			panic(http.ErrAbortHandler)
		}
	}()
	if !a.calls.TryRLock() {
		panic(http.ErrAbortHandler) // the agent is closed
	}
	defer a.calls.RUnlock()
	err := h(w, r)
	switch {
	case err == nil:
	case errors.Is(err, answer.ErrAborted), r.Context().Err() != nil:
		panic(http.ErrAbortHandler)
	default:
		answer.Fail(w, err)
	}
}

func (a *Agent) health(w http.ResponseWriter, _ *http.Request) error {
	a.mu.Lock()
	h := agentapi.Health{Version: a.opts.Version, Configured: a.configured}
	main := a.main
	a.mu.Unlock()
	if main != nil {
		info := main.info()
		h.Main = &info
	}
	return answer.JSON(w, h)
}

// defaults returns the configuration that commands start from.
func (a *Agent) defaults() agentapi.Config {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.config
}
