package api_test

import (
	"testing"

	"github.com/modbox/modbox/internal/api/apitest"
)

// TestReadersAreNotLetIn checks that who may only read is not given what opens a
// sandbox to its holder.
func TestReadersAreNotLetIn(t *testing.T) {
	s := apitest.New(t)
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "a", "wait_seconds": 180})
	var x struct {
		ID string `json:"id"`
	}
	s.Want(201, "POST", "/v1/sandboxes/a/executions", map[string]any{"shell": "cat", "stdin": true}).Into(t, &x)
	var token struct {
		Token  string   `json:"token"`
		Scopes []string `json:"scopes"`
	}
	s.Want(201, "POST", "/v1/tokens", map[string]any{"scopes": []string{"sandboxes:read"}}).Into(t, &token)
	if len(token.Scopes) != 1 {
		t.Errorf("scopes of the token: %v", token.Scopes)
	}
	owner := s.Token
	s.Token = token.Token
	for _, path := range []string{"/v1/sandboxes/a", "/v1/sandboxes/a/wait", "/sandboxes/detail/a"} {
		var got struct {
			URL        string `json:"url"`
			SandboxURL string `json:"sandbox_url"`
			Name       string `json:"name"`
		}
		s.Want(200, "GET", path, nil).Into(t, &got)
		if got.Name != "a" || got.URL+got.SandboxURL != "" {
			t.Errorf("GET %s shows %+v to a reader", path, got)
		}
	}
	for _, path := range []string{"/v1/executions/" + x.ID, "/v1/sandboxes/a/executions"} {
		var got struct {
			Stdin string `json:"stdin_stream_id"`
			Items []struct {
				Stdin string `json:"stdin_stream_id"`
			} `json:"items"`
		}
		s.Want(200, "GET", path, nil).Into(t, &got)
		if got.Stdin != "" || len(got.Items) == 1 && got.Items[0].Stdin != "" {
			t.Errorf("GET %s shows %+v to a reader", path, got)
		}
	}
	s.Want(403, "POST", "/v1/sandboxes/a/exec", map[string]any{"shell": "true"})
	s.Want(403, "GET", "/v1/sandboxes/a/exec/attach", nil)
	s.Want(403, "DELETE", "/v1/sandboxes/a", nil)
	s.Want(403, "GET", "/v1/tokens", nil)
	s.Token = owner
	var got struct {
		URL   string `json:"url"`
		Stdin string `json:"stdin_stream_id"`
	}
	s.Want(200, "GET", "/v1/sandboxes/a", nil).Into(t, &got)
	s.Want(200, "GET", "/v1/executions/"+x.ID, nil).Into(t, &got)
	if got.URL == "" || got.Stdin == "" {
		t.Errorf("the owner is shown %+v", got)
	}
	s.Want(200, "POST", "/v1/executions/"+x.ID+"/cancel", map[string]any{"force": true})
}
