package gvisor_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/sandbox"
)

// built has the files that all tests of this package share; TestMain makes them.
var built struct{ sandbox, agent, rootfs string }

func TestMain(m *testing.M) {
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (int, error) {
	if made := strings.Split(os.Getenv(rootlessChild), ":"); len(made) == 3 {
		built.sandbox, built.agent, built.rootfs = made[0], made[1], made[2]
		return m.Run(), nil
	}
	if !gvisortest.Wanted() {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "gvisor-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the rootless test reads it as another user
		return 0, err
	}
	if built.sandbox, built.agent, err = gvisortest.Binaries(dir); err != nil {
		return 0, err
	}
	if built.rootfs, err = gvisortest.RootFS(dir); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

const mib = 1 << 20

// Two boxes: the writable layer of inMemory is in memory, the layer of onDisk is on disk.
var (
	inMemory = sandbox.Resources{MemoryBytes: 256 * mib, CPUMilli: 2000, DiskBytes: 32 * mib}
	onDisk   = sandbox.Resources{MemoryBytes: 256 * mib, CPUMilli: 2000, DiskBytes: 128 * mib}
)

// testTimeout is how long a test waits for an event. Nothing takes so long unless it never happens.
const testTimeout = 5 * time.Minute

// rig is a driver and its directories.
type rig struct {
	*gvisor.Driver
	cfg gvisor.Config
}

// testPlatform returns the platform of the boxes in the tests.
func testPlatform() platform.Name { return platform.Name(os.Getenv("MODBOX_TEST_PLATFORM")) }

// newRig makes a driver of an installation of its own. After the test nothing of it may remain on
// the host.
func newRig(t *testing.T) *rig {
	t.Helper()
	gvisortest.Need(t)
	dir := t.TempDir()
	r := &rig{cfg: gvisor.Config{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		SandboxBinary: built.sandbox, AgentBinary: built.agent, Platform: testPlatform(),
		Logger: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	}}
	r.open(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		ids, err := r.List(ctx)
		if err != nil {
			t.Errorf("List: %v", err)
		}
		for _, id := range ids {
			if err := r.Destroy(ctx, id); err != nil {
				t.Errorf("Destroy(%s): %v", id, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		eventually(t, "nothing is left on the host", func() error {
			if left := append(leftovers(t, r.cfg), ownGroups(r.cfg)...); len(left) > 0 {
				return errors.New(strings.Join(left, "\n"))
			}
			return nil
		})
	})
	return r
}

func (r *rig) open(t *testing.T) {
	t.Helper()
	d, err := gvisor.New(r.cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	r.Driver = d
}

// reopen restarts the server.
func (r *rig) reopen(t *testing.T) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	r.open(t)
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// guest is a running box whose agent answers.
type guest struct {
	t      *testing.T
	id     sandbox.ID
	handle driver.Handle
	driver *gvisor.Driver
	agent  *agentapi.Client
}

func (r *rig) start(t *testing.T, spec driver.Spec) *guest {
	t.Helper()
	h, err := r.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	if err := r.Start(t.Context(), spec.ID); err != nil {
		t.Fatalf("Start: %v", err)
	}
	return r.connect(t, spec.ID, h)
}

func (r *rig) connect(t *testing.T, id sandbox.ID, h driver.Handle) *guest {
	t.Helper()
	d := r.Driver
	g := &guest{t: t, id: id, handle: h, driver: d}
	g.agent = agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id, driver.AgentPort) })
	t.Cleanup(func() { g.agent.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	eventually(t, "the agent answers", func() error {
		_, err := g.agent.Health(ctx)
		if err != nil {
			g.mustRun()
		}
		return err
	})
	return g
}

// mustRun fails the test when the box has ended.
func (g *guest) mustRun() {
	g.t.Helper()
	ended, cancel := context.WithCancel(g.t.Context())
	cancel()
	if exit, err := g.driver.Wait(ended, g.id); err == nil {
		g.t.Fatalf("the box has ended: %+v", exit)
	}
}

// eventually calls fn until it succeeds.
func eventually(t *testing.T, what string, fn func() error) {
	t.Helper()
	deadline := time.After(testTimeout)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := fn()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s: never, at last: %v", what, err)
		case <-again.C:
		}
	}
}

// try runs a shell command in the box and returns its output and exit code.
func (g *guest) try(command, user string) (string, int, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), testTimeout)
	defer cancel()
	s, err := g.agent.Exec(ctx, agentapi.Command{
		Argv: []string{"/bin/sh", "-c", command}, User: user, Env: map[string]string{"PATH": "/bin"},
	})
	if err != nil {
		return "", 0, err
	}
	defer s.Close()
	var out strings.Builder
	code := -1
	for {
		f, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return strings.TrimSpace(out.String()), code, nil
		case err != nil:
			return out.String(), code, err
		case f.Type == agentapi.FrameStdout || f.Type == agentapi.FrameStderr:
			out.Write(f.Data)
		case f.Exit != nil:
			code = f.Exit.Code
		}
	}
}

// sh runs a shell command as root; it fails the test if the command cannot run.
func (g *guest) sh(command string) (string, int) {
	g.t.Helper()
	out, code, err := g.try(command, "")
	if err != nil {
		g.t.Fatalf("sh %q: %v (output %q)", command, err, out)
	}
	return out, code
}

// must runs a shell command that must succeed and returns its output.
func (g *guest) must(command string) string {
	g.t.Helper()
	out, code := g.sh(command)
	if code != 0 {
		g.t.Fatalf("sh %q: exit code %d, output %q", command, code, out)
	}
	return out
}

// ownGroups lists the control groups of the driver itself, which disappear when it is closed and
// has no boxes.
func ownGroups(cfg gvisor.Config) []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		groups, _ := filepath.Glob(pattern + gvisor.Installation(cfg.RunDir))
		found = append(found, groups...)
	}
	return found
}

// leftovers lists what remains of a driver's boxes on the host: processes, mounts, control groups,
// sockets and files.
func leftovers(t *testing.T, cfg gvisor.Config) []string {
	t.Helper()
	var left []string
	for _, p := range processesOf(cfg) {
		left = append(left, fmt.Sprintf("process %d", p))
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, cfg.RunDir) || strings.Contains(line, cfg.StateDir) {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	for _, group := range ownGroups(cfg) {
		boxes, _ := filepath.Glob(group + "/*/")
		left = append(left, boxes...)
	}
	for _, pattern := range []string{filepath.Join(cfg.RunDir, "boxes", "*"), filepath.Join(cfg.StateDir, "layers", "*")} {
		found, _ := filepath.Glob(pattern)
		left = append(left, found...)
	}
	return left
}

// processesOf lists the host processes that name the installation on their command line.
func processesOf(cfg gvisor.Config) []int {
	var pids []int
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte("--root="+cfg.RunDir+"\x00")) {
			var pid int
			fmt.Sscanf(name, "/proc/%d/cmdline", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// wantCode fails unless err has the code.
func wantCode(t *testing.T, what string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Errorf("%s: error %v has code %q, want %q", what, err, got, want)
	}
}

func md5sum(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }
