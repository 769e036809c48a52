package api_test

import (
	"io"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/apitest"
	"github.com/modbox/modbox/internal/sandbox"
)

// BenchmarkExec compares a command through the API with the same command through the lifecycle
// service: the difference is the cost of the API.
func BenchmarkExec(b *testing.B) {
	s := apitest.New(b)
	var sb struct{ ID, CreatedBy, WorkspaceID string }
	s.Want(201, "POST", "/v1/sandboxes", map[string]any{"name": "bench", "wait_seconds": 180}).Into(b, &sb)
	page, err := s.Store.Sandboxes.LiveSandboxes(b.Context())
	if err != nil || len(page) != 1 {
		b.Fatalf("%d sandboxes, %v", len(page), err)
	}
	caller := sandbox.Caller{User: page[0].CreatedBy, Workspace: page[0].Workspace}
	b.Run("lifecycle", func(b *testing.B) {
		for b.Loop() {
			stream, err := s.Service.Guest().Exec(b.Context(), caller, string(sandbox.ID(sb.ID)), agentapi.Command{Argv: []string{"true"}})
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = stream.Next()
			}
			if err != io.EOF {
				b.Fatal(err)
			}
			_ = stream.Close()
		}
	})
	b.Run("api", func(b *testing.B) {
		for b.Loop() {
			s.Want(200, "POST", "/v1/sandboxes/bench/exec", `{"command":["true"]}`)
		}
	})
}

// BenchmarkRows compares requests to an empty server with requests to a server with 300 running
// sandboxes that are older than 10,000 ended sandboxes.
func BenchmarkRows(b *testing.B) {
	s := apitest.New(b)
	create := func(b *testing.B) string {
		b.Helper()
		var sb struct{ ID string }
		s.Want(201, "POST", "/v1/sandboxes", map[string]any{"wait_seconds": 180}).Into(b, &sb)
		return "/v1/sandboxes/" + sb.ID
	}
	requests := func(b *testing.B, rows string, path string) {
		b.Helper()
		for name, path := range map[string]string{"get": path, "list": "/v1/sandboxes?limit=20", "list-state": "/v1/sandboxes?limit=20&state=running"} {
			b.Run(name+"/"+rows, func(b *testing.B) {
				for b.Loop() {
					s.Want(200, "GET", path, nil)
				}
			})
		}
		b.Run("create-delete/"+rows, func(b *testing.B) {
			for b.Loop() {
				s.Want(200, "DELETE", create(b), nil)
			}
		})
	}
	var path string
	for range 20 { // as many as a page of a list
		path = create(b)
	}
	requests(b, "few", path)
	for range 280 {
		path = create(b)
	}
	for range 10_000 {
		s.Want(200, "DELETE", create(b), nil)
	}
	requests(b, "many", path)
}
