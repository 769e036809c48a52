package e2e_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// guestServer is a program for the guest: it answers "port N" and the path to every
// request, and keeps WebSockets open without a word.
const guestServer = `
import base64, hashlib, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        if self.headers.get("Upgrade"):
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            while self.connection.recv(4096):
                pass
            self.close_connection = True
            return
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = f"port {self.server.server_port} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = answer

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
`

// serve has a server listen on ports of a sandbox, and returns when they answer.
func serve(t *testing.T, s *testserver.Server, ref string, ports ...string) {
	t.Helper()
	if _, err := s.Sandboxes.Files.Write(t.Context(), ref, "/tmp/serve.py", strings.NewReader(guestServer), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		line := "(setsid python3 /tmp/serve.py " + port + " >/dev/null 2>&1 &); until (: </dev/tcp/127.0.0.1/" + port + ") 2>/dev/null; do sleep 0.1; done"
		if res := s.Bash(ref, line, time.Minute); res.ExitCode != 0 {
			t.Fatalf("server on port %s: %+v", port, res)
		}
	}
}

// visit makes a request and returns the status and body of its answer.
func visit(t *testing.T, method, url, body string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// wantVisit fails the test unless a GET is answered with the status, and with text in its body.
func wantVisit(t *testing.T, what, url string, header http.Header, status int, text string) {
	t.Helper()
	if got, body := visit(t, "GET", url, "", header); got != status || !strings.Contains(body, text) {
		t.Errorf("%s: %d %q, want %d and %q", what, got, body, status, text)
	}
}

func tokenHeader(token string) http.Header { return http.Header{"X-Modbox-Token": {token}} }

// labelOf returns the label in the URL of a sandbox or a port.
func labelOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }

// TestPreviewLinkLeadsToItsPortOnly tries ways from the URL of a published port to
// commands, files and another port of the sandbox.
func TestPreviewLinkLeadsToItsPortOnly(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec", Network: client.Network{Ports: []uint16{3000}}, URLAccess: client.URLOpen})
	serve(t, s, sb.ID, "3000", "4000")
	command := `{"command":"touch /tmp/shell; echo a shell"}`
	if status, body := visit(t, "POST", sb.URL+"/modbox/api/exec", `{"command":"echo a shell"}`, nil); status != 200 || !strings.Contains(body, "a shell") {
		t.Fatalf("exec at the open URL of the sandbox: %d %s: the test does not test anything", status, body)
	}
	wantVisit(t, "another port by the sandbox's own label", s.URL+"/s/4000--"+labelOf(sb.URL)+"/", nil, 200, "port 4000")
	url := sb.Network.Ports[0].URL
	for _, path := range []string{"/", "/modbox/api/exec", "//modbox/api/exec", "/%6dodbox/api/exec", "/x/../modbox/api/exec", "/execute", "/modbox/api/files", "/modbox/api/files/upload"} {
		for _, method := range []string{"GET", "POST"} {
			if status, body := visit(t, method, url+path, command, nil); status != 200 || !strings.HasPrefix(body, "port 3000 ") {
				t.Errorf("%s %s at the URL of the port: %d %q, want the server on the port", method, path, status, body)
			}
		}
	}
	label := labelOf(url)
	for _, other := range []string{"4000--" + label, label + "--4000", strings.Replace(label, "p3000-", "p4000-", 1)} {
		if status, body := visit(t, "GET", s.URL+"/s/"+other+"/", "", nil); status != 404 {
			t.Errorf("label %s: %d %q, want 404", other, status, body)
		}
	}
	if res := s.Bash(sb.ID, "test ! -e /tmp/shell", time.Minute); res.ExitCode != 0 {
		t.Error("a request to the URL of a port ran a command")
	}
}

// TestPrivatePorts has private ports ask for a token or a link over a pause and a
// crash of the server, and cuts off what is open when they are revoked.
func TestPrivatePorts(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	serve(t, s, sb.ID, "3000")
	port, err := s.Sandboxes.Ports.Publish(t.Context(), sb.ID, 3000, client.PortPrivate)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.Tokens.Create(t.Context(), "to be revoked", client.TokenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	link := newLink(t, s, s.Token, sb.ID)
	ofToken := newLink(t, s, token.Secret, sb.ID)

	label := labelOf(port.URL)
	look := func(when string) {
		t.Helper()
		url := s.URL + "/s/" + label // the server's address changes
		wantVisit(t, when+": nothing", url+"/", nil, 401, "")
		wantVisit(t, when+": another token", url+"/", tokenHeader("mbx_wrong"), 401, "")
		wantVisit(t, when+": by the sandbox's label", s.URL+"/s/3000--"+labelOf(sb.URL)+"/", nil, 401, "")
		wantVisit(t, when+": an API token", url+"/", tokenHeader(s.Token), 200, "port 3000 /")
		wantVisit(t, when+": a link", url+"/", tokenHeader(link), 200, "port 3000 /")
	}
	look("at first")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	wantVisit(t, "a refused request", port.URL+"/", nil, 401, "")
	if got, err := s.Sandboxes.Get(t.Context(), sb.ID); err != nil || got.State != client.Paused {
		t.Errorf("after a refused request the sandbox is %v, %v, want paused", got, err)
	}
	look("resumed")
	s.Kill()
	s.Launch()
	look("after a crash of the server")

	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || children[0].Err != nil {
		t.Fatal(err, children)
	}
	forked := children[0].Sandbox.Network.Ports[0]
	if forked.Port != 3000 || forked.Access != client.PortPrivate || labelOf(forked.URL) == label {
		t.Errorf("the fork publishes %+v, want port 3000, private, with a label of its own", forked)
	}
	wantVisit(t, "a link at the fork", forked.URL+"/", tokenHeader(link), 401, "")
	wantVisit(t, "a token at the fork", forked.URL+"/", tokenHeader(s.Token), 200, "port 3000")

	kept, cut := dial(t, s.URL+"/s/"+label+"/", link), dial(t, s.URL+"/s/"+label+"/", ofToken)
	if err := s.Tokens.Revoke(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	ends(t, "of the link whose token was revoked", cut)
	wantVisit(t, "a link whose token was revoked", s.URL+"/s/"+label+"/", tokenHeader(ofToken), 401, "revoked")
	look("after another token was revoked")
	if _, err := s.Sandboxes.Ports.Rotate(t.Context(), sb.ID, 3000); err != nil {
		t.Fatal(err)
	}
	ends(t, "of a port with another URL", kept)
	wantVisit(t, "a URL that was replaced", s.URL+"/s/"+label+"/", tokenHeader(link), 404, "")
}

// TestLinkExpires has a link end at the server by the clock.
func TestLinkExpires(t *testing.T) {
	t.Parallel() // it waits for a minute
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	serve(t, s, sb.ID, "3000")
	port, err := s.Sandboxes.Ports.Publish(t.Context(), sb.ID, 3000, client.PortPrivate)
	if err != nil {
		t.Fatal(err)
	}
	link, err := s.Sandboxes.Ports.CreateLink(t.Context(), sb.ID, 3000, time.Minute) // the shortest
	if err != nil {
		t.Fatal(err)
	}
	wantVisit(t, "a link", port.URL+"/", tokenHeader(link.Token), 200, "port 3000")
	ends(t, "of a link that expires", dial(t, port.URL+"/", link.Token))
	wantVisit(t, "a link that has expired", port.URL+"/", tokenHeader(link.Token), 401, "expired")
}

// TestKeyOfManagementRoutes runs commands at the URL of sandboxes that ask for a key,
// from inside with what the sandbox's own environment has, and from outside.
func TestKeyOfManagementRoutes(t *testing.T) {
	s := testserver.Start(t)
	plain := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec", URLAccess: client.URLKey})
	keyed := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec", URLAccess: client.URLKey, Env: map[string]string{"SANDBOX_API_KEY": "secret-of-the-sandbox"}})
	bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
	for name, tc := range map[string]struct {
		sb     *client.Sandbox
		header http.Header
		want   int
	}{
		"nothing":                   {plain, nil, 401},
		"an_API_token":              {plain, bearer(s.Token), 200},
		"a_wrong_token":             {plain, bearer("mbx_wrong"), 401},
		"a_key_that_is_not_set":     {plain, bearer("secret-of-the-sandbox"), 401},
		"nothing_for_a_key":         {keyed, nil, 401},
		"the_key":                   {keyed, bearer("secret-of-the-sandbox"), 200},
		"an_API_token_in_its_place": {keyed, bearer(s.Token), 200},
	} {
		t.Run(name, func(t *testing.T) {
			// A program inside prints its URL, which is all that a reader of its output has.
			printed := s.Bash(tc.sb.ID, "printenv MODBOX_SANDBOX_URL", time.Minute)
			url := strings.TrimSpace(string(printed.Stdout))
			if url != tc.sb.URL {
				t.Fatalf("MODBOX_SANDBOX_URL is %q, want %s", url, tc.sb.URL)
			}
			for _, path := range []string{"/modbox/api/exec", "/execute", "/modbox/api/files"} {
				status, body := visit(t, "POST", url+path, `{"command":"echo a shell"}`, tc.header.Clone())
				if refused := status == 401; refused != (tc.want == 401) || path == "/modbox/api/exec" && status != tc.want {
					t.Errorf("POST %s: %d %s, want %d", path, status, body, tc.want)
				}
				if tc.want == 401 && strings.Contains(body, "a shell") {
					t.Errorf("POST %s ran the command", path)
				}
			}
		})
	}
}

// newLink makes a link to port 3000 with a token.
func newLink(t *testing.T, s *testserver.Server, token, ref string) string {
	t.Helper()
	link, err := s.WithToken(token).Sandboxes.Ports.CreateLink(t.Context(), ref, 3000, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return link.Token
}

// dial opens a WebSocket with a link.
func dial(t *testing.T, url, link string) *websocket.Conn {
	t.Helper()
	c, res, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPHeader: tokenHeader(link)})
	if err != nil {
		t.Fatalf("WebSocket: %v, %+v", err, res)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

// ends fails the test unless the server ends a connection.
func ends(t *testing.T, what string, c *websocket.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, _, err := c.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a connection %s: %v, want its end", what, err)
	}
}
