package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// ask sends a request with the server's token and returns the answer's status and body.
func ask(t *testing.T, s *testserver.Server, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// TestStringsThatMeanNothing: every interface refuses invalid names of sandboxes, commands and
// files, with an error about the field, and makes nothing.
func TestStringsThatMeanNothing(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", URLAccess: client.URLOpen})
	inAgentuity := "sbx_" + strings.ReplaceAll(sb.ID, "-", "")
	before := sandboxes(t, s)
	for _, route := range []struct {
		method, path string
		refused      map[string][]string // values of a body, or of a query, by what the error must name
	}{
		{"POST", "/v1/sandboxes", createRefused},
		{"POST", "/v1/sandboxes/" + sb.ID + "/exec", commandRefused},
		{"POST", "/v1/sandboxes/" + sb.ID + "/executions", commandRefused},
		{"POST", "/v1/sandboxes/" + sb.ID + "/files/mkdir", pathRefused},
		{"POST", "/v1/sandboxes/" + sb.ID + "/files/move", map[string][]string{
			"from": {`{"from":"a\u0000b","to":"/tmp/y"}`}, "to": {`{"from":"/etc/passwd","to":""}`}, "busy": {`{"from":"/","to":"/srv/y"}`, `{"from":"/etc/passwd","to":"/"}`},
		}},
		{"POST", "/v1/sandboxes/" + sb.ID + "/files/batch", map[string][]string{"path": {`{"files":[{"path":"a\u0000b","content":""}]}`, `{"files":[{"path":"","content":""}]}`}}},
		{"POST", "/v1/sandboxes/" + sb.ID + "/snapshots", map[string][]string{"name": {`{"name":"../x"}`, `{"name":"a\u0000"}`}, "tag": {`{"name":"a","tag":"../x"}`}}},
		{"POST", "/v1/images/pull", map[string][]string{"image": {`{"image":"../../x"}`, `{"image":"registry.example.com/../x"}`}}},
		{"POST", "/v1/sandbox-images", map[string][]string{"image": {`{"name":"x","image":"../../x"}`}, "name": {`{"name":"a\u0000","image":"modbox/base"}`}}},
		{"GET", "/v1/sandboxes/" + sb.ID + "/files", queryRefused},
		{"PUT", "/v1/sandboxes/" + sb.ID + "/files", queryRefused},
		{"GET", "/v1/sandboxes/" + sb.ID + "/files/archive", queryRefused},
		{"POST", "/sandbox", map[string][]string{
			"runtime":  {`{"runtime":"../../x"}`, `{"runtime":"./x"}`, `{"runtime":"a\u0000"}`},
			"name":     {`{"name":"` + strings.Repeat("x", 300) + `"}`},
			"env":      {`{"env":{"A=B":"x"}}`, `{"env":{"A":"a\u0000"}}`},
			"command":  {`{"command":{"exec":["a\u0000"]}}`},
			"files":    {`{"files":[{"path":"a\u0000b","content":""}]}`, `{"command":{"exec":["true"],"files":[{"path":"a\u0000b","content":""}]}}`},
			"metadata": {`{"metadata":{"a":"` + strings.Repeat("x", 70000) + `"}}`},
		}},
		{"POST", "/fs/mkdir/" + inAgentuity, pathRefused},
		{"POST", "/fs/" + inAgentuity, map[string][]string{"files": {`{"files":[{"path":"a\u0000b","content":""}]}`}}},
		{"GET", "/fs/" + inAgentuity, queryRefused},
		{"POST", "/sandboxes/provision", map[string][]string{
			"image": {`{"task_id":"x","image":"../../x"}`}, "task_id": {`{"task_id":"a\u0000"}`}, "env": {`{"task_id":"x","env_vars":{"A=B":"x"}}`},
		}},
		{"POST", strings.TrimPrefix(sb.URL, s.URL) + "/modbox/api/exec", map[string][]string{
			"command": {`{"command":"a\u0000"}`}, "cwd": {`{"command":"true","cwd":"\u0000"}`, `{"command":"true","cwd":"x"}`}, "env": {`{"command":"true","env":{"A=B":"x"}}`},
		}},
	} {
		for word, values := range route.refused {
			for _, value := range values {
				url, body := s.URL+route.path, value
				if strings.HasPrefix(value, "?") {
					url, body = url+value, ""
				}
				status, answer := ask(t, s, route.method, url, body)
				refused := status == http.StatusUnprocessableEntity || status == http.StatusBadRequest || word == "busy" && status == http.StatusForbidden
				if !refused || !strings.Contains(answer, word) {
					t.Errorf("%s %s %.80s = %d %.300s; want a refusal that names %s", route.method, route.path, value, status, answer, word)
				}
			}
		}
	}
	if after := sandboxes(t, s); after != before {
		t.Errorf("%d sandboxes were made", after-before)
	}
}

func sandboxes(t *testing.T, s *testserver.Server) (n int) {
	t.Helper()
	for _, err := range s.Sandboxes.List(client.ListOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

var (
	createRefused = map[string][]string{
		"name":            {`{"name":"a\u0000b"}`, `{"name":"a\nb"}`},
		"image":           {`{"image":"../../x"}`, `{"image":"./x"}`, `{"image":"a..b"}`, `{"image":"127.0.0.1:1/../../v2/x"}`, `{"image":"a\u0000"}`},
		"snapshot":        {`{"snapshot":"../x"}`, `{"snapshot":"a\u0000"}`},
		"image_id":        {`{"image_id":"../x"}`},
		"env.":            {`{"env":{"A=B":"x"}}`, `{"env":{"":"x"}}`, `{"env":{"A":"a\u0000"}}`},
		"labels.":         {`{"labels":{"a\n":"x"}}`},
		"metadata":        {`{"metadata":{"a\u0000":"x"}}`, `{"metadata":{"a":"x\u0000"}}`, `{"metadata":{"a":"` + strings.Repeat("x", 70000) + `"}}`},
		"description":     {`{"description":"a\u0000"}`},
		"apt_packages[0]": {`{"apt_packages":["-y"]}`, `{"apt_packages":["a;b"]}`},
		"pip_packages[0]": {`{"pip_packages":["-r/etc/passwd"]}`, `{"pip_packages":["x @ https://example.com/x.whl"]}`},
		"npm_packages[0]": {`{"npm_packages":["-g"]}`, `{"npm_packages":["file:/etc"]}`},
		"cwd":             {`{"command":{"command":["true"],"cwd":"\u0000"}}`, `{"command":{"command":["true"],"cwd":"x"}}`},
		"user":            {`{"command":{"command":["true"],"user":"a\n"}}`},
		"stdin_stream_id": {`{"command":{"command":["true"],"stdin_stream_id":"../x"}}`},
		"files":           {`{"command":{"command":["true"],"files":[{"path":"a\u0000","content":""}]}}`},
	}
	commandRefused = map[string][]string{
		"command": {`{"command":["a\u0000b"]}`, `{"command":[""]}`},
		"NUL":     {`{"shell":"a\u0000b"}`},
		"cwd":     {`{"command":["true"],"cwd":"/a\u0000"}`, `{"command":["true"],"cwd":"x"}`},
		"user":    {`{"command":["true"],"user":"a\u0000"}`, `{"command":["true"],"user":":"}`},
		"env.":    {`{"command":["true"],"env":{"A=B":"x"}}`, `{"command":["true"],"env":{"A":"\u0000"}}`},
	}
	pathRefused  = map[string][]string{"path": {`{"path":"a\u0000b"}`, `{"path":""}`}}
	queryRefused = map[string][]string{"path": {"?path=a%00b", "?path="}}
)
