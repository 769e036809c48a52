package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/client/sandbox"
)

const (
	// DefaultLifetime is the lifetime of a session's sandbox after its last use.
	DefaultLifetime = 15 * time.Minute
	// MinLifetime and MaxLifetime bound [Options.Lifetime] and the ttl of other sandboxes.
	MinLifetime = time.Minute
	MaxLifetime = 24 * time.Hour

	// dataImage is the image of a session's sandbox where the server has it.
	dataImage = "modbox/data:latest"
	// discardTime bounds the deletion of a sandbox that was being made when the session ended.
	discardTime = 30 * time.Second
	// maxCalls bounds the calls of a session under way: a client may leave without waiting for them.
	maxCalls = 16
)

// Options configure a session; the zero value is valid.
type Options struct {
	// Version is the version of this program, for clients.
	Version string
	// ID identifies the session over HTTP; "" over other transports.
	ID string
	// Image is the image of the session's sandbox: modbox/data if the server has it, or else the
	// server's default, when empty.
	Image string
	// Internet gives the session's sandbox access to the internet.
	Internet bool
	// Lifetime is the lifetime of the session's sandbox after its last use; 0 is [DefaultLifetime].
	Lifetime time.Duration
}

// Session is a server of tools for one client, with the sandbox of that client. Make it with [New].
type Session struct {
	client    *client.Client
	sandboxes *sandbox.Sandboxes
	options   Options
	server    *sdk.Server
	places    chan struct{} // of calls under way
	ended     context.Context
	end       context.CancelFunc
	calls     sync.WaitGroup

	making chan struct{} // a mutex that waiting can leave; guards own, and is held while it is made

	mu  sync.Mutex
	own *sandbox.Sandbox // guarded by mu
	// until is when the session's sandbox ends if nothing uses it; guarded by mu.
	until time.Time
	over  bool // guarded by mu; no call begins any more
}

// schemas are the schemas of the tools' arguments, which are the same in every session.
var schemas = sdk.NewSchemaCache()

// New returns a session that acts through a client. The caller connects [Session.Server] to a
// transport, and calls [Session.Close] after the connection has ended.
func New(c *client.Client, o Options) *Session {
	if o.Lifetime == 0 {
		o.Lifetime = DefaultLifetime
	}
	s := &Session{client: c, sandboxes: sandbox.On(c), options: o, places: make(chan struct{}, maxCalls), making: make(chan struct{}, 1)}
	s.ended, s.end = context.WithCancel(context.Background())
	s.server = sdk.NewServer(&sdk.Implementation{Name: "modbox", Title: "Modbox", Version: o.Version}, &sdk.ServerOptions{
		Instructions: instructions, SchemaCache: schemas, Capabilities: &sdk.ServerCapabilities{}, GetSessionID: func() string { return o.ID },
	})
	s.addTools()
	s.addDesktopTools()
	return s
}

// Server returns the server of the session's tools, for one connection.
func (s *Session) Server() *sdk.Server { return s.server }

// Cancel ends the calls under way, so that the connection can be closed. New calls fail.
func (s *Session) Cancel() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.end()
}

// Close ends the calls under way, and then the session's sandbox. It may be called again.
func (s *Session) Close(ctx context.Context) error {
	s.Cancel()
	s.calls.Wait()
	s.mu.Lock()
	own := s.own
	s.own = nil
	s.mu.Unlock()
	if own == nil {
		return nil
	}
	if err := own.Delete(ctx); err != nil && !errors.Is(err, client.NotFound) {
		return fmt.Errorf("end sandbox %s of the session: %w", own.ID, err)
	}
	return nil
}

// begin counts a call under way. The context of the call also ends with the session.
func (s *Session) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return nil, nil, &client.Error{Code: client.Ended, Message: "the session has ended"}
	}
	select {
	case s.places <- struct{}{}:
	default:
		return nil, nil, &client.Error{Code: client.QuotaExceeded, Message: fmt.Sprintf("%d calls of this session are under way; wait for one of them to end", maxCalls)}
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ended, cancel)
	return ctx, func() {
		stop()
		cancel()
		<-s.places
		s.calls.Done()
	}, nil
}

// find returns the sandbox that an argument names, running, or the session's own sandbox, which it
// makes if there is none and extends for a call of this length.
func (s *Session) find(ctx context.Context, ref string, length time.Duration) (*sandbox.Sandbox, error) {
	if ref != "" {
		return s.sandboxes.Connect(ctx, ref)
	}
	select {
	case s.making <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.making }()
	s.mu.Lock()
	own, until := s.own, s.until
	s.mu.Unlock()
	if own == nil {
		return s.make(ctx, length)
	}
	// A call for each use would fill the audit log.
	if least := s.options.Lifetime * 2 / 3; time.Until(until) < max(least, length+MinLifetime) {
		if err := s.extend(ctx, own, s.lifetime(length)); err != nil {
			return nil, s.lost(own, err)
		}
	}
	return own, nil
}

// lifetime returns the lifetime of the session's sandbox at the beginning of a call of this length.
func (s *Session) lifetime(length time.Duration) time.Duration {
	return min(max(s.options.Lifetime, length+MinLifetime), MaxLifetime)
}

// make makes the session's sandbox.
//
// Preconditions: s.making is held.
func (s *Session) make(ctx context.Context, length time.Duration) (*sandbox.Sandbox, error) {
	image := s.options.Image
	if image == "" {
		var err error
		if image, err = s.image(ctx); err != nil {
			return nil, err
		}
	}
	ttl := s.lifetime(length)
	// A call that is cancelled meanwhile must not leave a sandbox that the session does not know. The end
	// of the session ends the wait, which may last as long as the build of an image.
	outer := context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	// Its name finds the sandbox if the answer to the create does not come.
	name := "mcp-" + strings.ToLower(rand.Text()[:12])
	own, err := s.sandboxes.Create(ctx, sandbox.Options{
		Name: name, Image: image, TTL: ttl, Network: client.Network{Enabled: s.options.Internet}, Labels: map[string]string{"created-by": "mcp"},
	})
	if err != nil {
		if s.ended.Err() != nil {
			s.discard(outer, name)
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.until = own, time.Now().Add(ttl)
	return own, nil
}

// discard deletes a sandbox that the session began to make. If that fails, the sandbox ends by its ttl.
func (s *Session) discard(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, discardTime)
	defer cancel()
	_, _ = s.client.Sandboxes.Delete(ctx, name) // mostly there is none any more
}

// image returns the image of the session's sandbox; "" is the server's default, which is also the
// image for a token without permission to list images.
func (s *Session) image(ctx context.Context) (string, error) {
	for image, err := range s.client.Images.List().All(ctx) {
		switch {
		case errors.Is(err, client.Forbidden):
			return "", nil
		case err != nil:
			return "", err
		case image.Ref == dataImage && image.Digest != "":
			return dataImage, nil
		}
	}
	return "", nil
}

// extend gives a sandbox another lifetime from now on.
func (s *Session) extend(ctx context.Context, sbx *sandbox.Sandbox, d time.Duration) error {
	if err := sbx.SetTimeout(ctx, d); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil && s.own.ID == sbx.ID {
		s.until = time.Now().Add(d)
	}
	return nil
}

// lost forgets the session's sandbox if an error of a call into it says that it has ended, so that
// the next call makes another. The client must know, because files and state are lost.
func (s *Session) lost(sbx *sandbox.Sandbox, err error) error {
	gone := errors.Is(err, client.Ended) || errors.Is(err, client.NotFound)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !gone || s.own == nil || s.own.ID != sbx.ID {
		return err
	}
	s.own = nil
	return &client.Error{Code: client.Ended, Message: fmt.Sprintf("the sandbox of this session, %s, has ended; its files and state are lost, and the next call makes another sandbox", sbx.ID)}
}
