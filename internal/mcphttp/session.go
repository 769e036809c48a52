package mcphttp

import (
	"context"
	"net/http"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/mcp"
	"github.com/modbox/modbox/internal/sandbox"
)

// owner identifies the token that a session belongs to. The access tokens of a sign-in change, but
// not the sign-in.
type owner struct {
	user          sandbox.UserID
	workspace     sandbox.WorkspaceID
	token, signIn string
}

func ownerOf(id auth.Identity) owner {
	return owner{user: id.User, workspace: id.Workspace, token: id.TokenID, signIn: id.Session}
}

// session is a session of a client.
type session struct {
	id    string
	owner owner
	tools *mcp.Session
	// connection is nil until the session has begun; guarded by Handler.mu.
	connection *sdk.ServerSession

	mu sync.Mutex
	// Of the client's latest request; guarded by mu.
	secret, remote string
}

// open makes the tools of a session that begins with a request.
func (s *session) open(h *Handler, r *http.Request) error {
	s.act(r)
	c, err := client.New("http://modbox", "",
		client.WithHTTPClient(&http.Client{Transport: &inside{handler: h.api, remote: func() string {
			_, remote := s.caller()
			return remote
		}}}),
		client.WithTokens(func(context.Context) (string, error) {
			secret, _ := s.caller()
			return secret, nil
		}),
		client.WithWorkspace(string(s.owner.workspace)), client.WithUserAgent("modbox-mcp/"+h.cfg.Version),
	)
	if err != nil {
		return err
	}
	s.tools = mcp.New(c, mcp.Options{Version: h.cfg.Version, ID: s.id})
	return nil
}

// act lets the session act as the client of a request from now on.
func (s *session) act(r *http.Request) {
	_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ") // it is authenticated
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret, s.remote = strings.TrimSpace(secret), r.RemoteAddr
}

func (s *session) caller() (secret, remote string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.secret, s.remote
}

// end ends the session's connection.
//
// Preconditions: the session has begun.
func (s *session) end() {
	s.tools.Cancel()
	_ = s.connection.Close() // which session.Wait reports, too
}
