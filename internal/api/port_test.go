package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/api/apierror"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/preview"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestPorts(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "n")
	var p, rotated wire.PublishedPort
	const one = "/v1/sandboxes/n/ports/3000"
	s.Want(200, "PUT", one, nil).Into(t, &p)
	if p.Port != 3000 || p.Access != "public" || !sandbox.IsPortLabel(strings.TrimPrefix(p.URL, s.URL+"/s/")) {
		t.Errorf("published %+v", p)
	}
	problem(t, s.Want(apierror.Status(sandbox.Conflict), "POST", one+"/links", nil)) // it is public
	label := p.URL
	s.Want(200, "PUT", one, map[string]any{"access": "private"}).Into(t, &p)
	if p.Access != "private" || p.URL != label {
		t.Errorf("made private %+v, want the URL %s", p, label)
	}
	visit := func(url string, header http.Header) *apitest.Answer {
		r := s.Request("GET", url, nil)
		r.Header = header
		return s.Send(r)
	}
	var link wire.PortLink
	s.Want(201, "POST", one+"/links", map[string]any{"expires_in_seconds": 60}).Into(t, &link)
	if until := time.Until(link.ExpiresAt); until > time.Minute || !strings.HasPrefix(link.URL, p.URL+"/?modbox_token=mbl_") {
		t.Errorf("link %+v", link)
	}
	if a := visit(p.URL+"/", nil); a.Status != 401 {
		t.Errorf("a private port without anything: %d %s", a.Status, a.Body)
	}
	// Nothing listens there: 502 comes from behind the check.
	if a := visit(p.URL+"/", http.Header{"X-Modbox-Token": {link.Token}}); a.Status != 502 {
		t.Errorf("with the link: %d %s", a.Status, a.Body)
	}
	if a := visit(p.URL+"/", http.Header{"Authorization": {"Bearer " + s.Token}}); a.Status != 502 {
		t.Errorf("with an API token: %d %s", a.Status, a.Body)
	}
	if a := visit(p.URL+"/modbox/api/files", http.Header{"Authorization": {"Bearer " + s.Token}}); a.Status != 502 {
		t.Errorf("a management route on the URL of a port: %d %s", a.Status, a.Body)
	}
	s.Want(200, "POST", one+"/rotate", nil).Into(t, &rotated)
	if rotated.URL == p.URL || rotated.Access != "private" {
		t.Errorf("rotated %+v", rotated)
	}
	for url, want := range map[string]int{p.URL: 404, rotated.URL: 401} {
		if a := visit(url+"/", http.Header{"X-Modbox-Token": {link.Token}}); a.Status != want {
			t.Errorf("the old link at %s: %d %s, want %d", url, a.Status, a.Body, want)
		}
	}
	var list wire.Page[wire.PublishedPort]
	s.Want(200, "GET", "/v1/sandboxes/n/ports", nil).Into(t, &list)
	if len(list.Items) != 1 || list.Items[0] != rotated {
		t.Errorf("ports %+v, want %+v", list.Items, rotated)
	}
	for _, tc := range []struct {
		method, path string
		body         any
		status       int
		field        string
	}{
		{"PUT", "/v1/sandboxes/n/ports/0", nil, 422, "port"},
		{"PUT", "/v1/sandboxes/n/ports/65536", nil, 422, "port"},
		{"PUT", "/v1/sandboxes/n/ports/49983", nil, 422, "port"},
		{"PUT", one, map[string]any{"access": "some"}, 422, "access"},
		{"POST", one + "/links", map[string]any{"expires_in_seconds": 59}, 422, "expires_in_seconds"},
		{"POST", one + "/links", map[string]any{"expires_in_seconds": 604801}, 422, "expires_in_seconds"},
		{"POST", "/v1/sandboxes/n/ports/4/links", nil, 404, ""},
		{"DELETE", "/v1/sandboxes/n/ports/4", nil, 404, ""},
	} {
		problemOf := problem(t, s.Want(tc.status, tc.method, tc.path, tc.body))
		if tc.field != "" && (len(problemOf.Errors) == 0 || problemOf.Errors[0].Location != tc.field) {
			t.Errorf("%s %s: %+v, want %s named", tc.method, tc.path, problemOf, tc.field)
		}
	}
	s.Want(204, "DELETE", one, nil)
	if a := visit(rotated.URL+"/", nil); a.Status != 404 {
		t.Errorf("an unpublished port: %d", a.Status)
	}
	if log := s.Log.String(); strings.Contains(log, link.Token) || strings.Contains(log, strings.TrimPrefix(label, s.URL)) {
		t.Error("the log has a link or a label")
	}
}

// TestLinksDoNotOutliveTheirToken has a token that expires make no link for longer.
func TestLinksDoNotOutliveTheirToken(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "n")
	s.Want(200, "PUT", "/v1/sandboxes/n/ports/3000", map[string]any{"access": "private"})
	ws, user, err := s.Store.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := s.Auth.CreateToken(t.Context(), auth.Identity{User: user, Workspace: ws, Role: account.RoleOwner}, auth.TokenRequest{Lifetime: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.Token = token
	var link wire.PortLink
	s.Want(201, "POST", "/v1/sandboxes/n/ports/3000/links", nil).Into(t, &link)
	if until := time.Until(link.ExpiresAt); until > 10*time.Minute {
		t.Errorf("a token of 10 minutes made a link of %s", until)
	}
	s.Want(403, "POST", "/v1/sandboxes/n/ports/3000/links", map[string]any{"expires_in_seconds": 3600})
}

// TestLinksEndWithTheirMaker has links stop working when the token that made them is
// revoked, and when a user who had signed in is not in the workspace any more.
func TestLinksEndWithTheirMaker(t *testing.T) {
	s := apitest.New(t)
	running(t, s, "n")
	s.Want(200, "PUT", "/v1/sandboxes/n/ports/3000", map[string]any{"access": "private"})
	ws, user, err := s.Store.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := auth.Identity{User: user, Workspace: ws, Role: account.RoleOwner}
	sb, err := s.Store.Sandboxes.SandboxByName(t.Context(), ws, "n")
	if err != nil {
		t.Fatal(err)
	}
	port, _ := sb.PublishedPort(3000)
	permitted := func(link wire.PortLink) error {
		t.Helper()
		g, err := s.Links.Check(preview.Link, link.Token, sb.ID, port)
		if err != nil {
			t.Fatal(err)
		}
		return s.Auth.StillPermits(t.Context(), g.Maker.User, g.Maker.Token, ws, account.SandboxesWrite)
	}
	link := func() (l wire.PortLink) {
		t.Helper()
		s.Want(201, "POST", "/v1/sandboxes/n/ports/3000/links", nil).Into(t, &l)
		return l
	}
	first := link()
	token, made, err := s.Auth.CreateToken(t.Context(), owner, auth.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s.Token = token
	second := link()
	if err := permitted(second); err != nil {
		t.Errorf("the link of a good token: %v", err)
	}
	changed := s.Auth.Changed()
	if err := s.Auth.RevokeToken(t.Context(), owner, made.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody is told that a token was revoked")
	}
	if err := permitted(second); sandbox.CodeOf(err) != sandbox.Unauthenticated {
		t.Errorf("the link of a revoked token: %v, want unauthenticated", err)
	}
	if err := permitted(first); err != nil {
		t.Errorf("the link of another token: %v", err)
	}
	for name, check := range map[string]func() error{
		"of nobody":            func() error { return s.Auth.StillPermits(t.Context(), "nobody", "", ws, account.SandboxesWrite) },
		"of an unknown token":  func() error { return s.Auth.StillPermits(t.Context(), user, "t", ws, account.SandboxesWrite) },
		"in another workspace": func() error { return s.Auth.StillPermits(t.Context(), user, "", "w", account.SandboxesWrite) },
	} {
		if err := check(); sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Errorf("a link %s: %v, want unauthenticated", name, err)
		}
	}
	if err := s.Auth.StillPermits(t.Context(), user, "", ws, account.SandboxesWrite); err != nil {
		t.Errorf("a link of a member who had signed in: %v", err)
	}
}
