package hostile_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// rig is a server with a neighbour that must not notice anything.
type rig struct {
	*testserver.Server
	t         *testing.T
	neighbour string
}

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	s := testserver.Start(t, args...)
	r := &rig{Server: s, t: t}
	r.neighbour = s.MustCreate(client.CreateOptions{Name: "neighbour"}).ID
	return r
}

// victim makes the sandbox that misbehaves: small, so that its limits are reached soon.
func (r *rig) victim() string {
	r.t.Helper()
	return r.MustCreate(client.CreateOptions{
		Name:      "victim",
		Resources: client.Resources{Memory: "256Mi", CPU: "1", Disk: "512Mi"},
	}).ID
}

// healthy asserts that the server and the neighbour answer.
func (r *rig) healthy() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	res, err := r.Sandboxes.Exec(ctx, r.neighbour, client.Command{Argv: []string{"echo", "fine"}})
	if err != nil || res.ExitCode != 0 || string(res.Stdout) != "fine\n" {
		r.t.Errorf("neighbour: exec echo = %+v, %v", res, err)
	}
}

// alive asserts that the victim still answers commands. The memory of a killed process is released
// a moment after its end: until then others are killed also.
func (r *rig) alive(id string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	for {
		res, err := r.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"true"}})
		if err == nil && res.ExitCode == 0 {
			return
		}
		if err != nil || res.ExitCode != 128+int(syscall.SIGKILL) {
			r.t.Errorf("victim: exec true = %+v, %v", res, err)
			return
		}
	}
}

// gone destroys the victim and asserts that nothing of it remains.
func (r *rig) gone(id string) {
	r.t.Helper()
	if _, err := r.Sandboxes.Delete(r.t.Context(), id); err != nil {
		r.t.Errorf("destroy the victim: %v", err)
	}
	for _, line := range r.Left(id) {
		r.t.Errorf("left of the victim: %s", line)
	}
	r.healthy()
}

func TestForkBomb(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	_, err := r.Sandboxes.Exec(t.Context(), id, client.Command{
		Argv:    []string{"/bin/bash", "-c", `bomb() { bomb | bomb & }; bomb; sleep 60`},
		Timeout: 5 * time.Second,
	})
	// The command may end by its timeout, or the sandbox for lack of memory; the error reports
	// either.
	if err != nil && !client.IsCode(err, "ended") && !client.IsCode(err, "agent_unreachable") {
		t.Errorf("fork bomb: %v, want a result, ended or agent_unreachable", err)
	}
	r.healthy()
	r.gone(id)
}

func TestProcessLimitIsToldToTheGuest(t *testing.T) {
	r := newRig(t, "--sandbox-max-processes", "500") // the default of 4096 takes minutes to reach
	id := r.MustCreate(client.CreateOptions{Resources: client.Resources{Memory: "1Gi", CPU: "2"}}).ID
	res := r.Bash(id, `exec python3 -c '
import os
n = 0
try:
    while n < 600:
        os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
        n += 1
    print("no limit")
except OSError as e:
    print(n, e.strerror)
'`, 5*time.Minute)
	if !strings.Contains(string(res.Stdout), "Resource temporarily unavailable") {
		t.Errorf("600 processes: %q %.300q, want EAGAIN at the process limit", res.Stdout, res.Stderr)
	}
	r.alive(id)
	r.gone(id)
}

func TestMemoryBombKillsItselfOnly(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	res := r.Bash(id, `python3 -c 'b = bytearray(2 << 30); print(len(b))'`, 60*time.Second)
	if res.ExitCode == 0 {
		t.Errorf("2 GiB in a sandbox of 256 MiB: exit code 0, stdout %q", res.Stdout)
	}
	r.alive(id)
	r.gone(id)
}

func TestManyMemoryHogsEndWithACause(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	// Many small processes: none is the obvious one to kill.
	_, _ = r.Sandboxes.Exec(t.Context(), id, client.Command{
		Argv:    []string{"/bin/bash", "-c", `for i in $(seq 60); do python3 -c 'b = bytearray(30 << 20); import time; time.sleep(30)' & done; wait`},
		Timeout: 40 * time.Second,
	})
	// It answers again, or has ended, which is reported a moment after its command's end.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		sb, err := r.Sandboxes.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if sb.State != client.Running {
			if sb.Cause == nil || sb.Cause.Code != "oom" {
				t.Errorf("sandbox over its memory: state %s, cause %+v, want running or cause oom", sb.State, sb.Cause)
			}
			break
		}
		if res, err := r.Sandboxes.Exec(ctx, id, client.Command{Argv: []string{"true"}}); err == nil && res.ExitCode == 0 {
			break
		}
	}
	r.gone(id)
}

func TestDiskFiller(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	for _, dir := range []string{"/workspace", "/tmp", "/dev/shm", "/var/tmp"} {
		res := r.Bash(id, `head -c 3G /dev/zero > `+dir+`/fill; du -m `+dir+`/fill`, 5*time.Minute)
		if !strings.Contains(string(res.Stderr), "No space left on device") {
			t.Errorf("3 GiB into %s: stderr %q, stdout %q, want No space left on device", dir, res.Stderr, res.Stdout)
		}
		r.alive(id)
	}
	// Full everywhere, and still it can be used and cleaned.
	if res := r.Bash(id, `rm /workspace/fill && echo ok > /workspace/x && cat /workspace/x`, time.Minute); string(res.Stdout) != "ok\n" {
		t.Errorf("after freeing space: %+v", res)
	}
	r.gone(id)
}

func TestManySmallFiles(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	// Each file costs memory of the guest kernel; it must not end the neighbour or the host.
	_, err := r.Sandboxes.Exec(t.Context(), id, client.Command{
		Argv:    []string{"python3", "-c", "import os\nos.makedirs('/workspace/many')\nfor i in range(300000): os.close(os.open(f'/workspace/many/{i}', os.O_CREAT))"},
		Timeout: time.Minute,
	})
	if err != nil && !client.IsCode(err, "ended") && !client.IsCode(err, "agent_unreachable") {
		t.Errorf("300000 files: %v", err)
	}
	r.healthy()
	r.gone(id)
}

func TestFileDescriptorExhaustion(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	res := r.Bash(id, `ulimit -n; python3 -c '
import os
n = 0
try:
    while True:
        os.open("/dev/null", os.O_RDONLY); n += 1
except OSError as e:
    print(n, e.strerror)
'`, time.Minute)
	if !strings.Contains(string(res.Stdout), "Too many open files") {
		t.Errorf("opening files for ever: %q %q, want Too many open files", res.Stdout, res.Stderr)
	}
	r.alive(id)
	r.gone(id)
}

func TestProcessThatIgnoresSIGTERM(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	res := r.Bash(id, `trap "" TERM HUP INT; while :; do sleep 600; done`, 2*time.Second)
	if !res.TimedOut {
		t.Errorf("endless command: %+v, want timed_out", res)
	}
	r.noneLeft(id, "sleep")
	r.gone(id)
}

// noneLeft waits until no process of that name lives in the sandbox.
func (r *rig) noneLeft(id, name string) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		res := r.Bash(id, "pgrep -c "+name, time.Minute)
		if strings.TrimSpace(string(res.Stdout)) == "0" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%q processes called %s go on", res.Stdout, name)
		}
	}
}

func TestDeletingTheAgentsFiles(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	exe := r.asRoot(id, `readlink /proc/1/exe`)
	res := r.asRootResult(id, `rm -rf "$(dirname "$(readlink /proc/1/exe)")"; rm -rf /.modbox; mv /.modbox /gone; mount -t tmpfs none /.modbox; umount -l /.modbox; echo > "$(readlink /proc/1/exe)"`)
	if res.ExitCode == 0 {
		t.Errorf("overwriting the agent %s worked: %+v", exe, res)
	}
	r.alive(id)
	r.gone(id)
}

func TestDeletingEverything(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	r.asRootResult(id, `rm -rf --no-preserve-root / 2>/dev/null`)
	// Nothing can run any more, and the caller gets that as the error.
	res, err := r.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", "true"}})
	if err == nil && res.ExitCode == 0 {
		t.Errorf("bash after rm -rf /: %+v, want an error", res)
	}
	// The image's user is looked up first.
	if err != nil && !client.IsCode(err, client.Invalid) && !client.IsCode(err, client.ProgramNotFound) {
		t.Errorf("bash after rm -rf /: %v, want code invalid or program_not_found", err)
	}
	r.gone(id)
}

func TestKillingTheAgent(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	for _, line := range []string{"kill -9 1", "kill -STOP 1", "kill -SEGV 1"} {
		if res := r.asRootResult(id, line); res.ExitCode == 0 {
			t.Errorf("%q succeeded; PID 1 is protected from signals to its process id", line)
		}
	}
	r.alive(id)
	// A signal to one of its other threads is delivered.
	_, _ = r.Sandboxes.Exec(t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", "kill -9 $(ls /proc/1/task | grep -vx 1 | head -n 1); sleep 60"}, User: "root", Timeout: 10 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	sb, err := r.Sandboxes.Wait(ctx, id, client.Destroyed)
	if err != nil || !sb.State.Ended() || sb.Cause == nil || sb.Cause.Code != "exited" {
		t.Errorf("after PID 1 was killed: %+v, error %v, want cause exited", sb, err)
	}
	r.gone(id)
}

// asRoot runs a line as root and returns its output, trimmed.
func (r *rig) asRoot(id, line string) string {
	r.t.Helper()
	return strings.TrimSpace(string(r.asRootResult(id, line).Stdout))
}

func (r *rig) asRootResult(id, line string) *client.ExecResult {
	r.t.Helper()
	res, err := r.Sandboxes.Exec(r.t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", line}, User: "root", Timeout: 2 * time.Minute})
	if err != nil {
		r.t.Fatalf("exec %q as root: %v", line, err)
	}
	return res
}
