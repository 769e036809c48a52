package chromium_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// sandboxes are the sandboxes of a server with a pool of the default size.
type sandboxes struct {
	*testserver.Server
	t *testing.T
}

// variables returns the environment of the first process of a program, as it was when the process began. A process that has ended and is not reaped
// has no environment.
func (s *sandboxes) variables(ref, program string) []string {
	s.t.Helper()
	line := fmt.Sprintf(`until for p in $(pgrep %s); do tr '\0' '\n' </proc/$p/environ 2>/dev/null | grep . && break; done | grep .; do sleep 0.1; done`, program)
	res := s.Bash(ref, line, time.Minute)
	if res.ExitCode != 0 {
		s.t.Fatalf("environment of %s in sandbox %s: %s", program, ref, res.Stderr)
	}
	return strings.Split(string(res.Stdout), "\n")
}

// restart ends the processes of a program, and returns when others run and all that ended were reaped: until then pgrep finds them, without variables.
func (s *sandboxes) restart(ref, program string) {
	s.t.Helper()
	line := fmt.Sprintf(`old=$(pgrep %[1]s); pkill -9 %[1]s; until new=$(pgrep %[1]s) && ! grep -qxF "$old" <<<"$new"; do sleep 0.1; done`, program)
	if res := s.Bash(ref, line, time.Minute); res.ExitCode != 0 {
		s.t.Fatalf("restart %s in sandbox %s: %s", program, ref, res.Stderr)
	}
}

// want fails the test unless a program has variables, and lacks others.
func (s *sandboxes) want(sb *client.Sandbox, program string, has []string, lacks ...string) {
	s.t.Helper()
	got := s.variables(sb.ID, program)
	for _, v := range append(has, "DISPLAY=:99", "MODBOX_SANDBOX_ID="+sb.ID, "MODBOX_SANDBOX_NAME="+sb.Name, "MODBOX_SANDBOX_URL="+sb.URL) {
		if !slices.Contains(got, v) {
			s.t.Errorf("%s in sandbox %s lacks %s: %q", program, sb.Name, v, got)
		}
	}
	for _, name := range lacks {
		if slices.ContainsFunc(got, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			s.t.Errorf("%s in sandbox %s has %s: %q", program, sb.Name, name, got)
		}
	}
}

// TestPool: with a pool of the default size, the browser has the environment of its sandbox, whose box was there before. Programs that start later in a
// fork have the environment of the fork, and after a change of variables the new variables.
func TestPool(t *testing.T) {
	need(t)
	s := &sandboxes{testserver.Start(t, "--pool-size", "2"), t}
	o := client.CreateOptions{
		Image: chromium, Resources: client.Resources{Memory: "1Gi", CPU: "1", Disk: "256Mi"}, TTL: 30 * time.Minute,
		Env: map[string]string{"PERSON": `it's "me"`, "SECRET": "of the parent"},
	}
	has := []string{`PERSON=it's "me"`, "SECRET=of the parent"}
	pooled := s.pooled(o)
	s.want(pooled, "chromium", has)
	if v := s.variables(pooled.ID, "Xvfb"); slices.ContainsFunc(v, func(v string) bool { return strings.HasPrefix(v, "MODBOX_SANDBOX_ID=") }) {
		t.Errorf("the screen has started after the sandbox was created: %q", v)
	}
	if res := s.Bash(pooled.ID, "hostname; readlink /home/user/browser/SingletonLock | sed 's/-[0-9]*$//'", time.Minute); string(res.Stdout) != pooled.Name+"\n"+pooled.Name+"\n" {
		t.Errorf("host name, and the name in the browser's lock: %q, want %s", res.Stdout, pooled.Name)
	}
	t.Run("Fork", func(t *testing.T) { (&sandboxes{s.Server, t}).testLater(pooled) })

	// A box with other resources is not in the pool, or blank: everything starts with the sandbox, and so with its environment.
	o.Resources.Memory = "1100Mi"
	booted := s.MustCreate(o)
	s.want(booted, "Xvfb", has)
	t.Run("ForkOfBooted", func(t *testing.T) { (&sandboxes{s.Server, t}).testLater(booted) })
}

// pooled creates sandboxes until one has a box of the pool whose programs had started.
func (s *sandboxes) pooled(o client.CreateOptions) *client.Sandbox {
	s.t.Helper()
	for deadline := time.Now().Add(timeLimit); time.Now().Before(deadline); {
		sb := s.MustCreate(o)
		if s.FromPool(sb.ID) && !slices.Contains(s.variables(sb.ID, "Xvfb"), "MODBOX_SANDBOX_ID="+sb.ID) {
			return sb
		}
		if _, err := s.Sandboxes.Delete(s.t.Context(), sb.ID); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Fatalf("no sandbox was given a box of the pool in %v", timeLimit)
	return nil
}

// testLater forks a sandbox, changes its variables, and looks at programs that start then.
func (s *sandboxes) testLater(parent *client.Sandbox) {
	s.t.Helper()
	forks, err := s.Sandboxes.Fork(s.t.Context(), parent.ID, client.ForkOptions{Env: map[string]string{"SECRET": "of the fork"}})
	if err != nil || forks[0].Err != nil {
		s.t.Fatal(err, forks)
	}
	fork := forks[0].Sandbox
	for _, program := range []string{"x11vnc", "chromium"} {
		s.restart(fork.ID, program)
		s.want(fork, program, []string{`PERSON=it's "me"`, "SECRET=of the fork"})
	}
	s.patch(parent.ID, `{"env": {"SECRET": null, "MORE": "more"}}`)
	s.restart(parent.ID, "x11vnc")
	s.want(parent, "x11vnc", []string{`PERSON=it's "me"`, "MORE=more"}, "SECRET")
	if !slices.Contains(s.variables(parent.ID, "chromium"), "SECRET=of the parent") {
		s.t.Error("the change of variables has restarted the browser")
	}
}

// patch changes the variables of a sandbox.
func (s *sandboxes) patch(ref, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPatch, s.URL+"/sandbox/env/sbx_"+strings.ReplaceAll(ref, "-", ""), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("PATCH %s: %s", ref, resp.Status)
	}
}
