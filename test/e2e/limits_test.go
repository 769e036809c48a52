package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// limited are programs that exceed a limit, by the limit that ends them.
var limited = map[string]struct {
	command []string
	limits  client.Limits
}{
	client.LimitMemory:    {[]string{"python3", "-c", "x = bytearray(200 << 20); import time; time.sleep(1000)"}, client.Limits{Memory: "64Mi"}},
	client.LimitCPU:       {[]string{"python3", "-c", "while True: pass"}, client.Limits{CPUSeconds: 1}},
	client.LimitFileSize:  {[]string{"python3", "-c", "import os\nf = open('/tmp/large%d' % os.getuid(), 'wb')\nwhile True: f.write(bytes(1 << 16))"}, client.Limits{FileSize: "4Mi"}},
	client.LimitProcesses: {[]string{"sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; wait"}, client.Limits{Processes: 5}},
}

// TestLimitsPerCommand exceeds each limit by each route that runs commands.
func TestLimitsPerCommand(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	for limit, tc := range limited {
		for _, user := range []string{"root", "1000"} {
			cmd := client.Command{Argv: tc.command, User: user, Limits: tc.limits, Timeout: 5 * time.Minute}
			res, err := s.Sandboxes.Exec(t.Context(), sb.ID, cmd)
			if err != nil || res.LimitExceeded != limit || res.ExitCode == 0 || res.TimedOut {
				t.Errorf("exec over its limit of %s, as %s: %+v, %v", limit, user, res, err)
			}
		}
		cmd := client.Command{Argv: tc.command, Limits: tc.limits}
		e, err := s.Executions.Start(t.Context(), sb.ID, cmd, client.ExecutionOptions{WaitUpTo: 5 * time.Minute})
		if err != nil || e.State != client.ExecutionFailed || e.LimitExceeded != limit {
			t.Errorf("execution over its limit of %s: %+v, %v", limit, e, err)
		}
		language := map[string]string{"python3": "python", "sh": "sh"}[tc.command[0]]
		body, err := json.Marshal(map[string]any{"language": language, "code": tc.command[2], "limits": tc.limits})
		if err != nil {
			t.Fatal(err)
		}
		status, answer := visit(t, "POST", sb.URL+"/execute", string(body), http.Header{"Authorization": {"Bearer " + s.Token}})
		if status != 200 || !strings.Contains(answer, `"limitExceeded":"`+limit+`"`) {
			t.Errorf("/execute over its limit of %s: %d %s", limit, status, answer)
		}
	}
	out, errOut, code := run(t, s, "", "exec", "--limit-processes", "2", sb.ID, "--", "sh", "-c", "sleep 1000 & sleep 1000 & wait")
	if code != 137 || !strings.Contains(errOut, "exceeded its limit: processes") {
		t.Errorf("modbox exec --limit-processes = %q, %q, %d", out, errOut, code)
	}
	res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "ps -e | wc -l; echo ok"})
	if err != nil || !strings.HasSuffix(string(res.Stdout), "ok\n") || strings.Contains(string(res.Stdout), "sleep") {
		t.Errorf("after all of that: %s, %v", res.Stdout, err)
	}
}

// TestLimitsOutliveAPause pauses a sandbox in which a limited command runs.
func TestLimitsOutliveAPause(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	cmd := client.Command{Shell: "while [ ! -e /tmp/go ]; do sleep 0.05; done; for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait", Limits: client.Limits{Processes: 4}}
	e, err := s.Executions.Start(t.Context(), sb.ID, cmd, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "touch /tmp/go"}); err != nil {
		t.Fatal(err)
	}
	if e, err = s.Executions.Get(t.Context(), e.ID, time.Minute); err != nil || e.LimitExceeded != client.LimitProcesses {
		t.Errorf("after a pause: %+v, %v", e, err)
	}
}

// TestLimitsAreChecked gives limits that are wrong.
func TestLimitsAreChecked(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image, Resources: client.Resources{Memory: "256Mi"}})
	for field, limits := range map[string]client.Limits{
		"limits.memory":      {Memory: "1Gi"},
		"limits.file_size":   {FileSize: "9Ti"},
		"limits.cpu_seconds": {CPUSeconds: 1 << 40},
		"limits.processes":   {Processes: 1 << 30},
	} {
		cmd := client.Command{Argv: []string{"true"}, Limits: limits}
		_, err := s.Sandboxes.Exec(t.Context(), sb.ID, cmd)
		wantField(t, err, field)
		_, err = s.Executions.Start(t.Context(), sb.ID, cmd, client.ExecutionOptions{})
		wantField(t, err, field)
	}
	for _, memory := range []string{"1Ki", "much", "-1"} {
		_, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"true"}, Limits: client.Limits{Memory: memory}})
		wantField(t, err, "limits.memory")
	}
}
