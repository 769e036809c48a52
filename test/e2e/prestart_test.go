package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// kernelStart is the time, in nanoseconds, at which the supervisor wrote the connection file of the kernel that runs this.
const kernelStart = "__import__('os').stat(__import__('sys').argv[__import__('sys').argv.index('-f') + 1]).st_mtime_ns"

// TestPrestartedInterpreter creates sandboxes of the data image from the pool: their interpreter started before
// they were created, and has nevertheless their environment.
func TestPrestartedInterpreter(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "1")
	o := client.CreateOptions{
		Image: dataImage, Resources: client.Resources{Memory: "512Mi", CPU: "1", Disk: "256Mi"}, TTL: 15 * time.Minute,
		Env: map[string]string{"WHO": "me \"and\" 'you'"},
	}
	started := func(c cells) int64 {
		t.Helper()
		res := c.run("python", kernelStart)
		var ns int64
		if _, err := fmt.Sscan(fmt.Sprint(res.Results[0].Data["text/plain"]), &ns); err != nil {
			t.Fatalf("start of the kernel = %+v: %v", res, err)
		}
		return ns
	}
	sb := fromPool(t, s, o)
	c := cells{t, s.Client, sb.ID}
	res := c.run("python", "1+1")
	if res.Status != "ok" || res.Restarted || res.ExecutionCount != 1 || res.Results[0].Data["text/plain"] != "2" {
		t.Fatalf("the first run = %+v", res)
	}
	if at := started(c); at >= sb.CreatedAt.UnixNano() {
		t.Errorf("the kernel started at %d, the sandbox was created at %d; want a kernel that started before", at, sb.CreatedAt.UnixNano())
	}
	c.value("python", "import os, subprocess\nos.environ['MODBOX_SANDBOX_ID'] + ' ' + os.environ['MODBOX_SANDBOX_NAME']", fmt.Sprintf("'%s %s'", sb.ID, sb.Name))
	c.value("python", "subprocess.run(['printenv', 'WHO'], capture_output=True, text=True).stdout", `'me "and" \'you\'\n'`)
	c.value("python", "os.uname().nodename, os.getuid(), os.getcwd()", fmt.Sprintf("('%s', 1000, '/workspace')", sb.Name))
	second, err := c.client.Sandboxes.Contexts.Create(t.Context(), c.id, client.ContextOptions{Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	res, err = c.runCode(t.Context(), "echo $MODBOX_SANDBOX_ID $WHO", client.CodeOptions{ContextID: second.ID})
	if err != nil || res.Stdout != sb.ID+" me \"and\" 'you'\n" {
		t.Errorf("another context = %+v, %v", res, err)
	}
	all, err := c.contexts().Collect(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != "python" || all[0].Restarts != 0 {
		t.Errorf("contexts = %+v, %v", all, err)
	}

	// It is paused, resumed and forked as others are.
	c.run("python", "kept = 7")
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	c.value("python", "kept", "7")
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	cells{t, s.Client, forks[0].Sandbox.ID}.value("python", "kept", "7")
	for _, id := range []string{sb.ID, forks[0].Sandbox.ID} {
		if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}

	// Python reads some variables only at its start: the sandbox gets an interpreter of its own.
	o.Env = map[string]string{"PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
	sb = fromPool(t, s, o)
	c = cells{t, s.Client, sb.ID}
	c.value("python", "import sys, time\nsys.flags.hash_randomization, time.tzname[0]", "(1, 'JST')")
	if at := started(c); at < sb.CreatedAt.UnixNano() {
		t.Errorf("the kernel started at %d, before the sandbox was created at %d", at, sb.CreatedAt.UnixNano())
	}
	res = c.run("python", "import os; print(os.environ['PYTHONHASHSEED'], hash('modbox'))")
	inCommand := s.Bash(sb.ID, `echo $PYTHONHASHSEED $(python3 -c "print(hash('modbox'))")`, time.Minute)
	if res.Stdout != string(inCommand.Stdout) || !strings.HasPrefix(res.Stdout, "7 ") {
		t.Errorf("with a seed for hashes, the interpreter printed %q and a command %q", res.Stdout, inCommand.Stdout)
	}
}
