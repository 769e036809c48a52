package e2e_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestCodeInR runs R in a context, with the kernel that its error names as missing elsewhere.
func TestCodeInR(t *testing.T) {
	_, args := mirrors(t) // the real mirrors
	s := testserver.StartInstalled(t, "r", args...)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", AptPackages: []string{"r-cran-irkernel"}, WaitUpTo: 10 * time.Minute})
	c := cells{t, s.Client, sb.ID}
	c.want("r", "x <- 20; cat('one\\n')", "one\n")
	c.want("r", "cat(x + 22, '\\n')", "42 \n")

	in := func(code string, o client.CodeOptions) *client.CodeResult {
		t.Helper()
		o.Language = "r"
		res, err := c.runCode(t.Context(), code, o)
		if err != nil {
			t.Fatalf("%q: %v", code, err)
		}
		return res
	}
	has := func(res *client.CodeResult, format, text string) bool {
		value, _ := res.Results[0].Data[format].(string)
		return strings.Contains(value, text)
	}
	if res := in("data.frame(a = 1:2, b = c('x', 'y'))", client.CodeOptions{}); len(res.Results) != 1 || !has(res, "text/html", "<table") || !has(res, "text/plain", "x") {
		t.Errorf("a data frame = %+v", res)
	}
	if res := in("plot(1:3)", client.CodeOptions{}); len(res.Results) != 1 || !has(res, "image/png", "iVBOR") {
		t.Errorf("a plot = %+v", res)
	}
	if res := in("stop('not today')", client.CodeOptions{}); res.Status != "error" || res.Error == nil || !strings.Contains(res.Error.Value, "not today") {
		t.Errorf("an error = %+v", res)
	}
	if res := in("Sys.sleep(1000)", client.CodeOptions{Timeout: time.Second}); res.Status != "timed_out" {
		t.Errorf("a timeout = %+v", res)
	}
	status := ""
	err := c.stream(t.Context(), "x <- x + 1; cat('on\\n'); repeat Sys.sleep(0.01)", client.CodeOptions{Language: "r"}, func(ev client.CodeEvent) error {
		status += ev.Status
		if ev.Type == "stdout" {
			return c.client.Sandboxes.Contexts.Interrupt(t.Context(), c.id, "r")
		}
		return nil
	})
	if err != nil || status != "interrupted" {
		t.Errorf("an interrupt: %q, %v", status, err)
	}
	c.want("r", "x <- x - 1; cat(x, '\\n')", "20 \n")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	c.want("r", "cat(x, '\\n')", "20 \n") // wakes it
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	cells{t, s.Client, forks[0].Sandbox.ID}.want("r", "x <- x + 1; cat(x, '\\n')", "21 \n")
	c.want("r", "cat(x, '\\n')", "20 \n")

	// Clients of E2B run R in such a sandbox as well.
	e := asPython(t, s)
	var connected opened
	into(t, e.control(http.StatusOK, "POST", "/sandboxes/"+sb.ID+"/connect", `{"timeout":300}`), &connected)
	e.id, e.access, e.traffic = connected.SandboxID, connected.EnvdAccessToken, connected.TrafficAccessToken
	got := e.execute(t, `{"code":"y <- 6; cat(y * 7)\ndata.frame(a = 1)","language":"r"}`)
	if fmt.Sprint(got["stdout"][0]["text"]) != "42" || !strings.Contains(fmt.Sprint(got["result"][0]["html"]), "<table") {
		t.Errorf("R through the dialect = %v", got)
	}
}
