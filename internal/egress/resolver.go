package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	resolvConf = "/etc/resolv.conf"
	// askTimeout bounds the wait for a server, answerTimeout the whole question.
	askTimeout    = 2 * time.Second
	answerTimeout = 8 * time.Second
	// maxAsking bounds the concurrent questions of all sandboxes, each of which needs a socket of
	// the host. In addition each sandbox has ownAsking places of its own, because any sandbox can
	// ask for names whose servers never answer and so use up the shared places.
	maxAsking, ownAsking = 2048, 8
)

// resolver asks the host's resolvers.
type resolver struct {
	path   string
	shared chan struct{} // an element for each question that uses a shared place
	// askTimeout and answerTimeout are the constants of those names, except in tests.
	askTimeout, answerTimeout time.Duration

	mu       sync.Mutex
	servers  []string  // guarded by mu
	modified time.Time // of the file at path; guarded by mu
}

// newResolver returns a resolver that asks the servers fixed, or if empty those in resolvConf.
func newResolver(fixed []netip.AddrPort) *resolver {
	r := &resolver{shared: make(chan struct{}, atMostOfFiles(maxAsking, 8)), askTimeout: askTimeout, answerTimeout: answerTimeout}
	for _, s := range fixed {
		r.servers = append(r.servers, s.String())
	}
	if len(fixed) == 0 {
		r.path = resolvConf
	}
	return r
}

// ask sends a question to each server in turn, twice, and returns the first valid answer, whether
// the name exists or not. It waits for a place in own or a shared place.
func (r *resolver) ask(ctx context.Context, own chan struct{}, question dns.Question) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.answerTimeout)
	defer cancel()
	select {
	case own <- struct{}{}:
		defer func() { <-own }()
	case r.shared <- struct{}{}:
		defer func() { <-r.shared }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	servers, err := r.current()
	if err != nil {
		return nil, err
	}
	var errs []error
	for range 2 {
		for _, server := range servers {
			answer, err := r.exchange(ctx, question, server)
			if err == nil {
				return answer, nil
			}
			errs = append(errs, fmt.Errorf("ask %s: %w", server, err))
			if ctx.Err() != nil {
				return nil, errors.Join(errs...)
			}
		}
	}
	return nil, errors.Join(errs...)
}

// current returns the servers to ask.
func (r *resolver) current() ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.path == "" {
		return r.servers, nil
	}
	info, err := os.Stat(r.path)
	if err != nil {
		return nil, err
	}
	if info.ModTime().Equal(r.modified) {
		return r.servers, nil
	}
	conf, err := dns.ClientConfigFromFile(r.path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.path, err)
	}
	if len(conf.Servers) == 0 {
		return nil, fmt.Errorf("%s does not name a server", r.path)
	}
	servers := make([]string, 0, len(conf.Servers))
	for _, s := range conf.Servers {
		servers = append(servers, net.JoinHostPort(s, conf.Port))
	}
	r.servers, r.modified = servers, info.ModTime()
	return servers, nil
}

// exchange asks a server, by TCP when the answer is too long for UDP. Of the sandbox's message only
// the question itself leaves the host.
func (r *resolver) exchange(ctx context.Context, question dns.Question, server string) (*dns.Msg, error) {
	q := new(dns.Msg)
	q.Id = dns.Id()
	q.RecursionDesired = true
	q.Question = []dns.Question{question}
	q.SetEdns0(dns.DefaultMsgSize, false)
	client := dns.Client{Net: "udp", Timeout: r.askTimeout}
	answer, err := roundTrip(ctx, &client, q, server)
	if err == nil && answer.Truncated {
		client.Net = "tcp"
		answer, err = roundTrip(ctx, &client, q, server)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.Question) != 1 || !strings.EqualFold(answer.Question[0].Name, question.Name) ||
		answer.Question[0].Qtype != question.Qtype || answer.Question[0].Qclass != question.Qclass {
		return nil, errors.New("answer to another question")
	}
	if answer.Rcode == dns.RcodeServerFailure || answer.Rcode == dns.RcodeRefused {
		return nil, fmt.Errorf("answered %s", dns.RcodeToString[answer.Rcode])
	}
	return answer, nil
}

// roundTrip sends q and waits for its answer until ctx ends.
func roundTrip(ctx context.Context, client *dns.Client, q *dns.Msg, server string) (*dns.Msg, error) {
	conn, err := client.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	answer, _, err := client.ExchangeWithConnContext(ctx, q, conn)
	return answer, err
}
