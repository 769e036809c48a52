package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// cells runs code in a sandbox.
type cells struct {
	t      *testing.T
	client *client.Client
	id     string
}

func (c cells) runCode(ctx context.Context, code string, o client.CodeOptions) (*client.CodeResult, error) {
	return c.client.Sandboxes.RunCode(ctx, c.id, code, o)
}

func (c cells) stream(ctx context.Context, code string, o client.CodeOptions, each func(client.CodeEvent) error) error {
	return c.client.Sandboxes.RunCodeStream(ctx, c.id, code, o, each)
}

func (c cells) contexts() *client.List[client.Context] { return c.client.Sandboxes.Contexts.List(c.id) }

// want runs code, and compares its standard output.
func (c cells) want(language, code, stdout string) {
	c.t.Helper()
	res, err := c.runCode(c.t.Context(), code, client.CodeOptions{Language: language})
	if err != nil {
		c.t.Fatalf("%s %q: %v", language, code, err)
	}
	if res.Stdout != stdout || res.Status != "ok" {
		c.t.Errorf("%s %q = %+v, want stdout %q", language, code, res, stdout)
	}
}

// TestContextsKeepTheirState runs code in contexts over a checkpoint, a pause and a fork.
func TestContextsKeepTheirState(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	in := func(ref string) cells { return cells{t, s.Client, ref} }
	c := in(sb.ID)
	if all, err := c.contexts().Collect(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("contexts of a new sandbox = %v, %v", all, err)
	}
	c.want("bash", "x=1; cd /usr; echo $((x+1))", "2\n")
	second, err := c.client.Sandboxes.Contexts.Create(t.Context(), c.id, client.ContextOptions{Language: "bash", Cwd: "/tmp", Env: map[string]string{"V": "w"}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := c.runCode(t.Context(), "echo $V ${x-none} $PWD", client.CodeOptions{ContextID: second.ID}); err != nil || res.Stdout != "w none /tmp\n" {
		t.Errorf("second context = %+v, %v", res, err)
	}

	// A checkpoint is made while code runs and its caller waits.
	type end struct {
		res *client.CodeResult
		err error
	}
	ended, going := make(chan end, 1), make(chan struct{})
	go func() {
		res := new(client.CodeResult)
		err := c.stream(t.Context(), "echo go; until [ -e /tmp/saved ]; do sleep 0.05; done; echo on", client.CodeOptions{Language: "bash"}, func(ev client.CodeEvent) error {
			if res.Stdout += ev.Text; ev.Type == "stdout" && res.Stdout == "go\n" {
				close(going)
			}
			if ev.Type == "end" {
				res.Status = ev.Status
			}
			return nil
		})
		ended <- end{res, err}
	}()
	select {
	case <-going:
	case e := <-ended:
		t.Fatalf("the code ended: %+v, %v", e.res, e.err)
	}
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "c"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"touch", "/tmp/saved"}}); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.err != nil || e.res.Stdout != "go\non\n" || e.res.Status != "ok" {
		t.Errorf("code over a checkpoint = %+v, %v", e.res, e.err)
	}

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	c.want("bash", "x=$((x+1)); echo $x $PWD", "2 /usr\n") // wakes it
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	f := in(forks[0].Sandbox.ID)
	f.want("bash", "x=$((x+1)); echo $x", "3\n")
	c.want("bash", "echo $x", "2\n")
	all, err := f.contexts().Collect(t.Context())
	if err != nil || len(all) != 2 || all[1].ID != second.ID {
		t.Errorf("contexts of the fork = %+v, %v", all, err)
	}
}

// TestCodeIsInterrupted interrupts code by its context, by its timeout, and by the end of its request.
func TestCodeIsInterrupted(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	c := cells{t, s.Client, sb.ID}
	c.want("bash", "x=5", "")
	const forever = "echo go; sleep 1000"
	bash := client.CodeOptions{Language: "bash"}
	run := func(ctx context.Context, o client.CodeOptions, going func()) (status string, err error) {
		err = c.stream(ctx, forever, o, func(ev client.CodeEvent) error {
			if ev.Type == "stdout" {
				going()
			}
			status += ev.Status
			return nil
		})
		return status, err
	}
	status, err := run(t.Context(), bash, func() {
		if err := c.client.Sandboxes.Contexts.Interrupt(t.Context(), c.id, "bash"); err != nil {
			t.Error(err)
		}
	})
	if status != "interrupted" || err != nil {
		t.Errorf("interrupted code = %s, %v", status, err)
	}
	if status, err := run(t.Context(), client.CodeOptions{Language: "bash", Timeout: time.Second}, func() {}); status != "timed_out" || err != nil {
		t.Errorf("code with a timeout = %s, %v", status, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := run(ctx, bash, cancel); err == nil {
		t.Error("the stream of a request that ended has no error")
	}
	c.want("bash", "echo $x", "5\n") // waits for the end of the code before it

	restarted, err := c.client.Sandboxes.Contexts.Restart(t.Context(), c.id, "bash")
	if err != nil || restarted.Restarts != 1 {
		t.Errorf("restart = %+v, %v", restarted, err)
	}
	c.want("bash", "echo ${x-none}", "none\n")
	if err := c.client.Sandboxes.Contexts.Delete(t.Context(), c.id, "bash"); err != nil {
		t.Error(err)
	}
	if err := c.client.Sandboxes.Contexts.Interrupt(t.Context(), c.id, "bash"); !client.IsCode(err, client.NotFound) {
		t.Errorf("interrupt of a deleted context = %v, want not_found", err)
	}
	_, err = c.client.Sandboxes.Contexts.Create(t.Context(), c.id, client.ContextOptions{Language: "r"})
	if !client.IsCode(err, client.Unsupported) || !strings.Contains(err.Error(), "r-cran-irkernel") {
		t.Errorf("R = %v, want the packages to install", err)
	}
}

// TestMistakesInCodeNameTheirField asks for a language and a directory that do not exist.
func TestMistakesInCodeNameTheirField(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image})
	_, run := s.Sandboxes.RunCode(t.Context(), sb.ID, "1", client.CodeOptions{Language: "cobol"})
	_, language := s.Sandboxes.Contexts.Create(t.Context(), sb.ID, client.ContextOptions{Language: "cobol"})
	_, cwd := s.Sandboxes.Contexts.Create(t.Context(), sb.ID, client.ContextOptions{Language: "bash", Cwd: "/nothing"})
	for want, errs := range map[string][]error{"language": {run, language}, "cwd": {cwd}} {
		for _, err := range errs {
			var e *client.Error
			if !errors.As(err, &e) || e.Code != client.Invalid || len(e.Fields) != 1 || e.Fields[0].Location != want {
				t.Errorf("the error is %+v, want invalid for the field %s", err, want)
			}
		}
	}
}

// TestLaterContextsHaveTheNewEnvironment changes the environment of a sandbox whose supervisor of interpreters
// runs, and forks it with another.
func TestLaterContextsHaveTheNewEnvironment(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: image, Env: map[string]string{"ROLE": "first", "GONE": "x"}})
	const show = "echo $ROLE ${GONE-none} $MODBOX_SANDBOX_ID"
	later := func(id string) string {
		t.Helper()
		made, err := s.Sandboxes.Contexts.Create(t.Context(), id, client.ContextOptions{Language: "bash"})
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Sandboxes.RunCode(t.Context(), id, show, client.CodeOptions{ContextID: made.ID})
		if err != nil {
			t.Fatal(err)
		}
		return res.Stdout
	}
	c := cells{t, s.Client, sb.ID}
	c.want("bash", "kept=1; "+show, "first x "+sb.ID+"\n")
	second := "second"
	if _, err := s.Sandboxes.UpdateEnv(t.Context(), sb.ID, map[string]*string{"ROLE": &second, "GONE": nil}); err != nil {
		t.Fatal(err)
	}
	c.want("bash", "echo $kept; "+show, "1\nfirst x "+sb.ID+"\n")
	if got, want := later(sb.ID), "second none "+sb.ID+"\n"; got != want {
		t.Errorf("a later context shows %q, want %q", got, want)
	}
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Env: map[string]string{"ROLE": "child"}})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	child := forks[0].Sandbox.ID
	if got, want := later(child), "child none "+child+"\n"; got != want {
		t.Errorf("a later context of the fork shows %q, want %q", got, want)
	}
	cells{t, s.Client, child}.want("bash", "echo $kept; "+show, "1\nfirst x "+sb.ID+"\n")
}
