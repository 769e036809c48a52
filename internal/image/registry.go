package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/go-containerregistry/pkg/authn"
	ociname "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/sandbox"
)

// Login returns how somebody signs in to a registry, named by its host and port.
// The zero value is nobody. An error with a code goes to whoever asked for
// the image.
type Login func(ctx context.Context, who sandbox.Puller, registry string) (sandbox.RegistryLogin, error)

// Bounds on registries.
const (
	retryTries  = 5 // of one request
	retryFirst  = 200 * time.Millisecond
	retryPause  = 60 * time.Second // the longest pause that a registry may ask for
	dialTimeout = 10 * time.Second
)

// errStalled ends a request whose answer has stopped coming.
var errStalled = errors.New("it sent nothing for too long")

// persistent repeats requests without a body that fail in a way that may pass, as
// long as a registry asks to wait for, and ends answers that stall.
type persistent struct {
	next  http.RoundTripper
	stall time.Duration
}

// RoundTrip implements http.RoundTripper. After the last try it returns what came.
func (p *persistent) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil && req.Body != http.NoBody {
		return p.once(req)
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval = retryFirst
	tries := 0
	return backoff.Retry(req.Context(), func() (*http.Response, error) {
		tries++
		resp, err := p.once(req)
		if err != nil {
			if !passing(err) {
				err = backoff.Permanent(err)
			}
			return nil, err
		}
		again, wait := answerPasses(resp)
		if !again || tries == retryTries {
			return resp, nil
		}
		resp.Body.Close()
		err = fmt.Errorf("%s answers %s", req.URL.Host, resp.Status)
		if wait > 0 {
			err = errors.Join(err, backoff.RetryAfter(wait))
		}
		return nil, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(retryTries))
}

// answerPasses reports whether a later try may be answered better, and how many
// seconds the registry wants it to be later. A wish for more than retryPause is
// the end: the caller should hear of it.
func answerPasses(resp *http.Response) (again bool, seconds int) {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, _ = strconv.Atoi(resp.Header.Get("Retry-After")) // a date or nonsense counts as no wish
		return time.Duration(seconds)*time.Second <= retryPause, seconds
	case http.StatusRequestTimeout, http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true, 0
	}
	return false, 0
}

// passing reports whether an error of the network may go away.
func passing(err error) bool {
	var network net.Error
	return errors.Is(err, errStalled) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.As(err, &network) && network.Timeout()
}

// once makes one request whose answer's body fails when it stalls.
func (p *persistent) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(p.stall, func() { cancel(errStalled) })
	req = req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		req.Body = &movingBody{ReadCloser: req.Body, timer: timer, stall: p.stall}
	}
	resp, err := p.next.RoundTrip(req)
	timer.Stop()
	if err != nil {
		if context.Cause(ctx) == errStalled {
			err = errStalled
		}
		cancel(nil)
		return nil, err
	}
	resp.Body = &stallingBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, stall: p.stall}
	return resp, nil
}

// movingBody is a body of a request. The answer is waited for since it was read last.
type movingBody struct {
	io.ReadCloser
	timer *time.Timer
	stall time.Duration
}

func (b *movingBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	return b.ReadCloser.Read(p)
}

// stallingBody is a body of which every Read must bring something in time.
type stallingBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer // runs while a Read does
	stall  time.Duration
}

func (b *stallingBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && context.Cause(b.ctx) == errStalled {
		err = errStalled
	}
	return n, err
}

func (b *stallingBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// registry is one repository of a registry, signed in.
type registry struct {
	repo      ociname.Repository
	transport http.RoundTripper
	proof     string // of who signed in, see proofOf; "" for nobody
	scope     string // what is to be done there, as registries call it
}

// name is how references in the store name the repository.
func (r *registry) name() string { return reference.RepositoryName(r.repo.Tag("")) }

// openRegistry signs in to the registry of a repository. Errors are those of [Store.Pull].
func (s *Store) openRegistry(ctx context.Context, repo ociname.Repository, who sandbox.Puller, scope string) (*registry, error) {
	login, err := s.loginFor(ctx, who, repo.RegistryStr())
	if err != nil {
		return nil, err
	}
	reg := &registry{repo: repo, proof: proofOf(who, login), scope: scope}
	if reg.transport, err = s.signedIn(ctx, &reg.repo.Registry, login, repo.Scope(scope)); err != nil {
		return nil, reg.explain(ctx, err)
	}
	return reg, nil
}

// signedIn returns how to talk to a registry, which it changes to one by plain http
// where that is allowed.
func (s *Store) signedIn(ctx context.Context, target *ociname.Registry, login sandbox.RegistryLogin, scopes ...string) (http.RoundTripper, error) {
	auth := authn.Anonymous
	if login != (sandbox.RegistryLogin{}) {
		auth = &authn.Basic{Username: login.Username, Password: login.Password}
	}
	if s.roads.isListed(target.RegistryStr()) {
		plain, err := ociname.NewRegistry(target.RegistryStr(), ociname.Insecure)
		if err != nil {
			return nil, fmt.Errorf("name %s: %w", target, err)
		}
		*target = plain
	}
	return transport.NewWithContext(ctx, *target, auth, s.transport, scopes)
}

// SignIn asks a registry, named by its host and port, whether it accepts a login,
// within seconds. One that lets everybody in accepts all.
//
// Errors: Forbidden when it does not; Unavailable.
func (s *Store) SignIn(ctx context.Context, host string, login sandbox.RegistryLogin) error {
	target, err := ociname.NewRegistry(host, ociname.StrictValidation)
	if err != nil {
		return sandbox.InvalidField("server", "%q is not a registry", host)
	}
	asking, cancel := context.WithTimeout(ctx, recheckTimeout)
	defer cancel()
	err = s.greet(asking, &target, login)
	var answer *transport.Error
	switch {
	case err != nil && ctx.Err() == nil && asking.Err() != nil:
		return unusable(host, err)
	case errors.As(err, &answer) && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden):
		return sandbox.Wrap(sandbox.Forbidden, err, "the registry %s does not accept this username and password (%s)", host, registryWords(answer))
	case errors.As(err, &answer):
		return unusable(host, err)
	}
	return (&registry{repo: target.Repo("any")}).explain(ctx, err)
}

// greet asks a registry for nothing but its attention.
func (s *Store) greet(ctx context.Context, target *ociname.Registry, login sandbox.RegistryLogin) error {
	reach, err := s.signedIn(ctx, target, login)
	if err != nil {
		return err
	}
	wants, err := transport.Ping(ctx, *target, s.transport)
	if err != nil {
		return err
	}
	if strings.EqualFold(wants.Scheme, "bearer") {
		return nil // it gave a token, which may be good for repositories only
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s://%s/v2/", target.Scheme(), target.RegistryStr()), nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: reach}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return transport.CheckError(resp, http.StatusOK)
}

// open asks for a blob from an offset on. It returns where the answer begins,
// which is the offset or, from a registry that cannot do that, 0.
func (r *registry) open(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, int64, error) {
	url := fmt.Sprintf("%s://%s/v2/%s/blobs/%s", r.repo.Scheme(), r.repo.RegistryStr(), r.repo.RepositoryStr(), blob.Digest)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, blob.Size-1))
	}
	resp, err := (&http.Client{Transport: r.transport}).Do(req)
	if err != nil {
		return nil, 0, err
	}
	if offset > 0 && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		resp.Body.Close()
		return r.open(ctx, blob, 0)
	}
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent); err != nil {
		resp.Body.Close()
		return nil, 0, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, 0, nil
	}
	if got := resp.Header.Get("Content-Range"); !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", offset)) {
		resp.Body.Close()
		return nil, 0, fmt.Errorf("it answers with the range %.100q, not from %d on", got, offset)
	}
	return resp.Body, offset, nil
}

// explain gives an error of talking to the registry the code and words that
// whoever asked for the image can do something with.
func (r *registry) explain(ctx context.Context, err error) error {
	host, repo := r.repo.RegistryStr(), r.repo.RepositoryStr()
	var answer *transport.Error
	switch {
	case err == nil || sandbox.CodeOf(err) != sandbox.Internal && sandbox.CodeOf(err) != "":
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errStalled):
		return unusable(host, err)
	case !errors.As(err, &answer):
		for _, closed := range refusals {
			if errors.Is(err, closed) { // before anything was sent
				return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be used: it %v", host, closed)
			}
		}
		return unusable(host, err)
	}
	words, do := registryWords(answer), "pull"
	if r.scope == transport.PushScope {
		do = "push"
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sandbox.Wrap(sandbox.Forbidden, err, "the registry %s does not let this server %s %s: it wants other credentials, or there is no such image (%s)", host, do, repo, words)
	case http.StatusNotFound:
		return sandbox.Wrap(sandbox.NotFound, err, "the registry %s has no such image in %s (%s)", host, repo, words)
	case http.StatusTooManyRequests:
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s limits how much may be %sed; try again later, or with credentials (%s)", host, do, words)
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s answers with status %d (%s)", host, answer.StatusCode, words)
	}
}

// unusable is the error of a registry that gives no answer of a registry. It says the same
// whether nothing listens there, nothing answers or something else does, because callers
// could look for open ports with it.
func unusable(host string, err error) error {
	return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be reached, or is none; check its name and port, and try again", host)
}

// registryWords returns what a registry says, cut to one short line.
func registryWords(answer *transport.Error) string {
	words := http.StatusText(answer.StatusCode)
	if len(answer.Errors) > 0 {
		words = fmt.Sprintf("%s: %s", answer.Errors[0].Code, answer.Errors[0].Message)
	}
	words = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, words)
	return fmt.Sprintf("%.300s", words)
}
