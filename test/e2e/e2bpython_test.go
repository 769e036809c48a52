package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/process"
	"github.com/modbox/modbox/test/testserver"
)

// pythonClient sends the requests of E2B's Python packages, byte for byte as far as a server can tell: JSON messages, and
// the binary, compressed messages of newer versions.
type pythonClient struct {
	t      *testing.T
	ctx    context.Context
	server string
	key    string
	id     string // of the sandbox
	access string // its token
	// traffic is the token of its ports, if they are not open to everybody.
	traffic string
}

// httpx has the headers that httpx adds to each request.
var httpx = map[string]string{
	"Accept": "*/*", "Accept-Encoding": "gzip, deflate, br, zstd", "Connection": "keep-alive", "User-Agent": "e2b-python-sdk/2.25.0",
	"Lang": "python", "Lang_version": "3.13.5", "Package_version": "2.25.0", "Publisher": "e2b", "Sdk_runtime": "python", "System": "Linux", "Machine": "x86_64",
}

// pythonAnswer is an answer with its whole body, which is still compressed.
type pythonAnswer struct {
	*http.Response

	text string
}

// send makes a request. Headers are pairs of a name and a value; the value "" removes the header.
func (c *pythonClient) send(method, path, body string, headers ...string) pythonAnswer {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.ctx, method, c.server+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	for name, value := range httpx {
		r.Header.Set(name, value)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Transport{DisableCompression: true, DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	return pythonAnswer{resp, string(text)}
}

// control calls the control plane.
func (c *pythonClient) control(status int, method, path, body string) string {
	c.t.Helper()
	a := c.send(method, path, body, "X-API-KEY", c.key, "Content-Type", "application/json", "Authorization", "Bearer sk_e2b_0000")
	if a.StatusCode != status {
		c.t.Fatalf("%s %s %s = %d %s, want %d", method, path, body, a.StatusCode, a.text, status)
	}
	return a.text
}

// inside returns the headers of a request to a port of the sandbox.
func (c *pythonClient) inside(port string, more ...string) []string {
	headers := []string{"E2b-Sandbox-Id", c.id, "E2b-Sandbox-Port", port, "X-Access-Token", c.access}
	if c.traffic != "" {
		headers = append(headers, "E2B-Traffic-Access-Token", c.traffic)
	}
	return append(headers, more...)
}

// unary makes a call with one answer, in the form of the older line: JSON, which is written in several lines.
func (c *pythonClient) unary(status int, method, message string, headers ...string) string {
	c.t.Helper()
	headers = c.inside("49983", append([]string{
		"User-Agent", "e2b-python-sdk/2.2.0", "Connect-Protocol-Version", "1", "Content-Encoding", "identity", "Content-Type", "application/json",
		"Accept-Encoding", "identity",
	}, headers...)...)
	a := c.send("POST", "/"+method, message, headers...)
	if a.StatusCode != status || a.Header.Get("Content-Type") != "application/json" {
		c.t.Fatalf("%s %s = %d %s %s, want %d", method, message, a.StatusCode, a.Header.Get("Content-Type"), a.text, status)
	}
	return a.text
}

// binary makes a call with one answer, in the form of the newer line.
func (c *pythonClient) binary(method string, message, into proto.Message, headers ...string) pythonAnswer {
	c.t.Helper()
	data, err := proto.Marshal(message)
	if err != nil {
		c.t.Fatal(err)
	}
	a := c.send("POST", "/"+method, zipped(c.t, string(data)), c.inside("49983", append([]string{
		"Connect-Protocol-Version", "1", "Content-Type", "application/proto", "Content-Encoding", "gzip", "Accept-Encoding", "gzip", "Connect-Timeout-Ms", "60000",
	}, headers...)...)...)
	if a.StatusCode == http.StatusOK {
		if a.Header.Get("Content-Encoding") == "gzip" {
			a.text = unzipped(c.t, a.text)
		}
		if err := proto.Unmarshal([]byte(a.text), into); err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
	}
	return a
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func unzipped(t *testing.T, data string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// envelope returns a message of a stream.
func envelope(flags byte, message string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))) + message
}

// messages returns the messages of a stream, without the last, and fails unless that is a good end. It accepts
// compressed messages only if the client of the stream does.
func messages(t *testing.T, stream string, compressed bool) (all []string) {
	t.Helper()
	for {
		if len(stream) < 5 {
			t.Fatalf("the stream ends with %q", stream)
		}
		flags, size := stream[0], int(binary.BigEndian.Uint32([]byte(stream[1:5])))
		message := stream[5 : 5+size]
		stream = stream[5+size:]
		if flags&1 != 0 && !compressed {
			t.Fatalf("a message is compressed, which the client does not ask for: %q", message)
		}
		if flags&1 != 0 {
			message = unzipped(t, message)
		}
		if flags&2 != 0 {
			if message != "{}" || stream != "" {
				t.Fatalf("the stream ends with %q and %q", message, stream)
			}
			return all
		}
		all = append(all, message)
	}
}

// opened is the answer of a create and a connect.
type opened struct {
	SandboxID, EnvdAccessToken string
	TrafficAccessToken         string
}

// asPython returns a client of a server.
func asPython(t *testing.T, s *testserver.Server) *pythonClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return &pythonClient{t: t, ctx: ctx, server: s.URL, key: "e2b_" + hex.EncodeToString([]byte(s.Token))}
}

// newPython makes a sandbox as the Python client does.
func newPython(t *testing.T, s *testserver.Server, template string) *pythonClient {
	t.Helper()
	c := asPython(t, s)
	var made opened
	into(t, c.control(http.StatusCreated, "POST", "/sandboxes", `{"templateID":"`+template+`","timeout":600,"autoPause":false,"autoResume":{"enabled":false},"metadata":{},"envVars":{"OWN":"1"},"secure":true,"allow_internet_access":true}`), &made)
	c.id, c.access, c.traffic = made.SandboxID, made.EnvdAccessToken, made.TrafficAccessToken
	return c
}

func into(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
}

// TestE2BPython sends what the Python client sends for sandboxes, commands and files.
func TestE2BPython(t *testing.T) {
	c := newPython(t, testserver.StartSmall(t), "base")
	t.Run("commands", c.commands)
	t.Run("files", c.files)
	t.Run("watch", c.watch)
	t.Run("lifecycle", c.lifecycle)
}

// commands runs commands by both lines, with input and signals.
func (c *pythonClient) commands(t *testing.T) {
	const ping, limit = "Keepalive-Ping-Interval", "Connect-Timeout-Ms"
	// MessageToJson of the older line.
	message := "{\n  \"process\": {\n    \"cmd\": \"/bin/bash\",\n    \"args\": [\n      \"-l\",\n      \"-c\",\n      \"echo out$OWN$A; pwd; echo err >&2; exit 3\"\n    ],\n    \"envs\": {\n      \"A\": \"2\"\n    },\n    \"cwd\": \"/tmp\"\n  },\n  \"stdin\": false\n}"
	a := c.send("POST", "/process.Process/Start", envelope(0, message), c.inside("49983", "User-Agent", "e2b-python-sdk/2.2.0", "Connect-Protocol-Version", "1",
		"Connect-Content-Encoding", "identity", "Content-Type", "application/connect+json", "Accept-Encoding", "identity", ping, "50", limit, "60000")...)
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "application/connect+json" {
		t.Fatalf("start = %d %s", a.StatusCode, a.text)
	}
	type event struct {
		Event struct {
			Start *struct{ Pid uint32 }
			Data  *struct{ Stdout, Stderr []byte }
			End   *struct {
				ExitCode int
				Exited   bool
				Status   string
			}
		}
	}
	var out, errors string
	all := messages(t, a.text, false)
	for i, m := range all {
		var e event
		into(t, m, &e)
		switch {
		case (e.Event.Start != nil) != (i == 0), (e.Event.End != nil) != (i == len(all)-1):
			t.Fatalf("event %d of %d is %s", i, len(all), m)
		case e.Event.Data != nil:
			out, errors = out+string(e.Event.Data.Stdout), errors+string(e.Event.Data.Stderr)
		case e.Event.End != nil && (e.Event.End.ExitCode != 3 || !e.Event.End.Exited || e.Event.End.Status != "exit status 3"):
			t.Errorf("end = %s", m)
		}
	}
	if out != "out12\n/tmp\n" || errors != "err\n" {
		t.Errorf("output = %q, %q", out, errors)
	}

	// The newer line, with and without compression.
	for _, pack := range []bool{true, false} {
		data, err := proto.Marshal(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", "head -c 100000 /dev/zero"}}, Stdin: proto.Bool(false)})
		if err != nil {
			t.Fatal(err)
		}
		headers := []string{"Connect-Protocol-Version", "1", "Content-Type", "application/connect+proto", "Connect-Accept-Encoding", "gzip", ping, "50", limit, "60000"}
		body := envelope(0, string(data))
		if pack {
			body, headers = envelope(1, zipped(t, string(data))), append(headers, "Connect-Content-Encoding", "gzip")
		}
		a := c.send("POST", "/process.Process/Start", body, c.inside("49983", headers...)...)
		if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "application/connect+proto" || a.Header.Get("Content-Encoding") != "" {
			t.Fatalf("binary start = %d %v %q", a.StatusCode, a.Header, a.text)
		}
		n := 0
		for _, m := range messages(t, a.text, true) {
			var e pb.StartResponse
			if err := proto.Unmarshal([]byte(m), &e); err != nil {
				t.Fatal(err)
			}
			n += len(e.GetEvent().GetData().GetStdout())
			if end := e.GetEvent().GetEnd(); end != nil && (end.GetExitCode() != 0 || !end.GetExited()) {
				t.Errorf("end = %v", end)
			}
		}
		if n != 100_000 {
			t.Errorf("compressed: %v: %d bytes of output", pack, n)
		}
	}
	c.background(t)
}

// background starts a process, whose stream stays open, and speaks to it by other calls.
func (c *pythonClient) background(t *testing.T) {
	ctx, leave := context.WithCancel(c.ctx)
	defer leave()
	start := `{"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "read x; echo \"got $x\"; sleep 1000"]}, "stdin": true}`
	r, err := http.NewRequestWithContext(ctx, "POST", c.server+"/process.Process/Start", strings.NewReader(envelope(0, start)))
	if err != nil {
		t.Fatal(err)
	}
	headers := c.inside("49983", "Connect-Protocol-Version", "1", "Connect-Content-Encoding", "identity", "Content-Type", "application/connect+json", "Keepalive-Ping-Interval", "50")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next := func() string {
		t.Helper()
		var head [5]byte
		if _, err := io.ReadFull(resp.Body, head[:]); err != nil {
			t.Fatal(err)
		}
		m := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(resp.Body, m); err != nil {
			t.Fatal(err)
		}
		return string(m)
	}
	var e struct {
		Event struct{ Start struct{ Pid uint32 } }
	}
	into(t, next(), &e)
	pid := e.Event.Start.Pid
	c.t = t
	if text := c.unary(http.StatusOK, "process.Process/List", "{}"); !strings.Contains(text, fmt.Sprintf(`"pid":%d`, pid)) {
		t.Errorf("list has no process %d: %s", pid, text)
	}
	c.unary(http.StatusOK, "process.Process/SendInput", fmt.Sprintf("{\n  \"process\": {\n    \"pid\": %d\n  },\n  \"input\": {\n    \"stdin\": \"Zml2ZQo=\"\n  }\n}", pid))
	if m := next(); !strings.Contains(m, `"stdout":"Z290IGZpdmUK"`) { // got five
		t.Errorf("output = %s", m)
	}
	signal := fmt.Sprintf(`{"process": {"pid": %d}, "signal": "SIGNAL_SIGKILL"}`, pid)
	c.unary(http.StatusOK, "process.Process/SendSignal", signal)
	if m := next(); !strings.Contains(m, `"status":"signal: killed"`) {
		t.Errorf("end = %s", m)
	}
	if text := c.unary(http.StatusNotFound, "process.Process/SendSignal", signal); !strings.Contains(text, `"code":"not_found"`) {
		t.Errorf("second kill = %s", text)
	}
	var list pb.ListResponse
	if a := c.binary("process.Process/List", &pb.ListRequest{}, &list); a.StatusCode != http.StatusOK || len(list.GetProcesses()) != 0 {
		t.Errorf("binary list = %d %v", a.StatusCode, &list)
	}
}

// lifecycle calls the control plane, with an access token of E2B's beside the key.
func (c *pythonClient) lifecycle(t *testing.T) {
	c.t = t
	at := "/sandboxes/" + c.id
	if text := c.control(http.StatusOK, "GET", at, ""); !strings.Contains(text, `"state":"running"`) || !strings.Contains(text, `"envdAccessToken":"`+c.access) {
		t.Errorf("info = %s", text)
	}
	if text := c.control(http.StatusOK, "GET", "/v2/sandboxes?state=running,paused&limit=100", ""); !strings.Contains(text, c.id) {
		t.Errorf("list = %s", text)
	}
	c.control(http.StatusNoContent, "POST", at+"/timeout", `{"timeout":900}`)
	if a := c.send("GET", "/health", "", c.inside("49983")...); a.StatusCode != http.StatusNoContent {
		t.Errorf("health = %d", a.StatusCode)
	}
	if text := c.control(http.StatusOK, "GET", at+fmt.Sprintf("/metrics?start=%d&end=%d", time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()), ""); !strings.Contains(text, "cpuUsedPct") {
		t.Errorf("metrics = %s", text)
	}
	c.control(http.StatusNoContent, "POST", at+"/pause", `{"memory":true}`)
	if text := c.control(http.StatusConflict, "POST", at+"/pause", `{"memory":true}`); !strings.Contains(text, `"code":409`) {
		t.Errorf("second pause = %s", text)
	}
	if a := c.send("GET", "/health", "", c.inside("49983")...); a.StatusCode != http.StatusBadGateway {
		t.Errorf("health of a paused sandbox = %d", a.StatusCode)
	}
	c.control(http.StatusCreated, "POST", at+"/connect", `{"timeout":300,"memory":true}`)
	c.control(http.StatusOK, "POST", at+"/connect", `{"timeout":300}`)
	if text := c.control(http.StatusCreated, "POST", at+"/fork", `{"timeout":300,"count":1}`); !strings.Contains(text, `[{"sandbox":{"sandboxID":"i`) {
		t.Errorf("fork = %s", text)
	}
	c.control(http.StatusNoContent, "DELETE", at, "")
	if text := c.control(http.StatusNotFound, "DELETE", at, ""); !strings.Contains(text, `"code":404`) {
		t.Errorf("second kill = %s", text)
	}
}
