package e2e_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// argumentMax is the documented maximum size of an argument and of a script, in bytes.
const argumentMax = 128<<10 - 1

// TestLongCommands runs commands of the maximum size by every route.
func TestLongCommands(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	prefix := "echo done #"
	script := prefix + strings.Repeat("<", argumentMax-len(prefix)) // JSON may write 6 bytes for each <
	argument := strings.Repeat("x", argumentMax)

	for name, cmd := range map[string]client.Command{
		"script":    {Shell: script},
		"argument":  {Argv: []string{"/bin/sh", "-c", "echo done", argument}},
		"arguments": {Argv: []string{"/bin/sh", "-c", "echo done", argument, argument[:120<<10]}},
	} {
		res, err := s.Sandboxes.Exec(t.Context(), sb.ID, cmd)
		if err != nil || string(res.Stdout) != "done\n" {
			t.Errorf("exec of the longest %s: %v, %v", name, res, err)
		}
		e, err := s.Executions.Start(t.Context(), sb.ID, cmd, client.ExecutionOptions{})
		if err != nil {
			t.Errorf("execution of the longest %s: %v", name, err)
			continue
		}
		if e, err = s.Executions.Get(t.Context(), e.ID, time.Minute); err != nil || e.State != "completed" {
			t.Errorf("execution of the longest %s: %+v, %v", name, e, err)
		}
	}

	for field, cmd := range map[string]client.Command{
		"shell":   {Shell: script + "<"},
		"command": {Argv: []string{"/bin/echo", argument + "x"}},
	} {
		_, err := s.Sandboxes.Exec(t.Context(), sb.ID, cmd)
		wantField(t, err, field)
		_, err = s.Executions.Start(t.Context(), sb.ID, cmd, client.ExecutionOptions{})
		wantField(t, err, field)
	}
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	var refused *client.Error
	if !errors.As(err, &refused) || refused.Code != client.Invalid || len(refused.Fields) != 1 || refused.Fields[0].Location != field {
		t.Errorf("too long: %v, want an error that names %s", err, field)
	}
}

// TestLongCode runs code of nearly the maximum size within the default time, which programs that
// read it byte by byte exceed.
func TestLongCode(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	lines := strings.Repeat("#"+strings.Repeat("x", 98)+"\n", 40_000)
	for language, code := range map[string]string{
		"python": lines + "print(__name__, 6*7)",
		"bash":   lines + "echo __main__ $((6*7))",
		"sh":     lines + "echo __main__ $((6*7))",
	} {
		body, err := json.Marshal(map[string]any{"language": language, "code": code, "env": map[string]string{"PYTHONUNBUFFERED": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		status, answer := visit(t, "POST", sb.URL+"/execute", string(body), http.Header{"Authorization": {"Bearer " + s.Token}})
		if status != 200 || !strings.Contains(answer, `"stdout":"__main__ 42\n"`) {
			t.Errorf("%s: status %d, %.500s", language, status, answer)
		}
	}
}
