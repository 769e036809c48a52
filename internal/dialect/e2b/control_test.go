package e2b_test

import (
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/dialect/e2b"
)

// made is a sandbox as the answer of a create.
type made struct {
	SandboxID, TemplateID, ClientID, EnvdVersion, EnvdAccessToken string
	TrafficAccessToken, Domain                                    *string
}

// failure is the body of an error.
type failure struct {
	Code    int
	Message string
}

// create makes a sandbox.
func create(t *testing.T, s *apitest.Server, body string) made {
	t.Helper()
	var sb made
	s.Want(http.StatusCreated, "POST", "/e2b/v2/sandboxes", body).Into(t, &sb)
	return sb
}

// TestRoutesAreDocumented compares the routes of the control plane with docs/dialects/e2b.md, and calls each
// without a key.
func TestRoutesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "dialects", "e2b.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("`((?:GET|POST|PUT|PATCH|DELETE) /[^`]*)`").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	s := apitest.New(t)
	for _, pattern := range e2b.Patterns() {
		want := []string{strings.NewReplacer("{template}", "{id}").Replace(pattern)}
		if pattern == "GET /templates/{first}/{second}" {
			want = []string{"GET /templates/aliases/{alias}", "GET /templates/{id}/tags"}
		}
		for _, route := range want {
			if !slices.Contains(documented, route) {
				t.Errorf("the page does not have %s", route)
			}
			method, path, _ := strings.Cut(route, " ")
			r := s.Request(method, "/e2b"+strings.NewReplacer("{", "", "}", "").Replace(path), nil)
			r.Header.Set("Authorization", "Bearer nothing")
			a := s.Send(r)
			var f failure
			if a.Into(t, &f); a.Status < 400 || f.Code != a.Status || f.Message == "" {
				t.Errorf("%s without a key = %d %s", route, a.Status, a.Body)
			}
			if a.Status != http.StatusUnauthorized && method != http.MethodPut {
				t.Errorf("%s without a key = %d %s, want 401", route, a.Status, a.Body)
			}
		}
	}
}

// TestErrors calls the routes with wrong parameters: each answer has a code, and a message that names the parameter.
func TestErrors(t *testing.T) {
	s := apitest.New(t)
	sb := create(t, s, `{"templateID":"base","timeout":600}`)
	at := "/sandboxes/" + sb.SandboxID
	none := "/sandboxes/iaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, tc := range []struct {
		method, path, body string
		status             int
		said               string
	}{
		{"POST", "/v2/sandboxes", `{`, 400, "JSON"},
		{"POST", "/v2/sandboxes", `{"timeout":"5"}`, 400, "JSON"},
		{"POST", "/v2/sandboxes", `{"timeout":0}`, 400, "timeout"},
		{"POST", "/v2/sandboxes", `{"timeout":-5}`, 400, "timeout"},
		{"POST", "/v2/sandboxes", `{"timeout":100000000}`, 400, "timeout"},
		{"POST", "/v2/sandboxes", `{"templateID":"` + strings.Repeat("x", 300) + `"}`, 400, "templateID"},
		{"POST", "/v2/sandboxes", `{"templateID":"no-such-template"}`, 400, "no-such-template"},
		{"POST", "/v2/sandboxes", `{"templateID":"mcp-gateway"}`, 404, "mcp-gateway"},
		{"POST", "/v2/sandboxes", `{"envVars":{"A=B":"1"}}`, 400, "envVars"},
		{"POST", "/v2/sandboxes", `{"metadata":{"":"1"}}`, 400, "metadata"},
		{"POST", "/v2/sandboxes", `{"iam":{"tokens":{"a":{}}}}`, 400, "iam"},
		{"POST", "/v2/sandboxes", `{"volumeMounts":[{"name":"v","path":"/v"}]}`, 400, "volumeMounts"},
		{"POST", "/v2/sandboxes", `{"autoPauseMemory":false}`, 400, "autoPauseMemory"},
		{"POST", "/v2/sandboxes", `{"autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}`, 400, "autoPauseMemory"},
		{"POST", "/v2/sandboxes", `{"network":{"allowOut":["example.com"]}}`, 400, "network.denyOut"},
		{"POST", "/v2/sandboxes", `{"network":{"allowOut":["::1"],"denyOut":["0.0.0.0/0"]}}`, 400, "network.allowOut[0]"},
		{"POST", "/v2/sandboxes", `{"network":{"denyOut":["10.0.0.0/8","example.com"]}}`, 400, "network.denyOut[1]"},
		{"POST", "/v2/sandboxes", `{"network":{"maskRequestHost":"h/p"}}`, 400, "network.maskRequestHost"},
		{"POST", "/v2/sandboxes", `{"network":{"httpsPorts":[443,49983]}}`, 400, "network.httpsPorts"},
		{"POST", "/v2/sandboxes", `{"network":{"egressProxy":{"address":"h:1"}}}`, 400, "network.egressProxy"},
		{"POST", "/v2/sandboxes", `{"network":{"rules":{"h":[{}]}}}`, 400, "network.rules"},
		{"POST", "/sandboxes", `{"timeout":0,"secure":true}`, 400, "timeout"},

		{"GET", "/v2/sandboxes?limit=0", "", 400, "limit"},
		{"GET", "/v2/sandboxes?limit=101", "", 400, "limit"},
		{"GET", "/v2/sandboxes?state=odd", "", 400, "state"},
		{"GET", "/v2/sandboxes?order=odd", "", 400, "order"},
		{"GET", "/v2/sandboxes?startedAfter=odd", "", 400, "startedAfter"},
		{"GET", "/v2/sandboxes?nextToken=odd", "", 400, "nextToken"},
		{"GET", "/v2/sandboxes?metadata=a%3D%2525", "", 400, "metadata"},
		{"GET", "/sandboxes?state=odd", "", 400, "state"},

		{"GET", none, "", 404, "iaaaa"},
		{"DELETE", none, "", 404, "iaaaa"},
		{"GET", "/sandboxes/nothing", "", 404, "nothing"},
		{"POST", none + "/timeout", `{"timeout":60}`, 404, "iaaaa"},
		{"POST", at + "/timeout", `{}`, 400, "timeout"},
		{"POST", at + "/timeout", `{"timeout":100000000}`, 400, "timeout"},
		{"POST", none + "/refreshes", `{}`, 404, "iaaaa"},
		{"POST", at + "/refreshes", `{"duration":0}`, 400, "duration"},
		{"POST", "/v2" + none + "/connect", `{}`, 404, "iaaaa"},
		{"POST", "/v2" + at + "/connect", `{"timeout":0}`, 400, "timeout"},
		{"POST", none + "/connect", `{"timeout":60}`, 404, "iaaaa"},
		{"POST", at + "/connect", `{"timeout":0}`, 400, "timeout"},
		{"POST", none + "/resume", `{}`, 404, "iaaaa"},
		{"POST", at + "/resume", `{}`, 409, "running already"},
		{"POST", none + "/pause", `{}`, 404, "iaaaa"},
		{"POST", at + "/pause", `[]`, 400, "JSON"},

		{"GET", none + "/metrics", "", 404, "iaaaa"},
		{"GET", at + "/metrics?start=odd", "", 400, "start"},
		{"GET", at + "/metrics?end=-1", "", 400, "end"},
		{"GET", "/sandboxes/metrics?sandbox_ids=" + strings.Repeat("i,", 101), "", 400, "sandbox_ids"},
		{"GET", none + "/logs", "", 404, "iaaaa"},
		{"GET", at + "/logs?limit=1001", "", 400, "limit"},
		{"GET", at + "/logs?start=odd", "", 400, "start"},
		{"GET", "/v2" + none + "/logs", "", 404, "iaaaa"},
		{"GET", "/v2" + at + "/logs?cursor=odd", "", 400, "cursor"},
		{"GET", "/v2" + at + "/logs?direction=odd", "", 400, "direction"},
		{"GET", "/v2" + at + "/logs?level=odd", "", 400, "level"},

		{"PUT", none + "/network", `{}`, 404, "iaaaa"},
		{"PUT", at + "/network", `{"allowOut":["example.com"]}`, 400, "denyOut"},
		{"PUT", at + "/network", `{"denyOut":["example.com"]}`, 400, "denyOut[0]"},
		{"PUT", at + "/network", `{"rules":{"h":[{}]}}`, 400, "rules"},
		{"PUT", at + "/network", `{"egressProxy":{"address":"h:1"}}`, 400, "egressProxy"},
		{"PUT", at + "/network", `{"maskRequestHost":"localhost"}`, 400, "maskRequestHost"},
		{"PUT", at + "/network", `{"maskRequestHost":"a\r\nb"}`, 400, "maskRequestHost"},
		{"PUT", at + "/network", `{"httpsPorts":[8443]}`, 400, "httpsPorts"},

		{"POST", none + "/snapshots", `{}`, 404, "iaaaa"},
		{"POST", at + "/snapshots", `{"name":"NOT A NAME"}`, 400, "name"},
		{"GET", "/snapshots?limit=0", "", 400, "limit"},
		{"GET", "/snapshots?nextToken=odd", "", 400, "nextToken"},
		{"POST", none + "/fork", `{}`, 404, "iaaaa"},
		{"POST", at + "/fork", `{"count":0}`, 400, "count"},
		{"POST", at + "/fork", `{"count":1000000}`, 400, "count"},
		{"POST", at + "/fork", `{"timeout":0}`, 400, "timeout"},

		{"POST", "/v3/templates", `{}`, 400, "name"},
		{"POST", "/v3/templates", `{"name":"base"}`, 400, "name"},
		{"POST", "/v3/templates", `{"name":"a","tags":["NOT A TAG"]}`, 400, "tag"},
		{"POST", "/v3/templates", `{"name":"a","cpuCount":-1}`, 400, "cpuCount"},
		{"POST", "/v3/templates", `{"name":"a","memoryMB":-1}`, 400, "memoryMB"},
		{"GET", "/templates/none/files/" + strings.Repeat("0", 64), "", 404, "none"},
		{"PUT", "/templates/none/files/" + strings.Repeat("0", 64), "x", 404, "takes no files"},
		{"POST", "/v2/templates/none/builds/none", `{"fromTemplate":"base"}`, 404, "none"},
		{"POST", "/v2/templates/none/builds/none", `{"fromImageRegistry":{"type":"aws"}}`, 400, "fromImageRegistry"},
		{"GET", "/templates/none/builds/none/status", "", 404, "none"},
		{"GET", "/templates/none/builds/none/logs", "", 404, "none"},
		{"GET", "/templates/none", "", 404, "none"},
		{"GET", "/templates/none/tags", "", 404, "none"},
		{"GET", "/templates/aliases/none", "", 404, "none"},
		{"GET", "/templates/aliases/team%2Fnone", "", 404, "none"},
		{"DELETE", "/templates/none", "", 404, "none"},
		{"DELETE", "/templates/taaaaaaaaaaaaaaaaaaaaaaaaaa:default", "", 404, "taaaa"},
		{"DELETE", "/templates/team%2Fnone%3Adefault", "", 404, "none"},
		{"POST", "/templates/tags", `{"target":"none","tags":["v1"]}`, 404, "none"},
		{"POST", "/templates/tags", `{"target":"none"}`, 400, "tags"},
		{"DELETE", "/templates/tags", `{"name":"none","tags":["v1"]}`, 404, "none"},
		{"DELETE", "/templates/tags", `{"name":"none"}`, 400, "tags"},
		{"PATCH", "/templates/none", `{"public":true}`, 400, "private"},
		{"PATCH", "/v2/templates/none", `{"public":true}`, 400, "private"},

		{"POST", "/volumes", `{"name":"v"}`, 400, "volumes are not available"},
		{"DELETE", "/volumes/v", "", 400, "volumes are not available"},
		{"GET", "/volumecontent/v/dir?path=/", "", 400, "volumes are not available"},
		{"GET", "/secrets", "", 400, "secrets are not available"},
		{"POST", "/secrets/s", `{}`, 400, "secrets are not available"},
		{"GET", "/teams", "", 400, "GET /teams is not available"},
		{"POST", at, `{}`, 400, "not available"},
	} {
		var body any
		if tc.body != "" {
			body = tc.body
		}
		a := s.Do(tc.method, "/e2b"+tc.path, body)
		var f failure
		if a.Into(t, &f); a.Status != tc.status || f.Code != tc.status || !strings.Contains(f.Message, tc.said) {
			t.Errorf("%s %s %s = %d %s, want %d and %q", tc.method, tc.path, tc.body, a.Status, a.Body, tc.status, tc.said)
		}
		if keys := strings.Count(string(a.Body), `":`); keys != 2 && !strings.Contains(f.Message, `":`) {
			t.Errorf("%s %s: the body of the error has other members: %s", tc.method, tc.path, a.Body)
		}
	}
}

// TestParameters calls the routes with what the published clients send.
func TestParameters(t *testing.T) {
	s := apitest.New(t)
	// As the Python client does: it sends each member.
	sb := create(t, s, `{"templateID":"base:default","timeout":600,"secure":true,"autoPause":false,"autoResume":{"enabled":false},"metadata":{"a b":"c&d"},"envVars":{"A":"1"},"allow_internet_access":true,"unknown":1,"network":null,"mcp":null,"iam":null,"volumeMounts":null}`)
	if sb.TemplateID != "base:default" || sb.ClientID == "" || sb.EnvdVersion == "" || sb.EnvdAccessToken == "" || sb.TrafficAccessToken != nil || sb.Domain != nil {
		t.Errorf("created %+v", sb)
	}
	private := create(t, s, `{"templateID":"base","network":{"allowPublicTraffic":false},"autoPause":true,"autoResume":{"enabled":true}}`)
	if private.TrafficAccessToken == nil {
		t.Error("a private sandbox has no traffic token")
	}
	at := "/e2b/sandboxes/" + sb.SandboxID
	type listed struct {
		SandboxID, TemplateID, State string
		StartedAt, EndAt             string
		Metadata                     map[string]string
		CPUCount, MemoryMB           *int64
	}
	token := s.Want(http.StatusOK, "GET", "/e2b/v2/sandboxes?limit=1", nil).Header.Get("X-Next-Token")
	for query, want := range map[string][]string{
		"":                                      {private.SandboxID, sb.SandboxID},
		"?order=asc":                            {sb.SandboxID, private.SandboxID},
		"?metadata=a%2520b%3Dc%2526d":           {sb.SandboxID},
		"?metadata=a%2520b%3Dx":                 {},
		"?state=running,paused&template=base":   {private.SandboxID, sb.SandboxID},
		"?state=running&state=paused&limit=100": {private.SandboxID, sb.SandboxID},
		"?state=paused":                         {},
		"?startedAfter=2999-01-01T00:00:00Z":    {},
		"?limit=1":                              {private.SandboxID},
		"?limit=1&nextToken=" + token:           {sb.SandboxID},
	} {
		for _, path := range []string{"/e2b/v2/sandboxes", "/e2b/sandboxes"} {
			a := s.Want(http.StatusOK, "GET", path+query, nil)
			var list []listed
			a.Into(t, &list)
			got := []string{}
			for _, l := range list {
				got = append(got, l.SandboxID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("GET %s%s = %v, want %v", path, query, got, want)
			}
			if next := a.Header.Get("X-Next-Token"); (next != "") != (query == "?limit=1") || a.Header.Get("X-Total-Running") != "2" {
				t.Errorf("GET %s%s: X-Next-Token %q, X-Total-Running %q", path, query, next, a.Header.Get("X-Total-Running"))
			}
		}
	}
	for _, tc := range []struct {
		method, path, body string
		status             int
		said               string
	}{
		{"GET", at, "", 200, `"state":"running"`},
		{"GET", at, "", 200, `"lifecycle":{"onTimeout":"kill","autoResume":false}`},
		{"GET", "/e2b/sandboxes/" + private.SandboxID, "", 200, `"lifecycle":{"onTimeout":"pause","autoResume":true}`},
		{"GET", "/e2b/sandboxes/" + private.SandboxID, "", 200, `"allowPublicTraffic":false`},
		{"POST", at + "/timeout", `{"timeout":1200}`, 204, ""},
		{"POST", at + "/refreshes", ``, 204, ""},
		{"POST", at + "/refreshes", `{"duration":60}`, 204, ""},
		{"POST", "/e2b/v2/sandboxes/" + sb.SandboxID + "/connect", ``, 200, sb.EnvdAccessToken},
		{"POST", "/e2b/v2/sandboxes/" + sb.SandboxID + "/connect", `{}`, 200, sb.SandboxID},
		{"POST", at + "/connect", `{"timeout":60,"memory":null}`, 200, sb.SandboxID},
		{"GET", at + "/metrics", "", 200, "memTotal"},
		{"GET", at + "/metrics?start=1&end=2", "", 200, "[]"},
		{"GET", "/e2b/sandboxes/metrics?sandbox_ids=nothing," + sb.SandboxID, "", 200, `"` + sb.SandboxID + `"`},
		{"GET", "/e2b/sandboxes/metrics", "", 200, `{"sandboxes":{}}`},
		{"GET", at + "/logs", "", 200, `"logEntries":[{`},
		{"GET", "/e2b/v2/sandboxes/" + sb.SandboxID + "/logs?direction=backward&limit=1&level=info", "", 200, `"level":"info"`},
		{"GET", "/e2b/v2/sandboxes/" + sb.SandboxID + "/logs?level=warn", "", 200, `{"logs":[]}`},
		{"GET", "/e2b/v2/sandboxes/" + sb.SandboxID + "/logs?level=debug&search=no-such-text", "", 200, `{"logs":[]}`},
		{"GET", "/e2b/snapshots?name=NO+NAME&limit=1", "", 200, "[]"},
		{"GET", "/e2b/snapshots?name=none", "", 200, "[]"},
		{"GET", "/e2b/snapshots?sandboxID=nothing", "", 200, "[]"},
		{"GET", "/e2b/snapshots?sandboxID=" + sb.SandboxID, "", 200, "[]"},
		{"GET", "/e2b/templates", "", 200, "[]"},
		{"GET", "/e2b/templates/aliases/base", "", 200, `"public":true`},
		{"POST", at + "/pause", `{"memory":true}`, 204, ""},
		{"POST", at + "/pause", `{}`, 409, `"code":409`},
		{"POST", at + "/timeout", `{"timeout":60}`, 404, `"code":404`},
		{"GET", at, "", 200, `"state":"paused"`},
		{"POST", at + "/resume", `{"timeout":60,"autoPause":true}`, 201, sb.SandboxID},
		{"POST", at + "/pause", ``, 204, ""},
		{"POST", at + "/connect", `{"timeout":60}`, 201, sb.SandboxID},
		{"POST", at + "/fork", `{"timeout":60,"count":2}`, 201, `[{"sandbox":{`},
		// At once, although the ttl passes in a day.
		{"POST", at + "/timeout", `{"timeout":86400}`, 204, ""},
		{"POST", at + "/timeout", `{"timeout":-1}`, 204, ""},
		{"GET", at, "", 404, `"code":404`},
		{"POST", at + "/connect", `{"timeout":60}`, 404, `"code":404`},
		{"DELETE", at, "", 404, `"code":404`},
		{"GET", at + "/logs", "", 200, `"logEntries":[{`},
		{"DELETE", "/e2b/sandboxes/" + private.SandboxID, "", 204, ""},
	} {
		var body any
		if tc.body != "" {
			body = tc.body
		}
		if a := s.Do(tc.method, tc.path, body); a.Status != tc.status || !strings.Contains(string(a.Body), tc.said) {
			t.Errorf("%s %s %s = %d %s, want %d and %q", tc.method, tc.path, tc.body, a.Status, a.Body, tc.status, tc.said)
		}
	}
}

// TestKeys has the forms of credentials that clients send.
func TestKeys(t *testing.T) {
	s := apitest.New(t)
	sb := create(t, s, `{"templateID":"base"}`)
	hexed := "e2b_" + hex.EncodeToString([]byte(s.Token))
	for _, tc := range []struct {
		path, key, authorization string
		status                   int
		said                     string
	}{
		{"/sandboxes/" + sb.SandboxID, hexed, "", 200, sb.SandboxID},
		{"/sandboxes/" + sb.SandboxID, s.Token, "", 200, sb.SandboxID},
		// The access token of E2B that a user of its command line has in E2B_ACCESS_TOKEN.
		{"/sandboxes/" + sb.SandboxID, hexed, "Bearer sk_e2b_00", 200, sb.SandboxID},
		{"/e2b/sandboxes/" + sb.SandboxID, s.Token, "Bearer sk_e2b_00", 200, sb.SandboxID},
		{"/e2b/sandboxes/" + sb.SandboxID, "", "Bearer " + s.Token, 200, sb.SandboxID},
		{"/sandboxes/" + sb.SandboxID, "e2b_00", "Bearer " + s.Token, 401, `"code":401`},
		{"/sandboxes/" + sb.SandboxID, "odd", "", 401, `"code":401`},
		{"/v1/whoami", "of another program", "Bearer " + s.Token, 200, ""},
	} {
		r := s.Request("GET", tc.path, nil)
		r.Header.Del("Authorization")
		if tc.authorization != "" {
			r.Header.Set("Authorization", tc.authorization)
		}
		if tc.key != "" {
			r.Header.Set("X-API-KEY", tc.key)
		}
		if a := s.Send(r); a.Status != tc.status || !strings.Contains(string(a.Body), tc.said) {
			t.Errorf("%s with key %q and %q = %d %s, want %d and %q", tc.path, tc.key, tc.authorization, a.Status, a.Body, tc.status, tc.said)
		}
	}
}
