package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	ociname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// AnswerTimeout bounds short questions to a registry: whether it accepts a login, and whether a
// tag has moved.
const AnswerTimeout = 15 * time.Second

// Login returns the credentials of a caller for a registry, named by its host and port. The zero
// value means no credentials. The caller of the client gets an error that has a code.
type Login func(ctx context.Context, who registry.Puller, host string) (registry.Login, error)

// Options are the settings of a [Client].
type Options struct {
	// InsecureRegistries are the hosts, or hosts with ports, that the client may ask by plain
	// http, and that may be on this machine or at a reserved address.
	InsecureRegistries []string
	// PublicOnly closes private addresses to all registries but InsecureRegistries.
	PublicOnly bool
	// StallTimeout is how long a registry may send nothing; 0 is a minute.
	StallTimeout time.Duration
	// Login signs in to registries; nil never signs in.
	Login Login
}

// Client talks to registries. It is safe for concurrent use.
type Client struct {
	reach     *reach
	transport http.RoundTripper // by reach
	login     Login
}

// New returns a client.
func New(opts Options) *Client {
	r := newReach(opts)
	return &Client{
		reach: r, login: opts.Login,
		transport: transport.NewUserAgent(&retrying{next: r, stall: cmp.Or(opts.StallTimeout, time.Minute)}, "modbox"),
	}
}

// Action is an action in a repository that needs a permission of the registry.
type Action string

// The actions, as the scopes of registries.
const (
	Pull Action = "pull"
	Push Action = "push,pull"
)

// Open signs in to the registry of a repository.
//
// Errors: Forbidden when the registry wants other credentials; NotFound; Timeout and Unavailable,
// with the words of the registry; the errors of [Login].
func (c *Client) Open(ctx context.Context, repo ociname.Repository, who registry.Puller, action Action) (*Repository, error) {
	login, err := c.loginFor(ctx, who, repo.RegistryStr())
	if err != nil {
		return nil, err
	}
	r := &Repository{repo: repo, proof: proofOf(who, login), action: action}
	if r.transport, err = c.signedIn(ctx, &r.repo.Registry, login, repo.Scope(string(action))); err != nil {
		return nil, r.explain(ctx, err)
	}
	return r, nil
}

// Proof identifies a caller's workspace and credentials for the registry of a repository; "" for
// a caller without credentials. The text before "/" is the workspace; see [Repository.Proof].
// Errors: as [Login].
func (c *Client) Proof(ctx context.Context, repo ociname.Repository, who registry.Puller) (string, error) {
	login, err := c.loginFor(ctx, who, repo.RegistryStr())
	if err != nil {
		return "", err
	}
	return proofOf(who, login), nil
}

func proofOf(who registry.Puller, login registry.Login) string {
	if login.Proof == "" {
		return ""
	}
	return string(who.Workspace) + "/" + login.Proof
}

// loginFor returns the credentials of a caller. The server itself has none.
func (c *Client) loginFor(ctx context.Context, who registry.Puller, host string) (registry.Login, error) {
	if c.login == nil || who == (registry.Puller{}) {
		return registry.Login{}, nil
	}
	return c.login(ctx, who, host)
}

// signedIn returns a transport that sends the credentials to a registry. It changes the registry
// to plain http if the operator listed it.
func (c *Client) signedIn(ctx context.Context, target *ociname.Registry, login registry.Login, scopes ...string) (http.RoundTripper, error) {
	auth := authn.Anonymous
	if login != (registry.Login{}) {
		auth = &authn.Basic{Username: login.Username, Password: login.Password}
	}
	if c.reach.isListed(target.RegistryStr()) {
		plain, err := ociname.NewRegistry(target.RegistryStr(), ociname.Insecure)
		if err != nil {
			return nil, fmt.Errorf("name %s: %w", target, err)
		}
		*target = plain
	}
	return transport.NewWithContext(ctx, *target, auth, c.transport, scopes)
}

// SignIn asks a registry, named by its host and port, whether it accepts a login, for
// [AnswerTimeout] at most. A registry that needs no login accepts all.
//
// Errors: Invalid, naming server; Forbidden when the registry does not accept the login;
// Unavailable.
func (c *Client) SignIn(ctx context.Context, host string, login registry.Login) error {
	target, err := ociname.NewRegistry(host, ociname.StrictValidation)
	if err != nil {
		return sandbox.InvalidField("server", "%q is not a registry", host)
	}
	asking, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	err = c.ping(asking, &target, login)
	var answer *transport.Error
	switch {
	case err != nil && ctx.Err() == nil && asking.Err() != nil:
		return unusable(host, err)
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return sandbox.Wrap(sandbox.Forbidden, err, "the registry %s does not accept this username and password (%s)", host, registryWords(answer))
	case errors.As(err, &answer):
		return unusable(host, err)
	}
	return (&Repository{repo: target.Repo("any")}).explain(ctx, err)
}

// ping signs in to a registry and requests the root of its API.
func (c *Client) ping(ctx context.Context, target *ociname.Registry, login registry.Login) error {
	signedIn, err := c.signedIn(ctx, target, login)
	if err != nil {
		return err
	}
	challenge, err := transport.Ping(ctx, *target, c.transport)
	if err != nil {
		return err
	}
	if strings.EqualFold(challenge.Scheme, "bearer") {
		return nil // it gave a token, which may be valid for repositories only
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://%s/v2/", target.Scheme(), target.RegistryStr()), nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: signedIn}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return transport.CheckError(resp, http.StatusOK)
}
