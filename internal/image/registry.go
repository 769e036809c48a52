package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
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

// newRegistryTransport returns how registries are reached: through the
// environment's proxy, never at link-local addresses, where clouds keep their
// secrets, and by plain http only where that was allowed.
func newRegistryTransport(insecure []string, stall time.Duration) http.RoundTripper {
	dialer := &net.Dialer{Timeout: dialTimeout, Control: refuseLinkLocal}
	guarded := &plainGuard{insecure: insecure, next: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 8,
		MaxResponseHeaderBytes: 1 << 20, DisableCompression: true,
	}}
	return transport.NewUserAgent(&persistent{next: guarded, stall: stall}, "modbox")
}

func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if ip := to.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return fmt.Errorf("%s is not an address where a registry may be", ip)
	}
	return nil
}

// plainGuard refuses plain http to hosts for which it was not allowed.
type plainGuard struct {
	insecure []string // hosts, or hosts with port
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g *plainGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "http" && !isLoopback(req.URL.Hostname()) && !slices.Contains(g.insecure, req.URL.Host) && !slices.Contains(g.insecure, req.URL.Hostname()) {
		return nil, fmt.Errorf("plain http to %s is not allowed; the server's setting images.insecure_registries can allow it", req.URL.Host)
	}
	return g.next.RoundTrip(req)
}

// outward refuses what is on this machine: a registry elsewhere, which may be
// anybody's, must not send the server to its own services.
type outward struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outward) RoundTrip(req *http.Request) (*http.Response, error) {
	if isLoopback(req.URL.Hostname()) {
		return nil, fmt.Errorf("it sends the server to %s, which is the server's own machine", req.URL.Host)
	}
	return o.next.RoundTrip(req)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

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
	resp, err := p.next.RoundTrip(req.WithContext(ctx))
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
}

// openRegistry signs in to the registry of a repository. Errors are those of [Store.Pull].
func (s *Store) openRegistry(ctx context.Context, repo ociname.Repository, who sandbox.Puller) (*registry, error) {
	login, err := s.loginFor(ctx, who, repo.RegistryStr())
	if err != nil {
		return nil, err
	}
	auth := authn.Anonymous
	if login.Proof != "" {
		auth = &authn.Basic{Username: login.Username, Password: login.Password}
	}
	if slices.Contains(s.insecure, repo.RegistryStr()) {
		plain, err := ociname.NewRepository(repo.Name(), ociname.Insecure)
		if err != nil {
			return nil, fmt.Errorf("name %s: %w", repo, err)
		}
		repo = plain
	}
	reg := &registry{repo: repo, proof: proofOf(who, login)}
	reach := s.transport
	if host := (&url.URL{Host: repo.RegistryStr()}).Hostname(); !isLoopback(host) {
		reach = outward{reach}
	}
	reg.transport, err = transport.NewWithContext(ctx, repo.Registry, auth, reach, []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, reg.explain(ctx, err)
	}
	return reg, nil
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
		return sandbox.Wrap(sandbox.Timeout, err, "the registry %s sent nothing for too long; try again", host)
	case !errors.As(err, &answer):
		// What the library quotes after that is an answer of whatever it was sent to.
		words, _, _ := strings.Cut(rootCause(err).Error(), ":\n")
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s cannot be used: %.300s", host, words)
	}
	words := registryWords(answer)
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return sandbox.Wrap(sandbox.Forbidden, err, "the registry %s does not let this server pull %s: it wants other credentials, or there is no such image (%s)", host, repo, words)
	case http.StatusNotFound:
		return sandbox.Wrap(sandbox.NotFound, err, "the registry %s has no such image in %s (%s)", host, repo, words)
	case http.StatusTooManyRequests:
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s limits how much may be pulled; try again later, or with credentials (%s)", host, words)
	default:
		return sandbox.Wrap(sandbox.Unavailable, err, "the registry %s answers with status %d (%s)", host, answer.StatusCode, words)
	}
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

// rootCause returns the error at the end of a chain: the network's words without
// the address that was asked, which may have secrets in it.
func rootCause(err error) error {
	var asked *url.Error
	for errors.As(err, &asked) {
		err = asked.Err
	}
	return err
}
