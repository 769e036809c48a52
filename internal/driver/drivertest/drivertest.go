package drivertest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Env is a host with one driver on it, for one test.
type Env struct {
	// Driver is new: it knows no box, and its host has none.
	Driver driver.Driver
	// Spec returns the spec of a new box with a new ID. Its limits should be small: at most 256 MiB
	// of memory, 128 MiB of disk and 512 processes.
	Spec func() driver.Spec
	// Reopen closes a driver and returns a new one over the same host, as after a
	// restart of the server. It closes the new one when the test ends.
	Reopen func(t *testing.T, old driver.Driver) driver.Driver
	// Leftovers names everything on the host that belongs to the driver's boxes: processes, mounts,
	// cgroups, files. It is called when all boxes are destroyed; nil means that List is complete.
	Leftovers func(t *testing.T) []string
	// ForksFilesOnly is whether a checkpoint restores memory only once, and only under the ID of
	// the box that was saved and stopped.
	ForksFilesOnly bool
	// Blank is whether started boxes begin blank and are furnished, see [driver.Furnisher].
	Blank bool
	// Bulk is the number of bytes, a multiple of 32 KiB, that a connection carries in tests of many bytes; 0 means 64 MiB. A second
	// run over the same connections, on boxes or a network that differ otherwise, may have fewer: with the race detector each byte takes long.
	Bulk int64
}

const (
	// testTimeout bounds everything that should take milliseconds.
	testTimeout = 5 * time.Minute
	// guestDir is the directory of the guest program in a box.
	guestDir = "/modboxtest"
)

// suite is a run of the contract.
type suite struct {
	newEnv func(t *testing.T) Env
	guest  string // host path of the guest program
}

// Run runs the contract. newEnv makes a host and a driver for one test and
// removes them by t.Cleanup.
func Run(t *testing.T, newEnv func(t *testing.T) Env) {
	s := &suite{newEnv: newEnv, guest: buildGuest(t)}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *host)
	}{
		{"Capabilities", testCapabilities},
		{"Life", testLife},
		{"CreateTwice", testCreateTwice},
		{"CreateInvalid", testCreateInvalid},
		{"CreateRunsNothing", testCreateRunsNothing},
		{"StartTwice", testStartTwice},
		{"UnknownBox", testUnknownBox},
		{"DestroyInEveryState", testDestroyInEveryState},
		{"DestroyEndsConnections", testDestroyEndsConnections},
		{"WaitForDestroy", testWaitForDestroy},
		{"WaitContext", testWaitContext},
		{"EndFromInside", testEndFromInside},
		{"List", testList},
		{"Stats", testStats},
		{"CloseEndsCalls", testCloseEndsCalls},
		{"BoxesAreSeparate", testBoxesAreSeparate},

		{"DialClosedPort", testDialClosedPort},
		{"DialOutlivesContext", testDialOutlivesContext},
		{"Upload", testUpload},
		{"Download", testDownload},
		{"DownloadSlowly", testDownloadSlowly},
		{"Echo", testEcho},
		{"ServerClosesFirst", testServerClosesFirst},
		{"ManyConnections", testManyConnections},
		{"StalledConnections", testStalledConnections},

		{"Recover", testRecover},
		{"RecoverBadHandle", testRecoverBadHandle},
		{"RecoverNeverStarted", testRecoverNeverStarted},
		{"RecoverDestroyed", testRecoverDestroyed},
		{"NotRecovered", testNotRecovered},

		{"ConcurrentBoxes", testConcurrentBoxes},
		{"ConcurrentStarts", testConcurrentStarts},
		{"ConcurrentDestroys", testConcurrentDestroys},
		{"DialsWhileDestroying", testDialsWhileDestroying},
		{"DeadContext", testDeadContext},
		{"ContextsEndAnywhere", testContextsEndAnywhere},

		{"DiskLimit", testDiskLimit},
		{"ProcessLimit", testProcessLimit},
		{"MemoryLimit", testMemoryLimit},

		{"CheckpointGoesOn", testCheckpointGoesOn},
		{"CheckpointStops", testCheckpointStops},
		{"CheckpointTaken", testCheckpointTaken},
		{"CheckpointLayer", testCheckpointLayer},
		{"CheckpointFilesOnly", testCheckpointFilesOnly},
		{"CheckpointFilesOnlyRefused", testCheckpointFilesOnlyRefused},
		{"Fork", testFork},
		{"CheckpointRefused", testCheckpointRefused},
		{"CheckpointContextsEnd", testCheckpointContextsEnd},
		{"CheckpointWhileDestroying", testCheckpointWhileDestroying},
		{"RestoreRefused", testRestoreRefused},
		{"RestoreContextsEnd", testRestoreContextsEnd},

		{"Furnish", testFurnish},
		{"FurnishAfterRestart", testFurnishAfterRestart},
		{"FurnishContextsEnd", testFurnishContextsEnd},

		{"WriteLayer", testWriteLayer},
		{"WriteNames", testWriteNames},
		{"Plug", testPlug},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s.host(t)) })
	}
}

// buildGuest compiles the guest program.
func buildGuest(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "guest")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "github.com/modbox/modbox/internal/driver/drivertest/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest program: %v\n%s", err, msg)
	}
	return out
}

// host is an Env in use.
type host struct {
	Env
	guest string
}

// host makes an Env and checks at the end that nothing remains on it.
func (s *suite) host(t *testing.T) *host {
	t.Helper()
	h := &host{Env: s.newEnv(t), guest: s.guest}
	h.Bulk = cmp.Or(h.Bulk, usualBulk)
	t.Cleanup(func() { h.checkEmpty(t) })
	return h
}

// checkEmpty destroys all boxes, and checks that nothing remains.
func (h *host) checkEmpty(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for _, id := range h.list(ctx, t) {
		if err := h.Driver.Destroy(ctx, id); err != nil {
			t.Errorf("Destroy(%s) = %v", id, err)
		}
	}
	if left := h.list(ctx, t); len(left) > 0 {
		t.Errorf("List() = %v after all boxes were destroyed", left)
	}
	if h.Leftovers == nil {
		return
	}
	if left := h.Leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

func (h *host) list(ctx context.Context, t *testing.T) []sandbox.ID {
	t.Helper()
	ids, err := h.Driver.List(ctx)
	if err != nil {
		t.Fatalf("List() = %v", err)
	}
	return ids
}

// restart replaces the driver by a new one over the same host.
func (h *host) restart(t *testing.T) {
	t.Helper()
	h.Driver = h.Reopen(t, h.Driver)
}

// box is a box of a test.
type box struct {
	h      *host
	id     sandbox.ID
	spec   driver.Spec
	handle driver.Handle
	client *agentapi.Client
}

// create makes a box.
func (h *host) create(t *testing.T) *box {
	t.Helper()
	return h.createOf(t, h.Spec())
}

func (h *host) createOf(t *testing.T, spec driver.Spec) *box {
	t.Helper()
	b := &box{h: h, spec: spec, id: spec.ID}
	handle, err := h.Driver.Create(within(t), b.spec)
	if err != nil {
		t.Fatalf("Create() = %v", err)
	}
	if len(handle) == 0 || len(handle) > 4<<10 {
		t.Errorf("Create() gave a handle of %d bytes, want 1 to 4096", len(handle))
	}
	b.handle = handle
	return b
}

// start makes a box, starts it, and waits for its agent.
func (h *host) start(t *testing.T) *box {
	t.Helper()
	if h.Blank {
		spec := h.Spec()
		b := h.startBlank(t)
		b.furnish(t, spec.RootFS)
		return b
	}
	b := h.create(t)
	b.start(t)
	return b
}

// start starts a box and waits for its agent.
func (b *box) start(t *testing.T) {
	t.Helper()
	if err := b.h.Driver.Start(within(t), b.id); err != nil {
		t.Fatalf("Start() = %v", err)
	}
	b.connect(t)
}

// connect waits until the box's agent answers.
func (b *box) connect(t *testing.T) {
	t.Helper()
	b.client = agentapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		return b.h.Driver.Dial(ctx, b.id, driver.AgentPort)
	})
	t.Cleanup(func() { b.client.Close() })
	eventually(t, "the agent answers", func() error {
		_, err := b.client.Health(within(t))
		return err
	})
}

// within returns a context with testTimeout.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// eventually calls f until it succeeds.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within %v: %s: %v", testTimeout, what, err)
		}
	}
}

// wantCode checks an error's code.
func wantCode(t *testing.T, what string, err error, want sandbox.Code) {
	t.Helper()
	if got := sandbox.CodeOf(err); got != want {
		t.Errorf("%s = %v (code %q), want code %q", what, err, got, want)
	}
}

// run starts the guest program in the box.
func (b *box) run(t *testing.T, args ...string) *agentapi.Stream {
	t.Helper()
	path := guestDir + "/guest"
	if _, err := b.client.Stat(within(t), path); err != nil {
		f, err := os.Open(b.h.guest)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := b.client.WriteFile(within(t), path, f, agentapi.WriteOptions{Mode: 0o755, Parents: true}); err != nil {
			t.Fatalf("put the guest program into the box: %v", err)
		}
	}
	s, err := b.client.Exec(t.Context(), agentapi.Command{Argv: append([]string{"./guest"}, args...), Cwd: guestDir})
	if err != nil {
		t.Fatalf("run guest %q: %v", args, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// output returns what a guest program prints, and how it exits.
func output(s *agentapi.Stream) (string, *agentapi.Exit, error) {
	var out strings.Builder
	var exit *agentapi.Exit
	for {
		f, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out.String(), exit, nil
		case err != nil:
			return out.String(), nil, err
		case f.Exit != nil:
			exit = f.Exit
		default:
			out.Write(f.Data)
		}
	}
}

// line returns the first line that a guest program prints.
func line(t *testing.T, s *agentapi.Stream) string {
	t.Helper()
	text := ""
	for !strings.HasSuffix(text, "\n") {
		f, err := s.Next()
		if err != nil || f.Exit != nil {
			t.Fatalf("the guest program ended after %q: %+v, %v", text, f.Exit, err)
		}
		text += string(f.Data)
	}
	return strings.TrimSpace(text)
}

// serve runs one of the guest's servers and returns its port.
func (b *box) serve(t *testing.T, args ...string) (uint16, *agentapi.Stream) {
	t.Helper()
	s := b.run(t, args...)
	port, err := strconv.ParseUint(line(t, s), 10, 16)
	if err != nil {
		t.Fatalf("guest %q printed no port: %v", args, err)
	}
	return uint16(port), s
}

// dial connects to a port of the box.
func (b *box) dial(t *testing.T, port uint16) net.Conn {
	t.Helper()
	c, err := b.h.Driver.Dial(within(t), b.id, port)
	if err != nil {
		t.Fatalf("Dial(%d) = %v", port, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
