package hostile_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/client"
)

// TestBodiesOfAnotherWorkspace: bodies that never end use only the workspace's share of memory.
// Meanwhile requests of another workspace work, large requests included.
func TestBodiesOfAnotherWorkspace(t *testing.T) {
	r := newRig(t)
	greedy, err := r.Workspaces.Create(t.Context(), client.WorkspaceOptions{Name: "greedy"})
	if err != nil {
		t.Fatal(err)
	}
	before := r.serverPeakRSS()
	const size = 12 << 20
	head := `{"command":["true"],"files":[{"path":"/tmp/f","content":"`
	refused := 0
	for i := range 20 {
		body, send := io.Pipe()
		defer send.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL+"/v1/sandboxes/none/executions", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.Token)
		req.Header.Set("X-Workspace-Id", greedy.ID)
		req.Header.Set("Content-Type", "application/json")
		status := make(chan string, 1)
		go func() {
			defer body.Close()
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				status <- err.Error()
				return
			}
			resp.Body.Close()
			status <- fmt.Sprint(resp.StatusCode)
		}()
		if _, err := io.Copy(send, io.MultiReader(strings.NewReader(head), strings.NewReader(strings.Repeat("A", size)))); err == nil {
			continue // it is all there, and does not end
		}
		if got := <-status; got != "429" {
			t.Errorf("body %d is answered %s, want 429", i+1, got)
		}
		refused++
		if refused == 3 {
			break
		}
	}
	if refused == 0 {
		t.Error("no body is refused")
	}
	res, err := r.Sandboxes.Exec(t.Context(), r.neighbour, client.Command{Argv: []string{"wc", "-c"}, Stdin: bytes.Repeat([]byte("x"), 4<<20)})
	if err != nil || strings.TrimSpace(string(res.Stdout)) != fmt.Sprint(4<<20) {
		t.Errorf("exec with stdin of another workspace = %+v, %v", res, err)
	}
	r.healthy()
	if grown := r.serverPeakRSS() - before; grown > 320<<20 {
		t.Errorf("the bodies made the server grow by %d MiB", grown>>20)
	}
}
