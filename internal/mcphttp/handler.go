package mcphttp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// Path is the path of the endpoint.
	Path = "/mcp"

	sessionHeader = "Mcp-Session-Id"
	// maxBody bounds a message, such as the content of a file, in bytes.
	maxBody = 8 << 20
	// endTime bounds the end of a session's sandbox.
	endTime = 30 * time.Second
)

// Config are the limits of sessions; 0 means no limit.
type Config struct {
	// MaxSessions, PerWorkspace and PerUser bound the sessions.
	MaxSessions, PerWorkspace, PerUser int
	// IdleTimeout ends a session without requests.
	IdleTimeout time.Duration
	// URL is the address of the server, whose pages may use the endpoint, and Origins are the origins
	// of other pages that may; "*" is every origin.
	URL     string
	Origins []string
	// Version is the version of this program, for clients.
	Version string
}

// Handler serves sessions. Make it with [New]. Safe for concurrent use.
type Handler struct {
	cfg     Config
	api     http.Handler
	log     *slog.Logger
	streams *sdk.StreamableHTTPHandler
	running sync.WaitGroup // of sessions, until their sandboxes have ended

	mu           sync.Mutex
	sessions     map[string]*session         // by id; guarded by mu
	perUser      map[sandbox.UserID]int      // guarded by mu
	perWorkspace map[sandbox.WorkspaceID]int // guarded by mu
	closed       bool                        // guarded by mu
}

// New returns a handler whose sessions call api, which must authenticate its requests.
func New(cfg Config, api http.Handler, log *slog.Logger) *Handler {
	h := &Handler{
		cfg: cfg, api: api, log: log, sessions: map[string]*session{},
		perUser: map[sandbox.UserID]int{}, perWorkspace: map[sandbox.WorkspaceID]int{},
	}
	// The library asks for a server with every request, but uses it for new sessions only.
	other := sdk.NewServer(&sdk.Implementation{Name: "modbox", Version: cfg.Version}, nil)
	h.streams = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		if s, ok := r.Context().Value(newSession{}).(*session); ok {
			return s.tools.Server()
		}
		return other
	}, &sdk.StreamableHTTPOptions{
		SessionTimeout: cfg.IdleTimeout, MaxRequestBodyBytes: maxBody,
		// Handler.checkOrigin does more. Requests of a TLS proxy on the same host have its public name.
		DisableLocalhostProtection: true,
	})
	return h
}

// newSession is the key of the session that a request begins, in its context.
type newSession struct{}

// ServeHTTP serves a request that is authenticated.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	edge.Handler(h.serve).ServeHTTP(w, r)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	if err := h.checkOrigin(r); err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		if err := readBody(w, r); err != nil {
			return err
		}
	}
	id := r.Header.Get(sessionHeader)
	if id == "" && r.Method == http.MethodPost {
		return h.first(w, r)
	}
	if id != "" {
		s, err := h.find(id, r)
		if err != nil {
			return err
		}
		if r.Method == http.MethodDelete {
			s.tools.Cancel() // the library waits for calls under way
		}
	}
	h.streams.ServeHTTP(w, r)
	return nil
}

// readBody reads the body as a whole, within the limits of time and memory of all bodies.
func readBody(w http.ResponseWriter, r *http.Request) error {
	body, done := edge.Body(w, r, maxBody)
	defer done()
	b, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return sandbox.Wrap(sandbox.TooLarge, err, "a message may have %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// checkOrigin refuses requests of web pages that may not use the endpoint.
func (h *Handler) checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" || strings.EqualFold(origin, h.cfg.URL) || slices.Contains(h.cfg.Origins, "*") || slices.Contains(h.cfg.Origins, strings.ToLower(origin)) {
		return nil
	}
	return sandbox.Errorf(sandbox.Forbidden, "pages of %s may not use this server: its setting http.cors_origins does not have that origin", origin)
}

// first serves a request without a session, which begins a session.
func (h *Handler) first(w http.ResponseWriter, r *http.Request) error {
	identity, _ := auth.FromContext(r.Context())
	s := &session{id: rand.Text(), owner: ownerOf(identity)}
	if err := s.open(h, r); err != nil {
		return err
	}
	if err := h.add(s); err != nil {
		return err
	}
	defer h.settle(s)
	h.streams.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), newSession{}, s)))
	return nil
}

// add adds a session. Errors: QuotaExceeded; Unavailable when the server is ending.
func (h *Handler) add(s *session) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return sandbox.Errorf(sandbox.Unavailable, "the server is ending")
	}
	for _, limit := range []struct {
		have, most int
		whose, set string
	}{
		{h.perUser[s.owner.user], h.cfg.PerUser, "you have", "mcp.max_sessions_per_user"},
		{h.perWorkspace[s.owner.workspace], h.cfg.PerWorkspace, "the workspace has", "mcp.max_sessions_per_workspace"},
		{len(h.sessions), h.cfg.MaxSessions, "the server has", "mcp.max_sessions"},
	} {
		if limit.most > 0 && limit.have >= limit.most {
			return sandbox.Errorf(sandbox.QuotaExceeded, "%s %d MCP sessions, which is the limit (%s); end a session first", limit.whose, limit.have, limit.set)
		}
	}
	h.sessions[s.id] = s
	h.perUser[s.owner.user]++
	h.perWorkspace[s.owner.workspace]++
	h.running.Add(1)
	return nil
}

// settle removes a session after its connection has ended, at once if it has not begun.
func (h *Handler) settle(s *session) {
	for connection := range s.tools.Server().Sessions() {
		h.mu.Lock()
		s.connection = connection
		closed := h.closed
		h.mu.Unlock()
		go func() {
			_ = connection.Wait() // its end, for whatever reason
			h.remove(s)
		}()
		if closed {
			s.end()
		}
		return
	}
	h.remove(s)
}

// remove ends the sandbox of a session whose connection has ended, and forgets the session.
func (h *Handler) remove(s *session) {
	defer h.running.Done()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if err := s.tools.Close(ctx); err != nil { // for example, the token is revoked
		h.log.Info("the sandbox of an MCP session ends by its ttl", "session", s.id[:8], "error", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sessions, s.id)
	if h.perUser[s.owner.user]--; h.perUser[s.owner.user] == 0 {
		delete(h.perUser, s.owner.user)
	}
	if h.perWorkspace[s.owner.workspace]--; h.perWorkspace[s.owner.workspace] == 0 {
		delete(h.perWorkspace, s.owner.workspace)
	}
}

// find returns the session with an id, and lets it act as the request's client from now on. Errors:
// NotFound, also for a session of another token.
func (h *Handler) find(id string, r *http.Request) (*session, error) {
	identity, _ := auth.FromContext(r.Context())
	h.mu.Lock()
	s, ok := h.sessions[id]
	h.mu.Unlock()
	if !ok || s.owner != ownerOf(identity) {
		return nil, sandbox.Somewhere("your token has no MCP session of that id in this workspace; begin another session")
	}
	s.act(r)
	return s, nil
}

// Close ends all sessions with their sandboxes, and refuses others. It may be called again.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	var list []*session
	for _, s := range h.sessions {
		if s.connection != nil {
			list = append(list, s)
		}
	}
	h.mu.Unlock()
	for _, s := range list {
		go s.end()
	}
	h.running.Wait()
}
