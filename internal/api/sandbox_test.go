package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// running makes a running sandbox.
func running(t *testing.T, s *apitest.Server, name string) wire.Sandbox {
	t.Helper()
	var sb wire.Sandbox
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": name, "wait_seconds": 180}).Into(t, &sb)
	if sb.State != "running" {
		t.Fatalf("sandbox %s is %s: %+v", name, sb.State, sb.Cause)
	}
	return sb
}

// problem is the error of an answer.
func problem(t *testing.T, a *apitest.Answer) apierror.Problem {
	t.Helper()
	var p apierror.Problem
	a.Into(t, &p)
	if a.Header.Get("Content-Type") != "application/problem+json" || p.Status != a.Status || p.Status != apierror.Status(p.Code) && a.Status != 405 {
		t.Errorf("answer %d, %s: %s", a.Status, a.Header.Get("Content-Type"), a.Body)
	}
	if p.RequestID == "" || p.RequestID != a.Header.Get("X-Request-Id") {
		t.Errorf("request id %q in the body, %q in the header", p.RequestID, a.Header.Get("X-Request-Id"))
	}
	return p
}

func TestLifeOfASandbox(t *testing.T) {
	s := apitest.New(t)
	create := map[string]any{
		"name": "life", "image": "modbox/code-exec", "env": map[string]string{"SECRET": "hunter2"},
		"labels": map[string]string{"team": "a"}, "ttl_seconds": 600,
		"resources": map[string]string{"memory": "512Mi", "cpu": "500m", "disk": "1Gi"}, "wait_seconds": 180,
	}
	var sb, again wire.Sandbox
	first := s.Want(201, "POST", "/v1/sandboxes", create)
	first.Into(t, &sb)
	if sb.State != "running" || sb.Name != "life" || sb.TTLSeconds != 600 || sb.Deadline == nil || sb.StartedAt == nil || sb.EndedAt != nil || sb.Cause != nil {
		t.Errorf("created %+v", sb)
	}
	if want := (wire.Resources{Memory: "512Mi", CPU: "500m", Disk: "1Gi"}); sb.Resources != want {
		t.Errorf("resources %+v, want %+v", sb.Resources, want)
	}
	if !strings.HasPrefix(sb.URL, s.URL+"/s/life-") {
		t.Errorf("url %s", sb.URL)
	}
	s.Want(200, "POST", "/v1/sandboxes/", create).Into(t, &again)
	if again.ID != sb.ID {
		t.Errorf("the same request made another sandbox")
	}
	for _, path := range []string{"/v1/sandboxes/life", "/v1/sandboxes/" + sb.ID, "/v1/sandboxes/life/"} {
		got := s.Want(200, "GET", path, nil)
		if strings.Contains(string(got.Body), "hunter2") {
			t.Errorf("GET %s shows the environment", path)
		}
	}
	create["image_id"] = apitest.ImageID
	create["ttl_seconds"] = 700
	if p := problem(t, s.Want(409, "POST", "/v1/sandboxes", create)); p.Code != sandbox.Exists {
		t.Errorf("another request of the same name: %+v", p)
	}
	s.Want(200, "DELETE", "/v1/sandboxes/life", nil).Into(t, &sb)
	if sb.State != "destroyed" || sb.Cause == nil || sb.Cause.Code != "destroyed" || sb.EndedAt == nil {
		t.Errorf("after DELETE: %+v", sb)
	}
	s.Want(200, "DELETE", "/v1/sandboxes/"+sb.ID, nil)
	if p := problem(t, s.Want(410, "POST", "/v1/sandboxes/life/exec", map[string]any{"command": []string{"true"}})); p.Code != sandbox.Ended {
		t.Errorf("exec after the end: %+v", p)
	}
	var events wire.Page[wire.Event]
	s.Want(200, "GET", "/v1/sandboxes/"+sb.ID+"/events?order=desc&limit=1", nil).Into(t, &events)
	if len(events.Items) != 1 || events.Items[0].Type != "destroyed" {
		t.Errorf("last event: %+v", events.Items)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := apitest.New(t)
	send := func(body map[string]any) *apitest.Answer {
		r := s.Request("POST", "/v1/sandboxes", body)
		r.Header.Set("Idempotency-Key", "once")
		return s.Send(r)
	}
	var a, b wire.Sandbox
	first, second := send(map[string]any{}), send(map[string]any{})
	first.Into(t, &a)
	second.Into(t, &b)
	if first.Status != 201 || second.Status != 200 || a.ID != b.ID {
		t.Errorf("%d %s, then %d %s", first.Status, a.ID, second.Status, b.ID)
	}
	if p := problem(t, send(map[string]any{"ttl_seconds": 60})); p.Code != sandbox.Conflict {
		t.Errorf("the key with another request: %+v", p)
	}
}

func TestListPages(t *testing.T) {
	s := apitest.New(t)
	for i := range 5 {
		team := "a"
		if i%2 == 1 {
			team = "b"
		}
		s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": fmt.Sprint("n", i), "labels": map[string]string{"team": team}})
	}
	var names []string
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		if pages > 2 {
			t.Fatal("the pages do not end")
		}
		var l wire.Page[wire.Sandbox]
		s.Want(200, "GET", "/v1/sandboxes?limit=2&cursor="+url.QueryEscape(cursor), nil).Into(t, &l)
		for _, sb := range l.Items {
			names = append(names, sb.Name)
		}
		cursor = ""
		if l.NextCursor != nil {
			cursor = *l.NextCursor
		}
	}
	if got := strings.Join(names, " "); got != "n4 n3 n2 n1 n0" {
		t.Errorf("pages gave %s", got)
	}
	for query, want := range map[string]int{"label=team%3Da": 3, "label=team%3Da&name=n0": 1, "name=n9": 0, "state=destroyed": 0, "state=running&state=provisioning": 5} {
		var l wire.Page[wire.Sandbox]
		s.Want(200, "GET", "/v1/sandboxes?"+query, nil).Into(t, &l)
		if len(l.Items) != want {
			t.Errorf("%s: %d sandboxes, want %d", query, len(l.Items), want)
		}
	}
}

// The dialects give sandboxes names of any kind.
func TestNamesOfAnyKind(t *testing.T) {
	s := apitest.New(t)
	for _, name := range []string{"a/b c?d%e#f", "ünïcode", "x.y..z", "trailing/", "100%25", "v1"} {
		var got wire.Sandbox
		s.Want(200, "POST", "/sandboxes/provision", map[string]any{"task_id": name})
		s.Want(200, "GET", "/v1/sandboxes/"+url.PathEscape(name), nil).Into(t, &got)
		if got.Name != name {
			t.Errorf("name %q: got sandbox %q", name, got.Name)
		}
		s.Want(200, "GET", "/v1/sandboxes/"+url.PathEscape(name)+"/events/", nil)
	}
}

func TestWaitAnswersAtTheChange(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "w")
	done := make(chan wire.Sandbox)
	go func() {
		var sb wire.Sandbox
		s.Do("GET", "/v1/sandboxes/w/wait?state=destroyed&timeout_seconds=60", nil).Into(t, &sb)
		done <- sb
	}()
	s.Want(200, "DELETE", "/v1/sandboxes/w", nil)
	if sb := <-done; sb.State != "destroyed" {
		t.Errorf("wait answered state %s", sb.State)
	}
	var sb wire.Sandbox
	s.Want(200, "GET", "/v1/sandboxes/w/wait?timeout_seconds=600", nil).Into(t, &sb)
	if sb.State != "destroyed" {
		t.Errorf("waiting for an ended sandbox to run: %s", sb.State)
	}
}

func TestWrongRequestsNameTheField(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "here")
	for _, tc := range []struct {
		method, path string
		body         any
		code         sandbox.Code
		field        string
	}{
		{"POST", "/v1/sandboxes", `{"nmae":"x"}`, sandbox.Invalid, "nmae"},
		{"POST", "/v1/sandboxes", `{"ttl_seconds":"x"}`, sandbox.Invalid, "ttl_seconds"},
		{"POST", "/v1/sandboxes", `{"ttl_seconds":59}`, sandbox.Invalid, "ttl_seconds"},
		{"POST", "/v1/sandboxes", `{"ttl_seconds":86401}`, sandbox.Invalid, "ttl_seconds"},
		{"POST", "/v1/sandboxes", `{"env":{"1A":"x"}}`, sandbox.Invalid, "env.1A"},
		{"POST", "/v1/sandboxes", `{"resources":{"memory":"lots"}}`, sandbox.Invalid, "resources.memory"},
		{"POST", "/v1/sandboxes", `{"resources":{"cpu":"-1"}}`, sandbox.Invalid, "resources.cpu"},
		{"POST", "/v1/sandboxes", `{"resources":{"disk":"1e40"}}`, sandbox.Invalid, "resources.disk"},
		{"POST", "/v1/sandboxes", `{"resources":{"memory":"1Ki"}}`, sandbox.Invalid, "resources.memory"},
		{"POST", "/v1/sandboxes", `{`, sandbox.Invalid, "body"},
		{"POST", "/v1/sandboxes", `[]`, sandbox.Invalid, "body"},
		{"POST", "/v1/sandboxes", nil, sandbox.Invalid, ""},
		{"POST", "/v1/sandboxes", `{"name":"` + strings.Repeat("x", 256) + `"}`, sandbox.Invalid, "name"},
		{"POST", "/v1/sandboxes", `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, sandbox.TooLarge, ""},
		{"GET", "/v1/sandboxes?limit=1001", nil, sandbox.Invalid, "limit"},
		{"GET", "/v1/sandboxes?state=asleep", nil, sandbox.Invalid, "state[0]"},
		{"GET", "/v1/sandboxes?label=x", nil, sandbox.Invalid, "label"},
		{"GET", "/v1/sandboxes?colour=red", nil, sandbox.Invalid, "colour"},
		{"GET", "/v1/sandboxes?cursor=rubbish", nil, sandbox.Invalid, "cursor"},
		{"GET", "/v1/sandboxes/nobody", nil, sandbox.NotFound, ""},
		{"GET", "/v1/sandboxes/" + string(sandbox.NewID()), nil, sandbox.NotFound, ""},
		{"GET", "/v1/sandboxes/here/wait?timeout_seconds=0", nil, sandbox.Invalid, "timeout_seconds"},
		{"POST", "/v1/sandboxes/here/exec", `{}`, sandbox.Invalid, "command"},
		{"POST", "/v1/sandboxes/here/exec", `{"command":["a"],"shell":"b"}`, sandbox.Invalid, "shell"},
		{"POST", "/v1/sandboxes/here/exec", `{"command":"a b"}`, sandbox.Invalid, "command"},
		{"POST", "/v1/sandboxes/here/exec", `{"shell":"x","timeout_seconds":3601}`, sandbox.Invalid, "timeout_seconds"},
		{"POST", "/v1/sandboxes/here/exec/stream", `{"shell":"x","color":1}`, sandbox.Invalid, "color"},
		{"POST", "/v1/sandboxes/here/exec/stream", `{"shell":1}`, sandbox.Invalid, "shell"},
		{"GET", "/v1/sandboxes/here/files", nil, sandbox.Invalid, "path"},
		{"GET", "/v1/sandboxes/here/files?path=" + strings.Repeat("x", 4097), nil, sandbox.Invalid, "path"},
		{"GET", "/v1/sandboxes/here/files?path=/a%00b", nil, sandbox.Invalid, "path"},
		{"PUT", "/v1/sandboxes/here/files?path=/a&mode=rw", "x", sandbox.Invalid, "mode"},
		{"PUT", "/v1/sandboxes/here/files?path=/a&parents=maybe", "x", sandbox.Invalid, "parents"},
		{"GET", "/v1/nothing", nil, sandbox.NotFound, ""},
		{"GET", "/nothing", nil, sandbox.NotFound, ""},
		{"PATCH", "/v1/sandboxes", nil, sandbox.NotFound, ""},
		{"POST", "/v1/tokens", `{"expires_in_seconds":-1}`, sandbox.Invalid, "expires_in_seconds"},
		{"DELETE", "/v1/tokens/none", nil, sandbox.NotFound, ""},
	} {
		name := fmt.Sprintf("%s %.60s %.60v", tc.method, tc.path, tc.body)
		a := s.Do(tc.method, tc.path, tc.body)
		p := problem(t, a)
		if p.Code != tc.code {
			t.Errorf("%s: %d %s, want code %s", name, a.Status, a.Body, tc.code)
			continue
		}
		if tc.field != "" && (len(p.Errors) == 0 || p.Errors[0].Location != tc.field) {
			t.Errorf("%s: errors %+v, want field %s", name, p.Errors, tc.field)
		}
	}
}

// Names that look like other names, or like nothing, are refused everywhere.
func TestNamesAreSeen(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "here")
	for _, name := range []string{"  ", "a\u202eb", "\u200b"} {
		for _, tc := range []struct {
			method, path, field string
			body                map[string]any
		}{
			{"POST", "/v1/sandboxes", "name", map[string]any{"name": name}},
			{"POST", "/v1/sandboxes/here/fork", "names[0]", map[string]any{"names": []string{name}}},
			{"POST", "/v1/workspaces", "name", map[string]any{"name": name}},
			{"POST", "/v1/tokens", "description", map[string]any{"description": name}},
			{"POST", "/v1/registries", "name", map[string]any{"name": name, "server": "registry.test", "username": "ann", "password": "p"}},
			{"POST", "/v1/registries", "username", map[string]any{"name": "n", "server": "registry.test", "username": name, "password": "p"}},
			{"POST", "/v1/sandbox-images", "name", map[string]any{"name": name, "image": "registry.test/app"}},
		} {
			a := s.Do(tc.method, tc.path, tc.body)
			if p := problem(t, a); p.Code != sandbox.Invalid || len(p.Errors) == 0 || p.Errors[0].Location != tc.field {
				t.Errorf("%s %s with %q: %d %s, want an error that names %s", tc.method, tc.path, name, a.Status, a.Body, tc.field)
			}
		}
	}
}

func TestUnknownImageEndsTheSandbox(t *testing.T) {
	s := apitest.New(t)
	a := s.Do("POST", "/v1/sandboxes", map[string]any{"image": "nobody/nothing", "wait_seconds": 180})
	if a.Status == 201 {
		var sb wire.Sandbox
		a.Into(t, &sb)
		if sb.State != "failed" || sb.Cause == nil || sb.Cause.Code != "image" {
			t.Errorf("sandbox of an unknown image: %+v", sb)
		}
	} else if p := problem(t, a); p.Code != sandbox.NotFound && p.Code != sandbox.Invalid {
		t.Errorf("unknown image: %s", a.Body)
	}
}

func TestEverythingNeedsAToken(t *testing.T) {
	s := apitest.New(t)
	doc := s.Want(200, "GET", "/openapi.json", nil)
	var spec struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	doc.Into(t, &spec)
	if len(spec.Paths) < 15 {
		t.Fatalf("%d paths in the document", len(spec.Paths))
	}
	for path, methods := range spec.Paths {
		for method, operation := range methods {
			if method == "parameters" {
				continue
			}
			if strings.Contains(string(operation), `"security":[]`) {
				continue // TestEveryRouteHasARule knows which may be so
			}
			r := s.Request(strings.ToUpper(method), strings.NewReplacer("{sandbox}", "x", "{execution}", "x", "{stream}", "x").Replace(path), nil)
			r.Header.Del("Authorization")
			a := s.Send(r)
			if a.Status != 401 || a.Header.Get("WWW-Authenticate") == "" || problem(t, a).Code != sandbox.Unauthenticated {
				t.Errorf("%s %s without a token: %d %s", method, path, a.Status, a.Body)
			}
			r.Header.Set("Authorization", "Bearer "+s.Token)
			r.Header.Set("X-Workspace-Id", string(sandbox.NewWorkspaceID()))
			if a := s.Send(r); a.Status != 404 {
				t.Errorf("%s %s in a foreign workspace: %d %s", method, path, a.Status, a.Body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.yaml", "/openapi.json"} {
		r := s.Request("GET", path, nil)
		r.Header.Del("Authorization")
		if a := s.Send(r); a.Status != 200 {
			t.Errorf("GET %s without a token: %d %s", path, a.Status, a.Body)
		}
	}
}

func TestTokensOverTheAPI(t *testing.T) {
	s := apitest.New(t)
	var made wire.NewToken
	s.Want(201, "POST", "/v1/tokens", map[string]any{"description": "ci"}).Into(t, &made)
	r := s.Request("GET", "/v1/whoami", nil)
	r.Header.Set("Authorization", "Bearer "+made.Secret)
	var who wire.Whoami
	s.Send(r).Into(t, &who)
	if who.TokenID != made.ID || who.UserID == "" || who.WorkspaceID != made.WorkspaceID {
		t.Errorf("whoami = %+v for token %+v", who, made.Token)
	}
	list := s.Want(200, "GET", "/v1/tokens", nil)
	var tokens wire.Page[wire.Token]
	list.Into(t, &tokens)
	if len(tokens.Items) != 2 || strings.Contains(string(list.Body), made.Secret) {
		t.Errorf("tokens: %s", list.Body)
	}
	s.Want(204, "DELETE", "/v1/tokens/"+made.ID, nil)
	if a := s.Send(r); a.Status != 401 {
		t.Errorf("the revoked token: %d", a.Status)
	}
}

func TestHeaders(t *testing.T) {
	s := apitest.New(t)
	r := s.Request("GET", "/v1/version", nil)
	r.Header.Set("Origin", "https://evil.example")
	a := s.Send(r)
	for name := range a.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			t.Errorf("%s: %s", name, a.Header.Get(name))
		}
	}
	if a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Status != http.StatusOK {
		t.Errorf("answer %d %v", a.Status, a.Header)
	}
	if a := s.Do("PATCH", "/v1/sandboxes", nil); a.Status != 405 || a.Header.Get("Allow") == "" {
		t.Errorf("wrong method: %d %v", a.Status, a.Header)
	}
}

// curl -d sends this type by default.
func TestBodiesAreJSONWhateverCurlSays(t *testing.T) {
	s := apitest.New(t)
	r := s.Request("POST", "/v1/sandboxes", map[string]any{"name": "by-curl"})
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if a := s.Send(r); a.Status != 201 || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %s %s", a.Status, a.Header.Get("Content-Type"), a.Body)
	}
}
