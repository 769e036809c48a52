package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/modbox/modbox/client"
)

// A sandbox is made, runs a command, and is deleted. (The server here is a
// stand-in that knows just these calls; use your server's address and token.)
func Example() {
	server := httptest.NewServer(standIn())
	defer server.Close()

	ctx := context.Background()
	c, err := client.New(server.URL, "mbx_…")
	if err != nil {
		log.Fatal(err)
	}
	sb, err := c.Sandboxes.Create(ctx, client.CreateOptions{Name: "demo", Image: "modbox/code-exec", WaitUpTo: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Sandboxes.Delete(ctx, sb.ID)
	res, err := c.Sandboxes.Exec(ctx, sb.ID, client.Command{Argv: []string{"python3", "-c", "print(6*7)"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s: exit code %d, output %s", sb.Name, sb.State, res.ExitCode, res.Stdout)
	// Output: demo is running: exit code 0, output 42
}

func standIn() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/sandboxes", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"0192","name":"demo","state":"running"}`)
	})
	mux.HandleFunc("POST /v1/sandboxes/0192/exec", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"exit_code":0,"stdout":"NDIK"}`)
	})
	mux.HandleFunc("DELETE /v1/sandboxes/0192", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"id":"0192","state":"destroyed"}`)
	})
	return mux
}
