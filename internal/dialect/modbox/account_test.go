package modbox_test

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
)

func TestAccount(t *testing.T) {
	s := apitest.New(t)
	type body = map[string]any
	s.Want(201, "POST", "/v1/users", body{"name": "ada", "email": "ada@example.com", "password": "correct horse"})
	var in struct {
		Success bool
		Tokens  struct {
			Access    string `json:"access_token"`
			Refresh   string `json:"refresh_token"`
			Expires   int    `json:"expires_in"`
			Refreshes int    `json:"refresh_expires_in"`
		}
	}
	owner := s.Token
	s.Want(401, "POST", "/auth/login", body{"username": "ada", "password": "wrong"})
	s.Want(422, "POST", "/auth/login", body{"username": "ada"})
	s.Want(200, "POST", "/auth/login", body{"username": "ada", "password": "correct horse", "recaptchaToken": "x"}).Into(t, &in)
	if !in.Success || in.Tokens.Expires != 300 || in.Tokens.Refreshes != 1800 {
		t.Errorf("login: %+v", in)
	}
	s.Want(200, "POST", "/auth/refresh", body{"refresh_token": in.Tokens.Refresh}).Into(t, &in)
	s.Token = in.Tokens.Access
	var token struct{ Token, ID, Description string }
	s.Want(201, "POST", "/api-tokens/", body{"description": "ci"}).Into(t, &token)
	if !strings.HasPrefix(token.Token, "mbx_") || token.Description != "ci" {
		t.Errorf("token: %+v", token)
	}
	if list := s.Want(200, "GET", "/api-tokens", nil); strings.Contains(string(list.Body), token.Token) || !strings.Contains(string(list.Body), token.ID) {
		t.Errorf("tokens: %s", list.Body)
	}
	s.Token = token.Token
	s.Want(200, "GET", "/sandboxes", nil)
	s.Token = in.Tokens.Access
	s.Want(200, "DELETE", "/api-tokens/"+token.Token, nil)
	s.Want(404, "DELETE", "/api-tokens/no-such-thing", nil)
	s.Token = token.Token
	s.Want(401, "GET", "/sandboxes", nil)

	s.Token = owner
	var ws struct {
		ID, Realm string
		Members   []struct {
			User string `json:"user_id"`
			Role string
		}
	}
	s.Want(201, "POST", "/workspaces", body{"name": "Team"}).Into(t, &ws)
	one := "/workspaces/" + ws.ID
	s.Want(422, "POST", one+"/members", body{"email": "ada@example.com", "role": "boss"})
	s.Want(201, "POST", one+"/members", body{"email": "ada@example.com", "role": "member"})
	s.Want(201, "POST", one+"/members", body{"email": "new@example.com", "role": "member"})
	s.Want(200, "PUT", one, body{"name": "Team 2"})
	s.Want(200, "GET", one+"/", nil).Into(t, &ws)
	if len(ws.Members) != 2 || ws.Members[1].Role != "member" || ws.Realm == "" {
		t.Fatalf("workspace: %+v", ws)
	}
	s.Want(200, "PUT", one+"/members/"+ws.Members[1].User, body{"role": "viewer"})
	var list struct{ Workspaces []struct{ ID string } }
	s.Want(200, "GET", "/workspaces", nil).Into(t, &list)
	if len(list.Workspaces) != 2 {
		t.Errorf("workspaces: %+v", list)
	}
	s.Want(200, "DELETE", one+"/members/"+ws.Members[1].User, nil)
	s.Want(200, "DELETE", one, nil)
	s.Want(404, "GET", one, nil)
}
