package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth"
)

type object = map[string]any

// tokens is an answer to a sign-in.
type tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

// as makes the server's requests use a token, until the returned function is called.
func as(s *apitest.Server, token string) func() {
	was := s.Token
	s.Token = token
	return func() { s.Token = was }
}

func signIn(t *testing.T, s *apitest.Server, name, password string) tokens {
	t.Helper()
	var got tokens
	s.Want(200, "POST", "/v1/auth/login", object{"username": name, "password": password}).Into(t, &got)
	return got
}

// A session ends with all its tokens, by itself or with all others of its user; others' sessions, and API tokens, do not.
func TestSessionsEnd(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/users", object{"name": "ada", "password": "correct horse"})
	s.Want(201, "POST", "/v1/users", object{"name": "eve", "password": "correct horse"})
	list := func() (ids []string, current int) {
		t.Helper()
		var got struct {
			Items []struct {
				ID, Method, Address string
				Current             bool
				Expires             time.Time `json:"expires_at"`
			}
		}
		s.Want(200, "GET", "/v1/account/sessions", nil).Into(t, &got)
		for _, x := range got.Items {
			ids = append(ids, x.ID)
			if x.Current {
				current++
			}
			if x.Method != "password" || x.Address == "" || !x.Expires.After(time.Now()) {
				t.Errorf("session: %+v", x)
			}
		}
		return ids, current
	}
	dead := func(was tokens, after string) {
		t.Helper()
		restore := as(s, was.Access)
		if a := s.Do("GET", "/v1/whoami", nil); a.Status != 401 {
			t.Errorf("the access token after %s: %d", after, a.Status)
		}
		if a := s.Do("POST", "/v1/auth/refresh", object{"refresh_token": was.Refresh}); a.Status != 401 {
			t.Errorf("the refresh token after %s: %d", after, a.Status)
		}
		restore()
	}
	owner := s.Token
	one, two, eve := signIn(t, s, "ada", "correct horse"), signIn(t, s, "ada", "correct horse"), signIn(t, s, "eve", "correct horse")
	as(s, eve.Access)
	eves, _ := list()
	as(s, one.Access)
	ids, current := list()
	if len(ids) != 2 || current != 1 || len(eves) != 1 {
		t.Fatalf("sessions %v, %d current, and %v", ids, current, eves)
	}
	var token struct{ ID, Token string }
	s.Want(201, "POST", "/v1/tokens", object{"description": "ci"}).Into(t, &token)
	var narrow struct{ Token string }
	s.Want(201, "POST", "/v1/tokens", object{"workspace_only": true}).Into(t, &narrow)
	for _, path := range []string{"/v1/account/sessions/" + eves[0], "/v1/account/sessions/nothing"} {
		s.Want(404, "DELETE", path, nil)
	}
	s.Want(204, "DELETE", "/v1/account/sessions/"+ids[0], nil) // the newest first: two
	dead(two, "its end")
	s.Want(200, "GET", "/v1/whoami", nil)

	three := signIn(t, s, "ada", "correct horse")
	as(s, narrow.Token)
	for _, method := range []string{"GET", "DELETE"} {
		s.Want(403, method, "/v1/account/sessions", nil)
	}
	as(s, token.Token)
	if ids, current := list(); len(ids) != 2 || current != 0 {
		t.Errorf("sessions for a token: %v, %d current", ids, current)
	}
	s.Want(204, "DELETE", "/v1/account/sessions", nil)
	dead(one, "the end of all")
	dead(three, "the end of all")
	s.Want(200, "GET", "/v1/whoami", nil)
	as(s, eve.Access)
	s.Want(200, "GET", "/v1/whoami", nil)
	as(s, owner)

	var program struct {
		Refresh int `json:"refresh_expires_in"`
	}
	s.Want(200, "POST", "/v1/auth/login", object{"username": "ada", "password": "correct horse", "program": true}).Into(t, &program)
	if want := int(auth.ProgramRefreshTime / time.Second); program.Refresh != want {
		t.Errorf("a program's refresh token works for %d s, want %d", program.Refresh, want)
	}
}

func TestSessions(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/users", object{"name": "ada", "email": "Ada@Example.com", "password": "correct horse"})
	first := signIn(t, s, "ada@example.com", "correct horse")
	defer as(s, first.Access)()
	var who struct {
		User      string `json:"user_id"`
		Workspace string `json:"workspace_id"`
		Role      string
	}
	s.Want(200, "GET", "/v1/whoami", nil).Into(t, &who)
	if who.User == "" || who.Workspace == "" || who.Role != "owner" {
		t.Errorf("whoami of a session: %+v", who)
	}
	s.Want(403, "GET", "/v1/users", nil)

	var second, third tokens
	s.Want(200, "POST", "/v1/auth/refresh", object{"refresh_token": first.Refresh}).Into(t, &second)
	s.Want(401, "GET", "/v1/whoami", nil) // the access token before is gone
	s.Want(200, "POST", "/v1/auth/refresh", object{"refresh_token": second.Refresh}).Into(t, &third)
	as(s, third.Access)
	s.Want(200, "GET", "/v1/whoami", nil)
	s.Want(401, "POST", "/v1/auth/refresh", object{"refresh_token": second.Refresh}) // stolen
	s.Want(401, "GET", "/v1/whoami", nil)
	s.Want(401, "POST", "/v1/auth/refresh", object{"refresh_token": third.Refresh})

	one, other := signIn(t, s, "ada", "correct horse"), signIn(t, s, "ada", "correct horse")
	as(s, one.Access)
	s.Want(204, "POST", "/v1/auth/logout", nil)
	s.Want(401, "GET", "/v1/whoami", nil)
	as(s, other.Access)
	s.Want(403, "PUT", "/v1/account/password", object{"current_password": "wrong", "password": "battery staple"})
	s.Want(422, "PUT", "/v1/account/password", object{"current_password": "correct horse", "password": "short"})
	s.Want(204, "PUT", "/v1/account/password", object{"current_password": "correct horse", "password": "battery staple"})
	s.Want(200, "GET", "/v1/whoami", nil) // the session that sets the password goes on
	signIn(t, s, "ada", "battery staple")
	for _, text := range []string{"correct horse", "battery staple", one.Access, one.Refresh, s.Token} {
		if strings.Contains(s.Log.String(), text) {
			t.Errorf("the log has the secret %.8q", text)
		}
	}
}

func TestSignInIsLimited(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/users", object{"name": "bob", "password": "correct horse"})
	for _, name := range []string{"bob", "nobody"} {
		statuses := map[int]int{}
		for range 14 {
			statuses[s.Do("POST", "/v1/auth/login", object{"username": name, "password": "a guess"}).Status]++
		}
		if statuses[401] < 5 || statuses[429] == 0 || len(statuses) != 2 {
			t.Errorf("14 wrong sign-ins as %s: %v", name, statuses)
		}
	}
	// On a slow machine another attempt may be allowed by now.
	login := func(password string) int {
		return s.Do("POST", "/v1/auth/login", object{"username": "bob", "password": password}).Status
	}
	for range 20 {
		if login("a guess") == 429 && login("correct horse") == 429 {
			return
		}
	}
	t.Error("the right password is let in after too many wrong ones")
}

func TestWorkspaceOfOwner(t *testing.T) {
	s := apitest.New(t)
	var ws struct {
		ID      string
		Slug    string
		Role    string
		Members []struct {
			User string `json:"user_id"`
			Role string
		}
	}
	s.Want(422, "POST", "/v1/workspaces", object{"name": "a", "slug": "No Slug"})
	s.Want(201, "POST", "/v1/workspaces", object{"name": "Team A", "slug": "team-a"}).Into(t, &ws)
	s.Want(409, "POST", "/v1/workspaces", object{"name": "Team B", "slug": "team-a"})
	if ws.Slug != "team-a" || ws.Role != "owner" || len(ws.Members) != 1 || ws.Members[0].Role != "owner" {
		t.Fatalf("a new workspace: %+v", ws)
	}
	one := "/v1/workspaces/" + ws.ID
	s.Want(200, "PATCH", one, object{"description": "for tests"})
	s.Want(409, "DELETE", one+"/members/"+ws.Members[0].User, nil) // the last owner
	s.Want(409, "PUT", one+"/members/"+ws.Members[0].User, object{"role": "admin"})

	r := s.Request("POST", "/v1/sandboxes", object{"name": "box", "wait_seconds": 180})
	r.Header.Set("X-Workspace-Id", ws.ID)
	if a := s.Send(r); a.Status != 201 {
		t.Fatalf("create in the new workspace: %d %s", a.Status, a.Body)
	}
	s.Want(204, "DELETE", one, nil)
	s.Want(404, "GET", one, nil)
	for deadline := time.Now().Add(3 * time.Minute); ; {
		if live, err := s.Store.Sandboxes.LiveSandboxes(t.Context()); err == nil && len(live) == 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("sandboxes of a deleted workspace: %v, %v", live, err)
		}
	}
	s.Want(201, "POST", "/v1/workspaces", object{"name": "Team A again", "slug": "team-a"})
	var list struct{ Items []struct{ ID, Slug string } }
	s.Want(200, "GET", "/v1/workspaces", nil).Into(t, &list)
	if len(list.Items) != 2 {
		t.Errorf("workspaces: %+v", list.Items)
	}
	for _, item := range list.Items {
		if item.Slug == "default" {
			s.Want(409, "DELETE", "/v1/workspaces/"+item.ID, nil)
		}
	}
}

func TestMembers(t *testing.T) {
	s := apitest.New(t)
	owner := s.Token
	var ws struct{ ID string }
	s.Want(201, "POST", "/v1/workspaces", object{"name": "Team"}).Into(t, &ws)
	one := "/v1/workspaces/" + ws.ID
	people := map[string]string{}
	ids := map[string]string{}
	for _, name := range []string{"adam", "mia"} {
		var u struct{ ID string }
		s.Want(201, "POST", "/v1/users", object{"name": name, "password": "correct horse"}).Into(t, &u)
		people[name], ids[name] = signIn(t, s, name, "correct horse").Access, u.ID
	}
	s.Want(422, "POST", one+"/members", object{"role": "admin"})
	s.Want(404, "POST", one+"/members", object{"name": "nobody", "role": "admin"})
	s.Want(201, "POST", one+"/members", object{"name": "adam", "role": "admin"})
	s.Want(409, "POST", one+"/members", object{"name": "adam", "role": "admin"})

	as(s, people["mia"])
	s.Want(404, "GET", one, nil)
	as(s, people["adam"])
	s.Want(403, "POST", one+"/members", object{"name": "mia", "role": "owner"})
	s.Want(201, "POST", one+"/members", object{"name": "mia", "role": "viewer"})
	s.Want(403, "DELETE", one, nil)
	s.Want(403, "DELETE", one+"/members/owner", nil)
	s.Want(403, "PUT", one+"/members/owner", object{"role": "viewer"})
	var added struct {
		Invitation struct{ ID, Code string }
	}
	s.Want(201, "POST", one+"/members", object{"email": "new@example.com", "role": "member"}).Into(t, &added)
	if strings.Contains(string(s.Want(200, "GET", one+"/invitations", nil).Body), added.Invitation.Code) {
		t.Error("the list of invitations shows a code")
	}

	as(s, people["mia"])
	s.Want(200, "GET", one, nil)
	s.Want(403, "PATCH", one, object{"name": "Mine"})
	s.Want(403, "GET", one+"/invitations", nil)
	s.Want(403, "DELETE", one+"/members/"+ids["adam"], nil)

	var session tokens
	s.Want(401, "POST", "/v1/auth/accept", object{"code": "mbi_" + strings.Repeat("a", 52), "name": "nina", "password": "correct horse"})
	s.Want(409, "POST", "/v1/auth/accept", object{"code": added.Invitation.Code, "name": "mia", "password": "correct horse"})
	s.Want(200, "POST", "/v1/auth/accept", object{"code": added.Invitation.Code, "name": "nina", "password": "correct horse"}).Into(t, &session)
	s.Want(401, "POST", "/v1/auth/accept", object{"code": added.Invitation.Code, "name": "otto", "password": "correct horse"})
	as(s, session.Access)
	s.Want(200, "GET", one, nil)
	// The maker of an invitation has its code, but cannot use it to become the invited user.
	s.Want(401, "POST", "/v1/auth/login", object{"username": "new@example.com", "password": "correct horse"})

	// A token of the workspace ends with the membership.
	var token struct{ Token string }
	r := s.Request("POST", "/v1/tokens", object{"description": "mine"})
	r.Header.Set("X-Workspace-Id", ws.ID)
	s.Send(r).Into(t, &token)
	var who struct {
		User string `json:"user_id"`
	}
	s.Want(200, "GET", "/v1/whoami", nil).Into(t, &who)
	as(s, token.Token)
	s.Want(200, "GET", "/v1/whoami", nil)
	s.Want(204, "DELETE", one+"/members/"+who.User, nil) // by itself
	s.Want(401, "GET", "/v1/whoami", nil)
	as(s, session.Access)
	s.Want(404, "GET", one, nil)
	// A removed member does not come back by an invitation of their own.
	as(s, people["adam"])
	s.Want(201, "POST", one+"/members", object{"email": "me@example.com", "role": "admin"}).Into(t, &added)
	as(s, owner)
	s.Want(204, "DELETE", one+"/members/"+ids["adam"], nil)
	s.Want(401, "POST", "/v1/auth/accept", object{"code": added.Invitation.Code, "name": "adam2", "password": "correct horse"})
}

func TestUsers(t *testing.T) {
	s := apitest.New(t)
	var u struct{ ID, Code string }
	s.Want(422, "POST", "/v1/users", object{"name": "Bad Name"})
	s.Want(201, "POST", "/v1/users", object{"name": "eve", "email": "eve@example.com"}).Into(t, &u)
	s.Want(409, "POST", "/v1/users", object{"name": "eve"})
	s.Want(409, "POST", "/v1/users", object{"name": "eve2", "email": "EVE@example.com"})
	s.Want(401, "POST", "/v1/auth/login", object{"username": "eve", "password": "correct horse"})
	var session tokens
	s.Want(200, "POST", "/v1/auth/accept", object{"code": u.Code, "password": "correct horse"}).Into(t, &session)
	owner := s.Token
	as(s, session.Access)
	var token struct{ Token string }
	s.Want(201, "POST", "/v1/tokens", object{}).Into(t, &token)
	as(s, token.Token)
	s.Want(200, "GET", "/v1/whoami", nil)

	as(s, owner)
	s.Want(200, "PATCH", "/v1/users/eve", object{"disabled": true})
	for _, secret := range []string{token.Token, session.Access} {
		as(s, secret)
		if a := s.Do("GET", "/v1/whoami", nil); a.Status != 401 {
			t.Errorf("a disabled user's %.4s: %d %s", secret, a.Status, a.Body)
		}
	}
	s.Want(401, "POST", "/v1/auth/login", object{"username": "eve", "password": "correct horse"})
	as(s, owner)
	s.Want(200, "PATCH", "/v1/users/eve", object{"disabled": false})
	signIn(t, s, "eve", "correct horse")
	s.Want(409, "PATCH", "/v1/users/owner", object{"administrator": false})
	s.Want(409, "DELETE", "/v1/users/owner", nil)
	s.Want(204, "DELETE", "/v1/users/eve", nil)
	s.Want(404, "DELETE", "/v1/users/eve", nil)
	as(s, token.Token)
	s.Want(401, "GET", "/v1/whoami", nil)
	as(s, owner)
	if b := s.Want(200, "GET", "/v1/users", nil).Body; strings.Contains(string(b), "argon2") {
		t.Errorf("the list of users shows passwords: %s", b)
	}
}

// TestGuessersDoNotLockOthersOut guesses all kinds of secrets from the address of a user with valid
// secrets.
func TestGuessersDoNotLockOthersOut(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/users", object{"name": "ada", "password": "correct horse"})
	var made struct {
		Code string `json:"code"`
	}
	s.Want(201, "POST", "/v1/users", object{"name": "bob"}).Into(t, &made)
	ada := signIn(t, s, "ada", "correct horse")
	wrong := func(secret string) string { return secret[:5] + strings.Repeat("a", len(secret)-5) }
	limited := map[string]bool{}
	for range 100 {
		// Of a machine that stalls the last guesses may be allowed again.
		limited["refresh"] = s.Do("POST", "/v1/auth/refresh", object{"refresh_token": wrong(ada.Refresh)}).Status == 429 || limited["refresh"]
		limited["code"] = s.Do("POST", "/v1/auth/accept", object{"code": wrong(made.Code), "name": "eve", "password": "battery staple"}).Status == 429 || limited["code"]
		back := as(s, wrong(s.Token))
		limited["token"] = s.Do("GET", "/v1/whoami", nil).Status == 429 || limited["token"]
		back()
	}
	if !limited["refresh"] || !limited["code"] || !limited["token"] {
		t.Fatalf("what is limited after 100 guesses of each: %v", limited)
	}
	s.Want(200, "POST", "/v1/auth/refresh", object{"refresh_token": ada.Refresh}).Into(t, &ada)
	s.Want(200, "POST", "/v1/auth/accept", object{"code": made.Code, "password": "battery staple"})
	defer as(s, ada.Access)()
	s.Want(200, "GET", "/v1/whoami", nil)
}

// TestAdministratorWithoutWorkspace: who looks after the installation does so in no workspace too.
func TestAdministratorWithoutWorkspace(t *testing.T) {
	s := apitest.New(t)
	for _, name := range []string{"ada", "bob"} {
		s.Want(201, "POST", "/v1/users", object{"name": name, "password": "correct horse", "administrator": name == "ada"})
	}
	for name, want := range map[string]int{"ada": 200, "bob": 403} {
		back := as(s, signIn(t, s, name, "correct horse").Access)
		var who struct {
			Workspace     string `json:"workspace_id"`
			Administrator bool
		}
		s.Want(200, "GET", "/v1/whoami", nil).Into(t, &who)
		s.Want(204, "DELETE", "/v1/workspaces/"+who.Workspace, nil)
		who.Workspace = ""
		s.Want(200, "GET", "/v1/whoami", nil).Into(t, &who)
		if who.Workspace != "" || who.Administrator != (name == "ada") {
			t.Errorf("whoami of %s without a workspace: %+v", name, who)
		}
		s.Want(want, "GET", "/v1/users", nil)
		s.Want(403, "GET", "/v1/sandboxes", nil)
		s.Want(201, "POST", "/v1/workspaces", object{"name": "anew"})
		back()
	}
}

// TestWorkspaceBySlug names workspaces by their slugs, in paths and in the header.
func TestWorkspaceBySlug(t *testing.T) {
	s := apitest.New(t)
	var ours, theirs struct{ ID string }
	s.Want(201, "POST", "/v1/workspaces", object{"name": "Ours", "slug": "ours"}).Into(t, &ours)
	s.Want(201, "POST", "/v1/users", object{"name": "ada", "password": "correct horse"})
	back := as(s, signIn(t, s, "ada", "correct horse").Access)
	for _, reserved := range []string{ours.ID, "modbox", "library", "public", "3f0e2a52-1d0e-4f6e-8a39-0d3a1b6f7c11"} {
		if body := s.Want(422, "POST", "/v1/workspaces", object{"name": "Theirs", "slug": reserved}).Body; !strings.Contains(string(body), "slug") {
			t.Errorf("the slug %q is refused without naming the field: %s", reserved, body)
		}
	}
	s.Want(201, "POST", "/v1/workspaces", object{"name": "Theirs", "slug": "theirs"}).Into(t, &theirs)
	s.Want(422, "PATCH", "/v1/workspaces/theirs", object{"slug": "public"})
	s.Want(200, "PATCH", "/v1/workspaces/theirs", object{"slug": "theirs"})
	s.Want(404, "GET", "/v1/workspaces/ours", nil)
	back()
	whoami := func(header string) (at string, status int) {
		r := s.Request("GET", "/v1/whoami", nil)
		r.Header.Set("X-Workspace-Id", header)
		a := s.Send(r)
		var who struct {
			Workspace string `json:"workspace_id"`
		}
		if a.Status == 200 {
			a.Into(t, &who)
		}
		return who.Workspace, a.Status
	}
	for _, header := range []string{"ours", ours.ID, "OURS"} {
		if at, status := whoami(header); at != ours.ID {
			t.Errorf("whoami in %q: workspace %q, status %d, want %q", header, at, status, ours.ID)
		}
	}
	if at, status := whoami(theirs.ID); status != 404 {
		t.Errorf("whoami in another's workspace: %q, status %d", at, status)
	}
	s.Want(200, "PATCH", "/v1/workspaces/ours", object{"description": "by slug"})
	// A slug that is given up and taken again names the other at once.
	var next struct{ ID string }
	s.Want(200, "PATCH", "/v1/workspaces/ours", object{"slug": "formerly-ours"})
	s.Want(201, "POST", "/v1/workspaces", object{"name": "Next", "slug": "ours"}).Into(t, &next)
	if at, status := whoami("ours"); at != next.ID {
		t.Errorf("whoami in a slug that another has now: %q, status %d, want %q", at, status, next.ID)
	}
	s.Want(200, "PATCH", "/v1/workspaces/ours", object{"slug": "next"})
	s.Want(200, "PATCH", "/v1/workspaces/formerly-ours", object{"slug": "ours"})
	s.Want(201, "POST", "/v1/workspaces/ours/members", object{"name": "ada", "role": "viewer"})
	var narrow struct{ Token string }
	r := s.Request("POST", "/v1/tokens", object{"description": "x", "workspace_only": true})
	r.Header.Set("X-Workspace-Id", "ours")
	s.Send(r).Into(t, &narrow)
	defer as(s, narrow.Token)()
	s.Want(200, "GET", "/v1/workspaces/ours", nil)
	s.Want(404, "GET", "/v1/workspaces/default", nil)
	// Both are ada's now: the id counts before the slug.
	as(s, signIn(t, s, "ada", "correct horse").Access)
	if at, status := whoami(ours.ID); at != ours.ID {
		t.Errorf("whoami in an id that is a slug, too: %q, status %d, want %q", at, status, ours.ID)
	}
}
