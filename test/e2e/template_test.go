package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// templated are sandboxes that can come from a memory template.
var templated = client.CreateOptions{
	Image: dataImage, Resources: client.Resources{Memory: "640Mi", CPU: "1", Disk: "256Mi"}, TTL: 15 * time.Minute,
}

// demandTemplate makes creates until the server has a memory template for them.
func demandTemplate(t *testing.T, s *testserver.Server, o client.CreateOptions) {
	t.Helper()
	for range 2 {
		if _, err := s.Sandboxes.Delete(t.Context(), s.MustCreate(o).ID); err != nil {
			t.Fatal(err)
		}
	}
	s.AwaitMetric("modbox_templates", 1)
}

// fromTemplate creates a sandbox, which must come from a memory template.
func fromTemplate(t *testing.T, s *testserver.Server, o client.CreateOptions) (*client.Sandbox, cells) {
	t.Helper()
	sb := s.MustCreate(o)
	if !s.FromTemplate(sb.ID) {
		t.Fatalf("sandbox %s does not come from a memory template", sb.ID)
	}
	return sb, cells{t, s.Client, sb.ID}
}

// TestTemplate: two sandboxes from one memory template have loaded modules, and share nothing else.
func TestTemplate(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0")
	o := templated
	o.Network = client.Network{Enabled: true}
	demandTemplate(t, s, o)
	const random = `import multiprocessing, os, random, secrets, ssl, tempfile, uuid, numpy
[bytes(multiprocessing.current_process().authkey).hex(), tempfile.mktemp(), os.urandom(8).hex(), random.random(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), str(uuid.uuid4()), str(uuid.uuid1()), float(numpy.random.rand()), float(numpy.random.default_rng().random())]`
	var drawn, inShell []string
	for _, name := range []string{"one", "two"} {
		o.Name, o.Env = name, map[string]string{"WHO": "of " + name}
		sb, c := fromTemplate(t, s, o)
		c.value("python", "import sys\n'pandas' in sys.modules, 'matplotlib.pyplot' in sys.modules, [n for n in globals() if n in ('data', 'name', 'json', 'pandas', 'importlib')]", "(True, True, [])")
		if res := c.run("python", "import pandas; pandas.DataFrame({'a': [1, 2]}).a.sum().item()"); res.Status != "ok" || res.Restarted || res.ExecutionCount != 2 {
			t.Errorf("the second run = %+v", res)
		}
		c.value("python", "import os\nos.environ['WHO'], os.environ['MODBOX_SANDBOX_ID'], os.environ['MODBOX_SANDBOX_NAME'], os.uname().nodename, __import__('platform').node()",
			fmt.Sprintf("('of %s', '%s', '%s', '%s', '%s')", name, sb.ID, name, name, name))
		res := s.Bash(sb.ID, `echo "$WHO $(hostname) $(cat /etc/hostname)"; getent hosts $(hostname) | head -c 9; echo; cat /etc/resolv.conf; ls /workspace/mine 2>/dev/null; awk '/MemTotal/ { print $2 <= 655360 }' /proc/meminfo
			dd if=/dev/zero of=/workspace/big bs=1M count=280 2>/dev/null || echo full; rm /workspace/big; echo `+name+` > /workspace/mine`, time.Minute)
		if want := fmt.Sprintf("of %s %s %s\n127.0.1.1\nnameserver 10.0.0.1\n1\nfull\n", name, name, name); string(res.Stdout) != want {
			t.Errorf("in sandbox %s: %q, want %q", name, res.Stdout, want)
		}
		before := time.Now()
		var at float64
		if _, err := fmt.Sscan(fmt.Sprint(c.run("python", "import time\ntime.time()").Results[0].Data["text/plain"]), &at); err != nil {
			t.Fatal(err)
		}
		if now := time.UnixMicro(int64(at * 1e6)); now.Before(before) || now.After(time.Now()) {
			t.Errorf("the clock of sandbox %s says %v, on the host it was between %v and %v", name, now, before, time.Now())
		}
		drawn = append(drawn, fmt.Sprint(c.run("python", random).Results[0].Data["text/plain"]))
		inShell = append(inShell, string(s.Bash(sb.ID, `head -c 8 /dev/urandom | od -An -tx8; cat /proc/sys/kernel/random/uuid 2>/dev/null; mktemp -u; echo $RANDOM$RANDOM$RANDOM`, time.Minute).Stdout))
	}
	for _, both := range [][]string{drawn, inShell} {
		one, two := strings.FieldsFunc(both[0], apart), strings.FieldsFunc(both[1], apart)
		if len(one) < 3 || len(one) != len(two) {
			t.Fatalf("random values %q", both)
		}
		for i := range one {
			if one[i] == two[i] {
				t.Errorf("value %d is in both sandboxes: %s", i, one[i])
			}
		}
	}
	if hits := s.Metric(`modbox_template_restores_total{outcome="hit"}`); hits != 2 {
		t.Errorf("%v hits, want 2", hits)
	}
	stateful(t, s, "one")

	// Variables that a loaded module has read need another interpreter; other resources another template.
	o.Name, o.Env = "three", map[string]string{"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "svg"}
	_, c := fromTemplate(t, s, o)
	c.value("python", "import os, matplotlib\nos.environ['OPENBLAS_NUM_THREADS'], matplotlib.rcParams._get('backend') if hasattr(matplotlib.rcParams, '_get') else matplotlib.get_backend()", "('1', 'svg')")
	// An environment that the owner chose, and with which nothing can be announced, does no harm to the template.
	o.Name, o.Env = "bad", map[string]string{"GOMEMLIMIT": "x"}
	if sb := s.MustCreate(o); s.FromTemplate(sb.ID) {
		t.Error("the sandbox with a bad environment comes from a template")
	}
	o.Name, o.Env = "after", nil
	fromTemplate(t, s, o)
	o.Name, o.Resources.Memory = "four", "700Mi"
	if sb := s.MustCreate(o); s.FromTemplate(sb.ID) {
		t.Errorf("a sandbox with other resources comes from the template")
	}
}

// apart reports whether a character separates values.
func apart(r rune) bool { return strings.ContainsRune(" \n[],'", r) }

// stateful pauses, forks, and kills the server of a sandbox from a template, which keeps its state.
func stateful(t *testing.T, s *testserver.Server, ref string) {
	t.Helper()
	c := cells{t, s.Client, ref}
	c.run("python", "kept = pandas.Series([7])")
	if _, err := s.Sandboxes.Pause(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	c.value("python", "kept.sum().item()", "7")
	s.Kill()
	s.Launch()
	c.client = s.Client
	c.value("python", "kept.sum().item()", "7")
	forks, err := s.Sandboxes.Fork(t.Context(), ref, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	cells{t, s.Client, forks[0].Sandbox.ID}.value("python", "kept.sum().item()", "7")
	if res := s.Bash(forks[0].Sandbox.ID, "cat /workspace/mine", time.Minute); string(res.Stdout) != "one\n" {
		t.Errorf("the file of the sandbox in its fork = %q", res.Stdout)
	}
	demandTemplate(t, s, func() client.CreateOptions {
		o := templated
		o.Network = client.Network{Enabled: true}
		return o
	}())
}

// TestTemplateOfAKilledServer: a server that is killed while it makes a template, and one with a template, leave nothing.
func TestTemplateOfAKilledServer(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0")
	dir := filepath.Join(s.StateDir, "templates")
	for range 2 {
		if _, err := s.Sandboxes.Delete(t.Context(), s.MustCreate(templated).ID); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if found, err := os.ReadDir(dir); err == nil && len(found) > 0 {
			t.Logf("killed with %v", found)
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no template is being made after a minute")
		}
	}
	s.Kill()
	s.SetArgs("--pool-size", "0", "--template-max-bytes", "0")
	s.Launch()
	if found, err := os.ReadDir(dir); err != nil || len(found) > 0 {
		t.Errorf("left of a template: %v, %v", found, err)
	}
	if left := s.Left(""); len(left) > 0 {
		t.Errorf("left of the box of a template:\n%s", strings.Join(left, "\n"))
	}
}

// TestDamagedTemplate: sandboxes are made without the template when that is damaged, in the same turn, and it is removed. The file has its size, so that
// a box is restored that does not run; TestDamageOfEachFileIsFound of the driver has damage that a restore finds.
func TestDamagedTemplate(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0", "--sandbox-create-concurrency", "1")
	demandTemplate(t, s, templated)
	dir := filepath.Join(s.StateDir, "templates")
	pages, err := filepath.Glob(filepath.Join(dir, "*", "pages.img"))
	if err != nil || len(pages) != 1 {
		t.Fatalf("files of the template: %v, %v", pages, err)
	}
	info, err := os.Stat(pages[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(pages[0], make([]byte, info.Size()), 0o600); err != nil {
		t.Fatal(err)
	}
	for left := []os.DirEntry{nil}; len(left) > 0; {
		sb := s.MustCreate(templated)
		if s.FromTemplate(sb.ID) {
			t.Error("the sandbox comes from a template that is damaged")
		}
		cells{t, s.Client, sb.ID}.value("python", "import sys\n'pandas' in sys.modules", "False")
		if left, err = os.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
		if n := s.Metric(`modbox_template_restores_total{outcome="failed"}`); n > 3 {
			t.Fatalf("%v restores failed, and the template is still there", n)
		}
	}
	if n := s.Metric(`modbox_template_restores_total{outcome="failed"}`); n < 1 {
		t.Errorf("%v restores failed, want some", n)
	}
}

// TestPoolFromTemplate: boxes of the pool are restored from the template of their kind.
func TestPoolFromTemplate(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "1")
	demandTemplate(t, s, templated)
	hits := func() float64 { return s.Metric(`modbox_template_restores_total{outcome="hit"}`) }
	var sb *client.Sandbox
	for deadline, before := time.Now().Add(5*time.Minute), hits(); ; {
		sb = s.MustCreate(templated)
		if s.FromPool(sb.ID) && hits() > before {
			break
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("no sandbox was given a restored box of the pool in five minutes")
		}
	}
	o := templated
	o.Name, o.Env = "named", map[string]string{"WHO": "me"}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		sb = s.MustCreate(o)
		if s.FromPool(sb.ID) {
			break
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("no named sandbox was given a box of the pool in five minutes")
		}
	}
	c := cells{t, s.Client, sb.ID}
	c.value("python", "import os, sys\n'pandas' in sys.modules, os.environ['WHO'], os.uname().nodename", "(True, 'me', 'named')")
	// The agent, which keeps CAP_SYS_ADMIN until it has the host name, has it no more.
	const admin = `for p in 1 self; do echo $((0x$(awk '/CapPrm/ { print $2 }' /proc/$p/status) >> 21 & 1)); done`
	if res := s.Bash(sb.ID, admin, time.Minute); string(res.Stdout) != "0\n0\n" {
		t.Errorf("processes with CAP_SYS_ADMIN: %+v", res)
	}
}
