package modbox_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// visitor sends requests to a sandbox's URL as its users do: without an API token.
type visitor struct {
	*apitest.Server
	t   *testing.T
	url string
	key string
	id  sandbox.ID
}

func newVisitor(t *testing.T, env object) *visitor {
	t.Helper()
	s := apitest.New(t)
	sb := provision(t, s, object{"task_id": "visited", "env_vars": env})
	return &visitor{Server: s, t: t, url: sb["sandbox_url"].(string), id: sandbox.ID(sb["id"].(string))}
}

func (v *visitor) request(method, path string, body any) *http.Request {
	v.t.Helper()
	r := v.Request(method, v.url+path, body)
	r.Header.Del("Authorization")
	r.Header.Del("Content-Type")
	if v.key != "" {
		r.Header.Set("Authorization", "Bearer "+v.key)
	}
	return r
}

func (v *visitor) ask(status int, method, path string, body any) object {
	v.t.Helper()
	a := v.Send(v.request(method, path, body))
	if a.Status != status {
		v.t.Fatalf("%s %s = %d %.300s, want %d", method, path, a.Status, a.Body, status)
	}
	var out object
	a.Into(v.t, &out)
	return out
}

func TestExec(t *testing.T) {
	v := newVisitor(t, object{"GREETING": "hi"})
	got := v.ask(200, "POST", "/modbox/api/exec", object{"command": "echo $GREETING; echo no >&2; exit 3"})
	if _, isNumber := got["durationMs"].(float64); got["exitCode"] != 3.0 || got["stdout"] != "hi\n" || got["stderr"] != "no\n" || !isNumber {
		t.Errorf("exec = %v", got)
	}
	if len(got) != 4 {
		t.Errorf("exec answers more than the four fields: %v", got)
	}
	got = v.ask(200, "POST", "/modbox/api/exec/", object{"command": "head -c 2000000 /dev/zero | tr '\\0' x"})
	if len(got["stdout"].(string)) != 1<<20 || got["stdoutTruncated"] != true || got["exitCode"] != 0.0 {
		t.Errorf("capped: %d bytes, truncated %v", len(got["stdout"].(string)), got["stdoutTruncated"])
	}
	got = v.ask(200, "POST", "/modbox/api/exec", object{"command": "sleep 100", "timeout": 1})
	if got["timedOut"] != true {
		t.Errorf("timeout: %v", got)
	}
	got = v.ask(200, "POST", "/modbox/api/exec", object{"command": "echo $A", "env": object{"A": "b"}, "cwd": "/"})
	if got["stdout"] != "b\n" {
		t.Errorf("env: %v", got)
	}
	for _, body := range []object{{}, {"command": ""}, {"command": 1}, {"command": "x", "timeout": 601}, {"command": strings.Repeat("x", sandbox.CommandMax+1)}} {
		if got := v.ask(422, "POST", "/modbox/api/exec", body); got["code"] != "invalid" {
			t.Errorf("%.50v = %v", body, got)
		}
	}
	if got := v.ask(422, "POST", "/modbox/api/exec", object{"command": "true", "cwd": "/no/such/directory"}); got["code"] != "file_not_found" {
		t.Errorf("a working directory that does not exist: %v", got)
	}
	v.ask(404, "GET", "/modbox/api/exec", nil)
	v.ask(404, "GET", "/modbox/api/nothing", nil)
}

func TestExecute(t *testing.T) {
	// On the fake driver, commands find the programs of this machine.
	v := newVisitor(t, object{"PATH": os.Getenv("PATH")})
	big := strings.Repeat("#"+strings.Repeat("x", 99)+"\n", 2000)
	for _, tc := range []struct {
		name, language, program, code, want string
	}{
		{"default_is_python", "", "python3", "print(6*7)", "42\n"},
		{"python", "python", "python3", "import sys; print(sys.version_info[0])", "3\n"},
		{"large_python", "Python3", "python3", big + "print('end')", "end\n"},
		{"javascript", "javascript", "node", "console.log([1,2].map(x => x * 2).join())", "2,4\n"},
		{"large_javascript", "node", "node", strings.ReplaceAll(big, "#", "//") + "console.log('end')", "end\n"},
		{"bash", "bash", "bash", "x=(a b); echo ${#x[@]}", "2\n"},
		{"large_bash", "bash", "bash", big + "echo end", "end\n"},
		{"sh", "sh", "sh", "echo $0", "/bin/sh\n"},
		{"go", "go", "go", "package main\nimport \"fmt\"\nfunc main() { fmt.Println(6 * 7) }\n", "42\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := exec.LookPath(tc.program); err != nil {
				t.Skipf("this machine has no %s", tc.program)
			}
			body := object{"code": tc.code}
			if tc.language != "" {
				body["language"] = tc.language
			}
			if got := v.ask(200, "POST", "/execute", body); got["stdout"] != tc.want || got["exitCode"] != 0.0 {
				t.Errorf("execute = %v", got)
			}
		})
	}
	if got := v.ask(200, "POST", "/execute", object{"code": "exit 7", "language": "bash"}); got["exitCode"] != 7.0 {
		t.Errorf("exit code: %v", got)
	}
	v.ask(422, "POST", "/execute", object{"code": "x", "language": "cobol"})
	v.ask(422, "POST", "/execute", object{"language": "python"})
	v.ask(413, "POST", "/execute", object{"code": strings.Repeat("x", 4<<20+1)})
}

func TestKeyGuardsTheAPI(t *testing.T) {
	routes := []struct{ method, path string }{
		{"POST", "/modbox/api/exec"}, {"GET", "/modbox/api/files"}, {"GET", "/modbox/api/unknown"}, {"POST", "/execute"}, {"POST", "/execute/"},
	}
	for _, authorization := range []string{"", "Bearer wrong", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret", "Bearer mbx_wrong"} {
		v := newVisitor(t, object{"SANDBOX_API_KEY": "s3cret"}) // each with its own count of guesses
		for _, route := range routes {
			r := v.request(route.method, route.path, object{"command": "true", "code": "1"})
			r.Header.Set("Authorization", authorization)
			if a := v.Send(r); a.Status != 401 || !strings.Contains(string(a.Body), `"code":"unauthenticated"`) || strings.Contains(string(a.Body), "s3cret") {
				t.Errorf("%s %s with %q: %d %s", route.method, route.path, authorization, a.Status, a.Body)
			}
		}
	}
	v := newVisitor(t, object{"SANDBOX_API_KEY": "s3cret"})
	v.key = "s3cret"
	if got := v.ask(200, "POST", "/modbox/api/exec", object{"command": "true"}); got["exitCode"] != 0.0 {
		t.Errorf("with the key: %v", got)
	}
}

// form is a multipart body with a file; its name is not escaped in the header.
func form(name string, data []byte) (*bytes.Buffer, string) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.WriteField("other", "ignored")
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", fmt.Sprintf(`form-data; name="file"; filename="%s"`, name))
	part, _ := w.CreatePart(h)
	_, _ = part.Write(data)
	_ = w.Close()
	return &b, w.FormDataContentType()
}

func (v *visitor) upload(name string, data []byte) *apitest.Answer {
	v.t.Helper()
	b, contentType := form(name, data)
	r := v.request("POST", "/modbox/api/files/upload", b)
	r.Header.Set("Content-Type", contentType)
	return v.Send(r)
}

func TestFiles(t *testing.T) {
	v := newVisitor(t, nil)
	if got := v.ask(200, "GET", "/modbox/api/files/list", nil); got["total"] != 0.0 {
		t.Errorf("before the first upload: %v", got)
	}
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	var up object
	v.upload("a b-ü.bin", data).Into(t, &up)
	if up["success"] != true || up["path"] != "/workspace/uploads/a b-ü.bin" || up["size"] != 1e6 || up["filename"] != "a b-ü.bin" {
		t.Errorf("upload = %v", up)
	}
	if b, err := os.ReadFile(filepath.Join(v.Host.Root(v.id), "workspace/uploads/a b-ü.bin")); err != nil || !bytes.Equal(b, data) {
		t.Errorf("in the sandbox are %d bytes, %v", len(b), err)
	}
	for _, path := range []string{"/modbox/api/files", "/modbox/api/files/list/"} {
		got := v.ask(200, "GET", path, nil)
		files := got["files"].([]any)
		if len(files) != 1 || files[0].(map[string]any)["filename"] != "a b-ü.bin" || files[0].(map[string]any)["size"] != 1e6 {
			t.Errorf("GET %s = %v", path, got)
		}
	}
	for _, path := range []string{"/modbox/api/files/download/a%20b-%C3%BC.bin", "/modbox/api/files/download?filename=a+b-%C3%BC.bin", "/modbox/api/files/a%20b-%C3%BC.bin"} {
		if a := v.Send(v.request("GET", path, nil)); a.Status != 200 || !bytes.Equal(a.Body, data) || !strings.Contains(a.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("GET %s = %d, %d bytes, %v", path, a.Status, len(a.Body), a.Header)
		}
	}
	for _, del := range []func() object{
		func() object { return v.ask(200, "DELETE", "/modbox/api/files/delete/x", nil) },
		func() object { return v.ask(200, "DELETE", "/modbox/api/files/x", nil) },
		func() object { return v.ask(200, "POST", "/modbox/api/files/delete", object{"filename": "x"}) },
	} {
		v.upload("x", []byte("x"))
		if got := del(); got["success"] != true {
			t.Errorf("delete = %v", got)
		}
		v.ask(404, "GET", "/modbox/api/files/download/x", nil)
	}
	v.ask(404, "DELETE", "/modbox/api/files/x", nil)
}

func TestFileNamesAreConfined(t *testing.T) {
	v := newVisitor(t, nil)
	v.upload("first", []byte("x"))
	root := v.Host.Root(v.id)
	if err := os.WriteFile(filepath.Join(root, "secret"), []byte("outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	uploads := filepath.Join(root, "workspace/uploads")
	if err := os.Symlink("../../secret", filepath.Join(uploads, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../../secret", "/secret", "a/b", `a\\b`, "..", ".", "", "a\x01b", strings.Repeat("x", 256)} {
		if a := v.upload(name, []byte("evil")); a.Status != 422 {
			t.Errorf("upload of %q: %d %s", name, a.Status, a.Body)
		}
	}
	for _, path := range []string{"download/link", "download/..%2F..%2Fsecret", "download?filename=../../secret", "download?filename=%2Fsecret", "link", "..%2F..%2Fsecret"} {
		if a := v.Send(v.request("GET", "/modbox/api/files/"+path, nil)); a.Status == 200 || strings.Contains(string(a.Body), "outside") {
			t.Errorf("GET %s: %d %s", path, a.Status, a.Body)
		}
	}
	v.upload("link", []byte("evil"))
	if b, err := os.ReadFile(filepath.Join(root, "secret")); err != nil || string(b) != "outside" {
		t.Errorf("the file outside is now %q, %v", b, err)
	}
}

func TestUploadLimit(t *testing.T) {
	v := newVisitor(t, nil)
	data := make([]byte, sandbox.UploadMax+1)
	if a := v.upload("exact", data[:sandbox.UploadMax]); a.Status != 200 {
		t.Errorf("50 MB: %d %s", a.Status, a.Body)
	}
	if a := v.upload("over", data); a.Status != 413 || !strings.Contains(string(a.Body), "50 MB") {
		t.Errorf("one byte more: %d %s", a.Status, a.Body)
	}
	v.ask(404, "GET", "/modbox/api/files/download/over", nil)
	r := v.request("POST", "/modbox/api/files/upload", "not a form")
	if a := v.Send(r); a.Status != 422 {
		t.Errorf("no form: %d %s", a.Status, a.Body)
	}
}

func TestEverythingElseGoesToTheSandbox(t *testing.T) {
	v := newVisitor(t, nil)
	l, err := v.Host.Listen(v.id, 8080)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.RequestURI) })}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	for path, want := range map[string]string{"/": "GET /", "/execute": "GET /execute", "/modbox/x?y": "GET /modbox/x?y", "/modbox/api": "GET /modbox/api"} {
		if a := v.Send(v.request("GET", path, nil)); string(a.Body) != want {
			t.Errorf("GET %s = %d %s", path, a.Status, a.Body)
		}
	}
	v.Want(200, "POST", "/sandboxes/destroy", object{"task_id": "visited"})
	if a := v.Send(v.request("GET", "/", nil)); a.Status != 410 {
		t.Errorf("after the end: %d %s", a.Status, a.Body)
	}
	if a := v.Send(v.request("POST", "/modbox/api/exec", object{"command": "true"})); a.Status != 410 {
		t.Errorf("exec after the end: %d %s", a.Status, a.Body)
	}
}
