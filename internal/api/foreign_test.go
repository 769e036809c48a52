package api_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/auth"
)

// objects are the ids of one object of each kind, all of one workspace.
type objects map[string]string

// makeObjects makes one object of each kind in a workspace.
func (m *matrix) makeObjects(id auth.Identity, name string) objects {
	m.T.Helper()
	o := objects{"workspace": string(id.Workspace), "member": string(id.User), "context": "python"}
	m.makeMore(o, id, name, func(string) bool { return true })
	return o
}

// makeMore makes one object of each wanted kind, and sets its id in o. The objects of a sandbox belong to the sandbox in o.
func (m *matrix) makeMore(o objects, id auth.Identity, name string, wanted func(kind string) bool) {
	m.T.Helper()
	token := m.token(id, auth.TokenRequest{})
	create := func(kind, path string, body map[string]any) {
		m.T.Helper()
		if !wanted(kind) {
			return
		}
		rec := m.serve(m.Request("POST", path, body), token)
		match := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(rec.Body.String())
		if rec.Code/100 != 2 || match == nil {
			m.T.Fatalf("make a %s: %d %s", kind, rec.Code, rec.Body)
		}
		o[kind] = match[1]
	}
	if wanted("sandbox") {
		env := newDesktop(m.T, name)
		o["window"] = env["WINDOW"]
		create("sandbox", "/v1/sandboxes", map[string]any{"name": name, "wait_seconds": 180, "env": env, "network": map[string]any{"ports": []int{8080}}})
		if rec := m.serve(m.Request("POST", "/v1/sandboxes/"+o["sandbox"]+"/files/mkdir", map[string]any{"path": "a"}), token); rec.Code/100 != 2 {
			m.T.Fatalf("make a directory: %d %s", rec.Code, rec.Body)
		}
	}
	box := "/v1/sandboxes/" + o["sandbox"]
	create("execution", box+"/executions", map[string]any{"shell": "true"})
	create("recording", box+"/desktop/recordings", map[string]any{})
	create("job", box+"/executions", map[string]any{"shell": "true", "kind": "job"})
	create("checkpoint", box+"/checkpoints", map[string]any{"name": name})
	create("snapshot", box+"/snapshots", map[string]any{"name": name})
	create("registry", "/v1/registries", map[string]any{"name": name, "server": name + ".test", "username": "ann", "password": "p"})
	create("image", "/v1/sandbox-images", map[string]any{"name": name, "image": "modbox/code-exec:latest"})
	create("token", "/v1/tokens", map[string]any{})
	key, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		m.T.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key)
	if err != nil {
		m.T.Fatal(err)
	}
	create("ssh-key", "/v1/ssh-keys", map[string]any{"public_key": string(ssh.MarshalAuthorizedKey(public))})
	if wanted("webhook") {
		create("webhook", "/v1/webhooks", map[string]any{"url": "https://a.example", "enabled": false})
		if rec := m.serve(m.Request("PATCH", "/v1/webhooks/"+o["webhook"], map[string]any{"enabled": true}), token); rec.Code != 200 {
			m.T.Fatalf("enable a webhook: %d %s", rec.Code, rec.Body)
		}
	}
	create("delivery", "/v1/webhooks/"+o["webhook"]+"/test", nil)
	create("invitation", "/v1/workspaces/"+o["workspace"]+"/members", map[string]any{"email": name + "@example.com", "role": "viewer"})
	if wanted("session") {
		m.makeSession(o, id)
	}
	if wanted("built") {
		o["built"], o["built-template"] = string(builtImage(m.T, m.Images, id.Workspace, name).ID), name
	}
	create("build", "/v1/snapshot-builds", map[string]any{"name": name + "-built", "runtime": "modbox/code-exec:latest"})
	if wanted("begun-template") {
		o["begun-template"] = fmt.Sprintf("t%08x", crc32.ChecksumIEEE([]byte(name))) // does not contain the name, which is masked
		rec := m.serve(m.Request("POST", "/e2b/v3/templates", map[string]any{"name": o["begun-template"]}), token)
		match := regexp.MustCompile(`"buildID":"([^"]+)"`).FindStringSubmatch(rec.Body.String())
		if match == nil {
			m.T.Fatalf("begin the build of a template: %d %s", rec.Code, rec.Body)
		}
		o["template-build"] = match[1]
	}
}

// makeSession makes a session of a user.
func (m *matrix) makeSession(o objects, id auth.Identity) {
	m.T.Helper()
	o["session"] = uuid.NewString()
	begun := account.Session{ID: o["session"], User: id.User, Access: auth.Hash("a" + o["session"]), Refresh: auth.Hash("r" + o["session"]), RefreshExpiresAt: time.Now().Add(time.Hour)}
	if err := m.Store.Sessions.CreateSession(m.T.Context(), begun); err != nil {
		m.T.Fatal(err)
	}
}

// kinds are the kinds of parameters, by the preceding part of the pattern; "" is the default.
var kinds = map[string]map[string]string{
	"sandbox": {"": "sandbox"}, "sandbox_id": {"": "sandbox"}, "checkpoint": {"": "checkpoint"}, "context": {"": "context"}, "webhook": {"": "webhook"}, "delivery": {"": "delivery"}, "snapshot": {"": "snapshot"},
	"execution": {"": "execution"}, "recording": {"": "recording"}, "window": {"": "window"}, "job": {"": "job"}, "registry": {"": "registry"}, "registry_id": {"": "registry"}, "sandbox_image": {"": "image"}, "session": {"": "session"}, "build": {"": "build"}, "image_id": {"": "image"}, "image": {"": "built"}, "token": {"": "token"}, "ssh_key": {"": "ssh-key"},
	"invitation": {"": "invitation"}, "user": {"members": "member"}, "workspace": {"": "workspace"}, "org": {"": "workspace"},
	"id": {"": "sandbox"}, "template": {"": "snapshot"}, "second": {"": "snapshot"},
}

// literals are parameters that name no object. The objects publish the port, and of the routes of E2B's templates that
// have two parameters, the route of aliases is asked.
var literals = map[string]string{"port": "8080", "first": "aliases", "hash": strings.Repeat("a", 64)}

// ofTemplateBuilds are routes of E2B's templates that are being built.
var ofTemplateBuilds = regexp.MustCompile(`/templates/\{template\}/(files|builds)/`)

// ofBuilds are routes whose snapshot is being built.
var ofBuilds = map[string]bool{"PUT /sandbox/snapshots/{snapshot}/upload": true, "POST /sandbox/snapshots/{snapshot}/finalize": true}

// everybodys are routes whose objects belong to no workspace, or to who knows their
// id, which is a secret.
var everybodys = map[string]bool{"PUT /streams/{stream}": true}

// lateLookup are routes that look their object up after the connection is taken over.
var lateLookup = map[string]bool{"GET /v1/sandboxes/{sandbox}/exec/attach": true}

// bodies are valid bodies of routes that check the body before the object.
var bodies = map[string]string{
	"POST /v1/sandboxes/{sandbox}/exec":             `{"command":["true"]}`,
	"POST /v1/sandboxes/{sandbox}/exec/stream":      `{"command":["true"]}`,
	"POST /v1/sandboxes/{sandbox}/code":             `{"code":"1"}`,
	"POST /v1/sandboxes/{sandbox}/code/stream":      `{"code":"1"}`,
	"POST /v1/sandboxes/{sandbox}/code/scan":        `{"code":"1"}`,
	"POST /v1/sandboxes/{sandbox}/executions":       `{"shell":"true"}`,
	"PATCH /v1/sandboxes/{sandbox}/desktop":         `{"width":800,"height":600}`,
	"POST /v1/sandboxes/{sandbox}/desktop/actions":  `{"actions":[{"type":"key","keys":"a"}]}`,
	"POST /v1/sandboxes/{sandbox}/desktop/open":     `{"command":["true"]}`,
	"PATCH /v1/sandboxes/{sandbox}/env":             `{"A":"b"}`,
	"POST /v1/sandboxes/{sandbox}/files/batch":      `{"files":[{"path":"a","content":"YQ=="}]}`,
	"POST /v1/sandboxes/{sandbox}/files/mkdir":      `{"path":"d"}`,
	"POST /v1/sandboxes/{sandbox}/files/move":       `{"from":"d","to":"e"}`,
	"POST /v1/sandboxes/{sandbox}/checkpoints":      `{"name":"another"}`,
	"POST /v1/sandboxes/{sandbox}/snapshots":        `{"name":"another"}`,
	"PATCH /v1/sandboxes/{sandbox}/network":         `{"enabled":false}`,
	"PUT /v1/sandboxes/{sandbox}/ports/{port}":      `{"access":"private"}`,
	"PATCH /v1/snapshots/{snapshot}":                `{"tag":"t"}`,
	"PUT /v1/workspaces/{workspace}/members/{user}": `{"role":"viewer"}`,
	"PUT /workspaces/{workspace}/members/{user}":    `{"role":"viewer"}`,
	"POST /v1/workspaces/{workspace}/members":       `{"email":"x@example.com","role":"viewer"}`,
	"POST /workspaces/{workspace}/members":          `{"email":"x@example.com","role":"viewer"}`,
	"PUT /registries/{registry_id}":                 `{"name":"r2"}`,
	"PUT /sandbox-images/{image_id}":                `{"name":"i2"}`,
	"PUT /workspaces/{workspace}":                   `{"name":"w2"}`,
	"PATCH /v1/workspaces/{workspace}":              `{"name":"w2"}`,
	"PATCH /sandbox/env/{id}":                       `{"env":{"A":"b"}}`,
	"POST /sandbox/{id}/execute":                    `{"command":["true"]}`,
	"POST /sandbox/sandboxes/{id}/jobs":             `{"command":["true"]}`,
	"POST /fs/{id}":                                 `{"files":[{"path":"a","content":"YQ=="}]}`,
	"POST /fs/mkdir/{id}":                           `{"path":"d"}`,
	"POST /fs/rmdir/{id}":                           `{"path":"d"}`,
	"POST /fs/rm/{id}":                              `{"path":"a"}`,
	"PATCH /sandbox/snapshots/{snapshot}":           `{"tag":"t"}`,
	"POST /e2b/sandboxes/{id}/timeout":              `{"timeout":60}`,
}

// agentuityPath is of routes of that dialect, whose ids have a form of their own.
var (
	agentuityPath   = regexp.MustCompile(`^/(sandbox|fs|cli)/`)
	agentuityPrefix = map[string]string{"sandbox": "sbx_", "execution": "exec_", "job": "job_", "checkpoint": "ckpt_", "snapshot": "snp_", "build": "snp_"}
)

// filePath is of routes that want to know which file.
var filePath = regexp.MustCompile(`\{sandbox\}/files(/list|/stat|/archive|/watch)?$|/diff/original$|^GET /fs/|/fs/upload`)

var pathParam = regexp.MustCompile(`([^/]*)/\{([^}.]*)(\.\.\.)?\}`)

// foreignCall is a route with its parameters set by value, which gets the kind of each; false when
// a kind is unknown.
func (m *matrix) foreignCall(t *testing.T, pattern string, ws string, value func(kind string) string) *http.Request {
	method, path, _ := strings.Cut(pattern, " ")
	path = pathParam.ReplaceAllStringFunc(path, func(part string) string {
		match := pathParam.FindStringSubmatch(part)
		if literal := literals[match[2]]; literal != "" {
			return match[1] + "/" + literal
		}
		kind, ok := kinds[match[2]][match[1]]
		if !ok {
			kind, ok = kinds[match[2]][""]
		}
		if !ok {
			t.Fatalf("{%s} of %s is of no kind that this test knows", match[2], pattern)
		}
		if ofBuilds[pattern] {
			kind = "build"
		}
		switch {
		case ofTemplateBuilds.MatchString(pattern):
			kind = map[string]string{"template": "begun-template", "build": "template-build"}[match[2]]
		case pattern == "GET /e2b/templates/{template}":
			kind = "built-template"
		}
		id := value(kind)
		if prefix := agentuityPrefix[kind]; prefix != "" && agentuityPath.MatchString(path) {
			id = prefix + strings.ReplaceAll(id, "-", "")
		}
		return match[1] + "/" + id
	})
	var body any
	if method != "GET" && method != "DELETE" {
		body = "{}"
		if b, ok := bodies[pattern]; ok {
			body = b
		}
	}
	if filePath.MatchString(pattern) {
		path += "?path=a"
	}
	r := m.Request(method, path, body)
	r.Header.Set(auth.WorkspaceHeader, ws)
	if strings.HasSuffix(path, "/attach") || strings.HasSuffix(path, "/watch") {
		for name, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
			r.Header.Set(name, v)
		}
	}
	return r
}

// missing is an id as the object's that nothing has.
func missing(id string) string {
	last := id[len(id)-1]
	if last++; last == '9'+1 || last == 'z'+1 || last == 'f'+1 {
		last -= 4
	}
	return id[:len(id)-1] + string(last)
}

// isMissing reports whether the answer is that there is no such thing, in the way of
// the dialect that was asked.
func isMissing(rec *httptest.ResponseRecorder) bool {
	inBody := strings.Contains(rec.Body.String(), `"success":false`) && strings.Contains(rec.Body.String(), `NOT_FOUND"`)
	return rec.Code == http.StatusNotFound || rec.Code == http.StatusOK && inBody
}

var requestID = regexp.MustCompile(`"(request_id|requestId|trace_id)":"[^"]*"`)

// TestForeignObjectsDoNotExist asks, by every route and as every role, for objects of
// another workspace that are really there: the answer must be the one for an id that
// nothing has. A route that is new is in it by itself.
func TestForeignObjectsDoNotExist(t *testing.T) {
	m := newMatrix(t)
	stranger := auth.Identity{Workspace: m.foreign, Role: account.RoleOwner}
	members, err := m.Store.Members.Members(t.Context(), m.foreign)
	if err != nil || len(members) != 1 {
		t.Fatalf("members of the foreign workspace: %v, %v", members, err)
	}
	stranger.User = members[0].User
	theirs, ours := m.makeObjects(stranger, "theirs"), m.makeObjects(m.members[account.RoleOwner], "ours")
	tokens := map[account.Role]string{}
	for _, role := range account.Roles {
		tokens[role] = m.token(m.members[role], auth.TokenRequest{})
	}
	none := objects{}
	for kind, id := range theirs {
		none[kind] = missing(id)
	}
	asked := 0
	for _, route := range m.API.Routes() {
		if !strings.Contains(route.Pattern, "{") || route.Needs == auth.Public || route.Needs == account.Administer || everybodys[route.Pattern] {
			continue
		}
		asked++
		t.Run(strings.NewReplacer(" ", "_", "/", ".").Replace(route.Pattern), func(t *testing.T) {
			answer := func(token string, o objects, kind string) *httptest.ResponseRecorder {
				ws, ids := ours["workspace"], ours
				if kind == "workspace" {
					ws, ids = o["workspace"], o
				}
				return m.serve(m.foreignCall(t, route.Pattern, ws, func(k string) string {
					if k == kind {
						return o[k]
					}
					return ids[k]
				}), token)
			}
			masked := func(rec *httptest.ResponseRecorder, o objects) string {
				s := requestID.ReplaceAllString(rec.Body.String(), "")
				for _, id := range o {
					s = strings.ReplaceAll(s, id, "ID")
				}
				return s
			}
			// Each of the objects is another's in turn, and then the workspace.
			named := map[string]bool{"workspace": true}
			m.foreignCall(t, route.Pattern, "", func(k string) string {
				named[k] = true
				return "x"
			})
			for kind := range named {
				for role, token := range tokens {
					there, not := answer(token, theirs, kind), answer(token, none, kind)
					if there.Code != not.Code || masked(there, theirs) != masked(not, none) {
						t.Errorf("%s, another's %s: %d %s\nwhat does not exist: %d %s", role, kind, there.Code, there.Body, not.Code, not.Body)
					}
					let := contains(holders[route.Needs], role)
					refused := there.Code == 403 && kind != "workspace" && (!let || kind == "member")
					if !isMissing(there) && !refused && !lateLookup[route.Pattern] {
						t.Errorf("%s, another's %s: %d %s, want 404", role, kind, there.Code, there.Body)
					}
				}
			}
		})
	}
	if asked < 60 {
		t.Errorf("%d routes name objects; are they all?", asked)
	}
	token := m.token(stranger, auth.TokenRequest{})
	for _, path := range []string{"/v1/sandboxes/" + theirs["sandbox"], "/v1/executions/" + theirs["execution"], "/v1/snapshots/" + theirs["snapshot"],
		"/v1/registries/" + theirs["registry"], "/v1/sandbox-images/" + theirs["image"], "/v1/snapshot-builds/" + theirs["build"] + "/log", "/v1/workspaces/" + theirs["workspace"]} {
		if rec := m.serve(m.Request("GET", path, nil), token); rec.Code != 200 {
			t.Errorf("GET %s of its owner afterwards: %d %s", path, rec.Code, rec.Body)
		}
	}
}

// TestOwnObjectsExist is the counterpart: by the same calls the owner of an object
// finds it, so that it is not for the call that others do not.
func TestOwnObjectsExist(t *testing.T) {
	m := newMatrix(t)
	owner := m.members[account.RoleOwner]
	shared, token := m.makeObjects(owner, "shared"), m.token(owner, auth.TokenRequest{})
	for i, route := range m.API.Routes() {
		if !strings.Contains(route.Pattern, "{") || route.Needs == auth.Public || route.Needs == account.Administer || route.Needs == account.WorkspacesDelete ||
			everybodys[route.Pattern] || lateLookup[route.Pattern] || strings.HasSuffix(route.Pattern, "/progress") || strings.HasSuffix(route.Pattern, "/watch") {
			continue
		}
		t.Run(strings.NewReplacer(" ", "_", "/", ".").Replace(route.Pattern), func(t *testing.T) {
			ids := shared
			if strings.HasPrefix(route.Pattern, "DELETE ") {
				named := map[string]bool{}
				m.foreignCall(t, route.Pattern, "", func(kind string) string {
					named[kind] = true
					return "x"
				})
				ids = maps.Clone(shared)
				// Only what the route removes is made: with a part of a sandbox, not the sandbox.
				m.makeMore(ids, owner, fmt.Sprintf("own-%d", i), func(kind string) bool {
					return named[kind] && (kind != "sandbox" || len(named) == 1) || kind == "sandbox" && named["window"]
				})
			}
			rec := m.serve(m.foreignCall(t, route.Pattern, ids["workspace"], func(kind string) string { return ids[kind] }), token)
			if isMissing(rec) && !strings.Contains(rec.Body.String(), "no such file") && !strings.Contains(rec.Body.String(), "in the sandbox") { // in a sandbox that was found
				t.Errorf("%d %s", rec.Code, rec.Body)
			}
		})
	}
}
