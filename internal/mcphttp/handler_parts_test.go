package mcphttp_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/internal/api/apitest"
)

// balancer sends each request to the next of several servers.
type balancer struct {
	servers []*apitest.Server
	next    atomic.Int64
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	s := b.servers[int(b.next.Add(1))%len(b.servers)]
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host = u.Host
	return bearer{b.servers[0].Token}.RoundTrip(r)
}

// TestSessionBehindBalancer: a session goes on at each of several servers, with the sandbox of any of them.
func TestSessionBehindBalancer(t *testing.T) {
	parts := apitest.NewParts(t, 2)
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: parts[0].URL + "/mcp", HTTPClient: &http.Client{Transport: &balancer{servers: parts}}, MaxRetries: -1,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // it is closed already, unless the test has failed
	for range 4 {
		if text := must(t, c, "exec", map[string]any{"command": "echo over"}); !strings.Contains(text, "over") {
			t.Errorf("the command has written %q", text)
		}
	}
	for n, s := range parts {
		var made struct{ ID string }
		s.Want(201, "POST", "/v1/sandboxes", map[string]any{"wait_seconds": 180}).Into(t, &made)
		if text := must(t, c, "exec", map[string]any{"command": "echo over", "sandbox": made.ID}); !strings.Contains(text, "over") {
			t.Errorf("the command in a sandbox of server %d has written %q", n, text)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
