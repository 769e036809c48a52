package e2e_test

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// hostServer answers requests, and opened WebSockets, with the scheme and the host that it saw; by TLS if it gets a
// certificate.
const hostServer = `
import base64, hashlib, http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        text = (("https " if len(sys.argv) > 2 else "http ") + self.headers["Host"]).encode()
        if self.headers.get("Upgrade"):
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.wfile.write(bytes([0x81, len(text)]) + text)
            self.rfile.read(1)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
`

// selfSigned returns a certificate that nobody trusts, with its key, as PEM.
func selfSigned(t *testing.T) string {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	srv.Close()
	cert := srv.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

// The servers in a sandbox see the host that its network says, over HTTP, HTTPS and WebSockets, and after all that a
// sandbox goes through.
func TestRequestHost(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{
		Image: codeExec, Network: client.Network{Ports: []uint16{3000, 8443}, RequestHost: "localhost:${PORT}", HTTPSPorts: []uint16{8443}},
	})
	for path, content := range map[string]string{"/tmp/server.py": hostServer, "/tmp/pair.pem": selfSigned(t)} {
		if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, path, strings.NewReader(content), client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const start = `cd /tmp; for args in 3000 "8443 pair.pem"; do setsid nohup python3 server.py $args >"out${args%% *}" 2>&1 & done
for port in 3000 8443; do for i in $(seq 1200); do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && continue 2; sleep 0.05; done; cat out*; exit 1; done`
	if res := s.Bash(sb.ID, start, 3*time.Minute); res.ExitCode != 0 {
		t.Fatalf("servers: %s %s", res.Stdout, res.Stderr)
	}
	sees := func(when, url, want string) {
		t.Helper()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != want {
			t.Errorf("%s: %s = %d %q, %v, want %q", when, url, resp.StatusCode, body, err, want)
		}
		c, _, err := websocket.Dial(t.Context(), url, nil)
		if err != nil {
			t.Errorf("%s: WebSocket %s: %v", when, url, err)
			return
		}
		defer c.CloseNow()
		if _, text, err := c.Read(t.Context()); err != nil || string(text) != want {
			t.Errorf("%s: WebSocket %s = %q, %v, want %q", when, url, text, err, want)
		}
	}
	both := func(when string, sb *client.Sandbox, host string) {
		t.Helper()
		sees(when, sb.Network.Ports[0].URL+"/", "http "+strings.ReplaceAll(host, "${PORT}", "3000"))
		sees(when, sb.Network.Ports[1].URL+"/", "https "+strings.ReplaceAll(host, "${PORT}", "8443"))
	}
	both("new", sb, "localhost:${PORT}")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	both("after a pause", sb, "localhost:${PORT}")
	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || children[0].Err != nil {
		t.Fatal(err, children)
	}
	child := children[0].Sandbox
	both("fork", child, "localhost:${PORT}")
	s.Kill()
	s.Launch() // at another address
	for _, sandbox := range []**client.Sandbox{&sb, &child} {
		if *sandbox, err = s.Sandboxes.Get(t.Context(), (*sandbox).ID); err != nil {
			t.Fatal(err)
		}
	}
	both("after a crash of the server", sb, "localhost:${PORT}")

	change := func(args ...string) (string, int) {
		t.Helper()
		_, errOut, code := run(t, s, "", append([]string{"network", "requests", sb.ID}, args...)...)
		return errOut, code
	}
	if errOut, code := change("--request-host", "app.test", "--https-port", "8443"); code != 0 {
		t.Fatalf("modbox network requests = %d %q", code, errOut)
	}
	both("after a change", sb, "app.test")
	both("the fork after a change of its parent", child, "localhost:${PORT}")
	if out, _, code := run(t, s, "", "get", sb.ID); code != 0 || !strings.Contains(out, "app.test") || !strings.Contains(out, "8443") {
		t.Errorf("modbox get = %d %q, want the host and the port", code, out)
	}
	if errOut, code := change("--request-host", "app.test/path"); code == 0 || !strings.Contains(errOut, "request_host") {
		t.Errorf("a host with a path: code %d, %q, want an error that names request_host", code, errOut)
	}
	if errOut, code := change("--reset"); code != 0 {
		t.Fatalf("modbox network requests --reset = %d %q", code, errOut)
	}
	url := sb.Network.Ports[0].URL + "/"
	sees("after the reset", url, "http "+strings.Split(strings.TrimPrefix(url, "http://"), "/")[0])
}
