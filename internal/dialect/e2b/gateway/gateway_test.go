package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/dialect/e2b"
)

// TestHosts calls a server by the hosts beneath its base domain, as E2B's clients do that know the domain alone: the
// control plane, and the ports of a sandbox.
func TestHosts(t *testing.T) {
	s := apitest.New(t)
	const domain = ".localhost" // of servers at a loopback address
	call := func(host, method, path, body string, headers map[string]string) *apitest.Answer {
		r := s.Request(method, path, nil)
		if body != "" {
			r = s.Request(method, path, body)
		}
		r.Header.Del("Authorization")
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		r.Host = host + domain
		return s.Send(r)
	}
	key := map[string]string{"X-API-Key": s.Token}
	made := call("api", "POST", "/v2/sandboxes", `{"templateID":"base","timeout":600}`, key)
	if made.Status != http.StatusCreated {
		t.Fatalf("create = %d %s", made.Status, made.Body)
	}
	var sb struct {
		SandboxID, EnvdAccessToken string
	}
	made.Into(t, &sb)
	access := map[string]string{"X-Access-Token": sb.EnvdAccessToken, "Content-Type": "application/json"}
	none := strings.Replace(sb.SandboxID, "i", "ia", 1)
	for _, tc := range []struct {
		host, method, path, body string
		headers                  map[string]string
		status                   int
		said                     string
	}{
		{"api", "GET", "/health", "", nil, 200, "successful"},
		{"API", "GET", "/sandboxes/" + sb.SandboxID, "", key, 200, sb.SandboxID},
		{"api", "GET", "/e2b/sandboxes/" + sb.SandboxID, "", key, 200, sb.SandboxID},
		{"api", "GET", "/sandboxes", "", nil, 401, `"code":401`},
		// The host has the routes of the dialect and no others, also for the server's own credentials.
		{"api", "GET", "/v1/sandboxes", "", map[string]string{"Authorization": "Bearer " + s.Token}, 400, "/v1/sandboxes is not available"},
		{"api", "GET", "/healthz", "", nil, 401, `"code":401`},
		{"api", "GET", "/volumecontent/v/dir", "", map[string]string{"Authorization": "Bearer x"}, 400, "volumes are not available"},
		{"api", "POST", "/volumes", `{"name":"v"}`, key, 400, "volumes are not available"},
		{"api", "PATCH", "/v2/templates/x", `{"public":true}`, key, 400, "private to their workspace"},
		{"49983-" + sb.SandboxID, "GET", "/health", "", nil, 204, ""},
		{"49983-" + sb.SandboxID, "POST", "/filesystem.Filesystem/ListDir", `{"path":"/"}`, access, 200, "entries"},
		{"49983-" + sb.SandboxID, "POST", "/filesystem.Filesystem/ListDir", `{"path":"/"}`, nil, 401, `"code":401`},
		{"49983-" + none, "GET", "/health", "", nil, 404, ""},
		{"other", "GET", "/sandboxes", "", nil, 404, ""},
	} {
		a := call(tc.host, tc.method, tc.path, tc.body, tc.headers)
		if a.Status != tc.status || !strings.Contains(string(a.Body), tc.said) {
			t.Errorf("%s %s%s%s = %d %s, want %d and %q", tc.method, tc.host, domain, tc.path, a.Status, a.Body, tc.status, tc.said)
		}
	}
	// By path, without the host: the clients that know the server's address.
	if a := s.Do("GET", "/volumecontent/v/dir", nil); a.Status != http.StatusBadRequest || !strings.Contains(string(a.Body), "volumes are not available") {
		t.Errorf("volume content = %d %s", a.Status, a.Body)
	}
}

// TestDirectoryOfContexts lists the default contexts of code that have not run any: with the directory in which they
// will begin, which depends on the image.
func TestDirectoryOfContexts(t *testing.T) {
	s := apitest.New(t)
	var sb struct{ SandboxID string }
	s.Want(http.StatusCreated, "POST", "/e2b/sandboxes", `{"templateID":"base","timeout":600,"secure":false}`).Into(t, &sb)
	id, _ := e2b.ParseSandboxID(sb.SandboxID)
	check := func(when, want string) {
		t.Helper()
		r := s.Request("GET", "/contexts", nil)
		r.Header.Del("Authorization")
		r.Host = "49999-" + sb.SandboxID + ".localhost"
		var all []struct{ ID, Language, Cwd string }
		a := s.Send(r)
		a.Into(t, &all)
		if a.Status != http.StatusOK || len(all) != 2 || all[0].Cwd != want || all[1].Cwd != want {
			t.Errorf("%s: contexts = %d %s, want two that begin in %s", when, a.Status, a.Body, want)
		}
	}
	at := "/v1/sandboxes/" + string(id) + "/files"
	const home = "?path=/home/user"
	check("without the directory", "/root")
	s.Want(http.StatusOK, "POST", at+"/mkdir", `{"path":"/home"}`)
	s.Want(http.StatusOK, "PUT", at+home, "a file")
	check("a file in place of the directory", "/root")
	s.Want(http.StatusNoContent, "DELETE", at+home, nil)
	s.Want(http.StatusOK, "POST", at+"/mkdir", `{"path":"/home/user"}`)
	check("with the directory", "/home/user")
}

// TestKeyForProgram requests a program in a sandbox with an API key of the program's own, at both forms of its URL: the
// request reaches the program as it is.
func TestKeyForProgram(t *testing.T) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.EscapedPath()+" "+r.Header.Get("X-Api-Key")+" "+r.Header.Get("Authorization"))
	}))
	defer program.Close()
	_, port, _ := strings.Cut(program.Listener.Addr().String(), "127.0.0.1:")
	s := apitest.New(t)
	var sb struct{ URL string }
	s.Want(http.StatusCreated, "POST", "/v1/sandboxes", `{"wait_seconds":180}`).Into(t, &sb)
	label := port + "--" + sb.URL[strings.LastIndex(sb.URL, "/")+1:]
	for _, tc := range []struct{ host, path string }{{"", "/s/" + label}, {label + ".localhost", ""}} {
		for _, key := range []string{"of-the-program", "e2b_00"} {
			r := s.Request("GET", tc.path+"/sandboxes/a%2Fb", nil)
			r.Header.Del("Authorization")
			r.Header.Set("X-API-Key", key)
			if tc.host != "" {
				r.Host = tc.host
			}
			if a := s.Send(r); a.Status != http.StatusOK || string(a.Body) != "/sandboxes/a%2Fb "+key+" " {
				t.Errorf("%s%s with key %s = %d %s", tc.host, tc.path, key, a.Status, a.Body)
			}
		}
	}
}
