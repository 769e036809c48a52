package mcphttp_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/apitest"
)

// bearer sends requests with a token.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// connect begins a session with a token.
func connect(t *testing.T, s *apitest.Server, token string) (*sdk.ClientSession, error) {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	return c.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: s.URL + "/mcp", HTTPClient: &http.Client{Transport: bearer{token}}, MaxRetries: -1,
	}, nil)
}

func mustConnect(t *testing.T, s *apitest.Server, token string) *sdk.ClientSession {
	t.Helper()
	c, err := connect(t, s, token)
	// A session that was refused or closed counts until the server has removed it, shortly after its answer.
	for end := time.Now().Add(10 * time.Second); err != nil && strings.Contains(err.Error(), http.StatusText(http.StatusTooManyRequests)) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
		c, err = connect(t, s, token)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // some are closed already
	return c
}

// call calls a tool, and returns its text and whether it failed.
func call(t *testing.T, c *sdk.ClientSession, name string, arguments map[string]any) (text string, failed bool) {
	t.Helper()
	r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, content := range r.Content {
		if part, ok := content.(*sdk.TextContent); ok {
			text += part.Text
		}
	}
	return text, r.IsError
}

func must(t *testing.T, c *sdk.ClientSession, name string, arguments map[string]any) string {
	t.Helper()
	text, failed := call(t, c, name, arguments)
	if failed {
		t.Fatalf("%s %v: %s", name, arguments, text)
	}
	return text
}

// live returns the number of live sandboxes.
func live(t *testing.T, s *apitest.Server) int {
	t.Helper()
	list, err := s.Store.Sandboxes.LiveSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// token makes a token that is limited to permissions.
func token(t *testing.T, s *apitest.Server, scopes ...account.Permission) string {
	t.Helper()
	var made struct {
		Secret string `json:"token"`
	}
	s.Want(http.StatusCreated, "POST", "/v1/tokens", map[string]any{"scopes": scopes}).Into(t, &made)
	if made.Secret == "" {
		t.Fatal("the answer has no token")
	}
	return made.Secret
}

func TestSessionHasASandbox(t *testing.T) {
	s := apitest.New(t)
	c := mustConnect(t, s, s.Token)
	if n := live(t, s); n != 0 {
		t.Fatalf("%d sandboxes before the first call, want 0", n)
	}
	must(t, c, "write_file", map[string]any{"path": "/tmp/a.txt", "content": "hello"})
	if got := must(t, c, "read_file", map[string]any{"path": "/tmp/a.txt"}); got != "hello" {
		t.Errorf("read_file = %q, want hello", got)
	}
	if got := must(t, c, "exec", map[string]any{"command": "echo out; echo err >&2; exit 3"}); got != "exit code: 3\nstdout:\nout\nstderr:\nerr\n" {
		t.Errorf("exec = %q", got)
	}
	if got := must(t, c, "list_files", map[string]any{"path": "/tmp"}); !strings.Contains(got, `{"name":"a.txt","type":"file","size_bytes":5}`) {
		t.Errorf("list_files = %s", got)
	}
	if got := must(t, c, "list_sandboxes", nil); !strings.Contains(got, `"own_sandbox":"`) || !strings.Contains(got, `"ends_at":"`) {
		t.Errorf("list_sandboxes = %s, want the session's own with its end", got)
	}
	if n := live(t, s); n != 1 {
		t.Errorf("%d sandboxes, want 1", n)
	}
	other := mustConnect(t, s, s.Token)
	if text, failed := call(t, other, "read_file", map[string]any{"path": "/tmp/a.txt"}); !failed || !strings.HasPrefix(text, "file_not_found: ") {
		t.Errorf("read_file in another session = %q, failed %v", text, failed)
	}
	must(t, other, "destroy_sandbox", nil)
	if n := live(t, s); n != 1 {
		t.Errorf("%d sandboxes after destroy_sandbox, want 1", n)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	s.Front.EndSessions() // waits
	if n := live(t, s); n != 0 {
		t.Errorf("%d sandboxes after the sessions, want 0", n)
	}
	if _, err := connect(t, s, s.Token); err == nil {
		t.Error("a session began after EndSessions")
	}
}

func TestSandboxThatEndedIsSaid(t *testing.T) {
	s := apitest.New(t)
	c := mustConnect(t, s, s.Token)
	must(t, c, "exec", map[string]any{"command": "true"})
	list, err := s.Store.Sandboxes.LiveSandboxes(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	s.Want(http.StatusOK, "DELETE", "/v1/sandboxes/"+string(list[0].ID), nil)
	if text, failed := call(t, c, "exec", map[string]any{"command": "true"}); !failed || !strings.Contains(text, "ended: the sandbox of this session") {
		t.Errorf("exec = %q, failed %v", text, failed)
	}
	must(t, c, "exec", map[string]any{"command": "true"})
}

func TestErrorsAreOfTools(t *testing.T) {
	s := apitest.New(t)
	c := mustConnect(t, s, s.Token)
	for name, test := range map[string]struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		"unknown_argument":  {"exec", map[string]any{"command": "true", "bogus": 1}, "bogus"},
		"missing_argument":  {"exec", nil, "command"},
		"no_such_sandbox":   {"exec", map[string]any{"command": "true", "sandbox": "nobody"}, "not_found: "},
		"no_such_image":     {"create_sandbox", map[string]any{"image": "nothing"}, "invalid: image"},
		"request_host":      {"create_sandbox", map[string]any{"request_host": "a b"}, "invalid: network.request_host"},
		"https_ports":       {"create_sandbox", map[string]any{"https_ports": []int{0}}, "invalid: network.https_ports"},
		"ttl_too_short":     {"create_sandbox", map[string]any{"ttl_seconds": 5}, "invalid: ttl_seconds must be 60 to 86400"},
		"negative_timeout":  {"exec", map[string]any{"command": "true", "timeout_seconds": -1}, "invalid: timeout_seconds"},
		"bad_encoding":      {"write_file", map[string]any{"path": "/tmp/x", "content": "x", "encoding": "hex"}, "invalid: encoding"},
		"bad_base64":        {"write_file", map[string]any{"path": "/tmp/x", "content": "%", "encoding": "base64"}, "invalid: content"},
		"too_many_forks":    {"fork", map[string]any{"count": 11}, "invalid: count"},
		"port_out_of_range": {"get_url", map[string]any{"port": 70000}, "port"},
		"nothing_to_end":    {"destroy_sandbox", nil, "not_found: "},
	} {
		t.Run(name, func(t *testing.T) {
			if text, failed := call(t, c, test.tool, test.arguments); !failed || !strings.Contains(text, test.want) {
				t.Errorf("%s = %q, failed %v; want an error with %q", test.tool, text, failed, test.want)
			}
		})
	}
	if n := live(t, s); n != 0 {
		t.Errorf("wrong arguments made %d sandboxes", n)
	}
}

func TestTokens(t *testing.T) {
	s := apitest.New(t)
	if _, err := connect(t, s, "mbx_wrong"); err == nil {
		t.Error("a wrong token began a session")
	}
	r := s.Request("POST", "/mcp", `{}`)
	r.Header.Del("Authorization")
	if a := s.Send(r); a.Status != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("without a token: %d with WWW-Authenticate %q", a.Status, a.Header.Get("WWW-Authenticate"))
	}
	reader := token(t, s, account.SandboxesRead)
	c := mustConnect(t, s, reader)
	must(t, c, "list_sandboxes", nil)
	if text, failed := call(t, c, "exec", map[string]any{"command": "true"}); !failed || !strings.HasPrefix(text, "forbidden: ") {
		t.Errorf("exec with a token that only reads = %q, failed %v", text, failed)
	}
	// The other token is of the same user.
	r = s.Request("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Session-Id", c.ID())
	if a := s.Send(r); a.Status != http.StatusNotFound {
		t.Errorf("another token uses the session: %d %s", a.Status, a.Body)
	}
	r.Header.Set("Authorization", "Bearer "+reader)
	r.Body, _ = r.GetBody() // of a string
	if a := s.Send(r); a.Status != http.StatusOK || !strings.Contains(string(a.Body), "run_code") {
		t.Errorf("its own token: %d %s", a.Status, a.Body)
	}
}

func TestOrigins(t *testing.T) {
	s := apitest.New(t)
	for origin, want := range map[string]int{"https://evil.test": http.StatusForbidden, s.URL: http.StatusBadRequest, "": http.StatusBadRequest} {
		r := s.Request("GET", "/mcp", nil)
		r.Header.Set("Accept", "text/event-stream")
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		if a := s.Send(r); a.Status != want {
			t.Errorf("a page of %q: %d %s, want %d", origin, a.Status, a.Body, want)
		}
	}
}

// The limits are in apitest.
func TestSessionsAreBounded(t *testing.T) {
	s := apitest.New(t)
	first := mustConnect(t, s, s.Token)
	mustConnect(t, s, s.Token)
	if _, err := connect(t, s, s.Token); err == nil || !strings.Contains(err.Error(), "Too Many Requests") {
		t.Errorf("a session too many: %v, want status 429", err)
	}
	// A request that begins no session leaves none.
	r := s.Request("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if a := s.Send(r); a.Status != http.StatusTooManyRequests || !strings.Contains(string(a.Body), "mcp.max_sessions_per_user") {
		t.Errorf("a request too many: %d %s, want 429 with the setting", a.Status, a.Body)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for { // its end is in the background
		if a := s.Send(func() *http.Request { r.Body, _ = r.GetBody(); return r }()); a.Status != http.StatusTooManyRequests {
			break
		}
	}
	mustConnectSoon(t, s)
}

// mustConnectSoon connects when there is a place.
func mustConnectSoon(t *testing.T, s *apitest.Server) {
	t.Helper()
	for {
		if c, err := connect(t, s, s.Token); err == nil {
			_ = c.Close()
			return
		} else if t.Context().Err() != nil || !strings.Contains(err.Error(), "Too Many Requests") {
			t.Fatal(err)
		}
	}
}

// TestEndOfACall: the end of a session, and of a call, ends the command.
func TestEndOfACall(t *testing.T) {
	s := apitest.New(t)
	c := mustConnect(t, s, s.Token)
	must(t, c, "exec", map[string]any{"command": "true"})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 2)
	begun := filepath.Join(t.TempDir(), "begun") // commands of the fake driver run on this machine
	for _, ctx := range []context.Context{ctx, t.Context()} {
		go func() {
			_, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "exec", Arguments: map[string]any{"command": "echo >>" + begun + "; exec sleep 3600", "timeout_seconds": 3600}})
			failed <- err
		}()
	}
	for {
		if b, err := os.ReadFile(begun); err == nil && len(b) == 2 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the commands have not begun")
		}
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that is cancelled ends with %v", err)
	}
	s.Front.EndSessions()
	if n := live(t, s); n != 0 {
		t.Errorf("%d sandboxes after the sessions, want 0", n)
	}
	<-failed
}

func TestOtherSandboxesStay(t *testing.T) {
	s := apitest.New(t)
	c := mustConnect(t, s, s.Token)
	must(t, c, "create_sandbox", map[string]any{"name": "mine", "ttl_seconds": 120})
	must(t, c, "write_file", map[string]any{"path": "/tmp/a", "content": "1", "sandbox": "mine"})
	must(t, c, "set_timeout", map[string]any{"seconds": 600, "sandbox": "mine"})
	if got := must(t, c, "get_url", map[string]any{"port": 8080, "sandbox": "mine"}); !strings.Contains(got, s.URL) || !strings.Contains(got, "public") {
		t.Errorf("get_url = %s", got)
	}
	if got := must(t, c, "get_url", map[string]any{"port": 8081, "sandbox": "mine", "private": true}); !strings.Contains(got, "private") {
		t.Errorf("get_url of a private port = %s", got)
	}
	if got := must(t, c, "list_sandboxes", nil); strings.Contains(got, "own_sandbox") {
		t.Errorf("list_sandboxes = %s, want no own sandbox", got)
	}
	s.Front.EndSessions()
	if n := live(t, s); n != 1 {
		t.Errorf("%d sandboxes after the session, want mine", n)
	}
}
