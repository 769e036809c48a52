package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/modbox/modbox/internal/cli/base"
)

// TestMCP: a session over standard input and output makes its sandbox as the flags say, and ends it
// when the application closes the input.
func TestMCP(t *testing.T) {
	var created, deleted atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const sb = `{"id":"s","name":"s","state":"running"}`
		switch {
		case r.Method == "POST" && r.URL.Path == "/v1/sandboxes":
			body, _ := io.ReadAll(r.Body)
			created.Store(r.Header.Get("Authorization") + " " + string(body))
			_, _ = io.WriteString(w, sb)
		case r.Method == "DELETE":
			deleted.Store(r.URL.Path)
			_, _ = io.WriteString(w, sb)
		case strings.HasSuffix(r.URL.Path, "/files/list"):
			_, _ = io.WriteString(w, `{"items":[{"name":"a","type":"file","size_bytes":1}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	in, toCommand := io.Pipe()
	fromCommand, out := io.Pipe()
	var errOut bytes.Buffer
	env := &base.Env{Stdin: in, Stdout: out, Stderr: &errOut, Environ: []string{"MODBOX_URL=" + server.URL, "MODBOX_API_TOKEN=mbx_test", "HOME=" + t.TempDir()}}
	code := make(chan int, 1)
	go func() {
		code <- execute(t.Context(), env, []string{"mcp", "--image", "app", "--internet", "--ttl", "5m"})
	}()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: fromCommand, Writer: toCommand}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "list_files"})
	if err != nil || r.IsError {
		t.Fatalf("list_files = %+v, %v", r, err)
	}
	if err := toCommand.Close(); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 0 {
		t.Errorf("exit code %d: %s", c, errOut.String())
	}
	got, _ := created.Load().(string)
	for _, want := range []string{"Bearer mbx_test ", `"image":"app"`, `"ttl_seconds":300`, `"enabled":true`} {
		if !strings.Contains(got, want) {
			t.Errorf("the sandbox is made by %s, want %s", got, want)
		}
	}
	if deleted.Load() != "/v1/sandboxes/s" {
		t.Errorf("at the end %v is deleted, want the sandbox", deleted.Load())
	}
}

func TestMCPFlags(t *testing.T) {
	if r := invoke(t, nil, "", "mcp", "--ttl", "5s"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "--ttl") {
		t.Errorf("modbox mcp --ttl 5s = %+v", r)
	}
}
