package hostile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// TestRootKillsPID1 has root in a sandbox kill PID 1, before and after a pause. The
// sandbox and its files stay.
func TestRootKillsPID1(t *testing.T) {
	r := newRig(t)
	sb := r.MustCreate(client.CreateOptions{})
	const attack = `echo precious > /workspace/file
for s in KILL STOP SEGV ABRT SYS BUS TERM INT; do sudo kill -$s 1; echo $s $?; done 2>&1
sudo python3 -c 'import os, signal; os.kill(1, signal.SIGKILL)' 2>&1 | tail -1
sudo python3 -c 'import signal; signal.pidfd_send_signal(__import__("os").pidfd_open(1), signal.SIGKILL)' 2>&1 | tail -1
sudo python3 - <<'END' 2>&1
import ctypes, platform, signal
libc = ctypes.CDLL(None, use_errno=True)
numbers = {
    'x86_64': dict(tkill=200, tgkill=234, rt_sigqueueinfo=129, rt_tgsigqueueinfo=297, ptrace=101),
    'aarch64': dict(tkill=130, tgkill=131, rt_sigqueueinfo=138, rt_tgsigqueueinfo=240, ptrace=117),
}[platform.machine()]
info = ctypes.create_string_buffer(128)
for name, args in dict(
    tkill=(1, signal.SIGKILL), tgkill=(1, 1, signal.SIGKILL), rt_sigqueueinfo=(1, signal.SIGKILL, info),
    rt_tgsigqueueinfo=(1, 1, signal.SIGKILL, info), ptrace=(16, 1, 0, 0),
).items():
    print('call', name, libc.syscall(numbers[name], *args), ctypes.get_errno())
END
# PID 1 of a namespace of the user's is a process of the user.
unshare -Urpf bash -c 'bash -c "kill -9 1"; echo nested PID 1 lives'; echo nested $?
sudo kill -9 -1
`
	for _, when := range []string{"new", "resumed"} {
		if when == "resumed" {
			if _, err := r.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
				t.Fatal(err)
			}
		}
		// The last line ends the shell itself.
		res, err := r.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"/bin/bash", "-c", attack}, Timeout: 5 * time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		for _, refused := range []string{"KILL 1", "STOP 1", "SEGV 1", "ABRT 1", "SYS 1", "BUS 1"} {
			if !strings.Contains(string(res.Stdout), refused+"\n") {
				t.Errorf("%s: output has no %q: %s", when, refused, res.Stdout)
			}
		}
		for _, call := range []string{"tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "ptrace"} {
			if !strings.Contains(string(res.Stdout), "call "+call+" -1 1\n") {
				t.Errorf("%s: %s does not fail with EPERM: %s", when, call, res.Stdout)
			}
		}
		if out := string(res.Stdout); !strings.Contains(out, "nested 137\n") || strings.Contains(out, "nested PID 1 lives") {
			t.Errorf("%s: PID 1 of another namespace cannot be killed: %s", when, out)
		}
		if n := strings.Count(string(res.Stdout), "PermissionError"); n != 2 {
			t.Errorf("%s: %d calls of Python failed for permission, want 2: %s", when, n, res.Stdout)
		}
		after := r.Bash(sb.ID, "cat /workspace/file; sleep 100 & kill -9 $! && wait $!; echo $?", time.Minute)
		if got, want := string(after.Stdout), "precious\n137\n"; got != want {
			t.Errorf("%s: afterwards %q, want %q", when, got, want)
		}
	}
	if got, err := r.Sandboxes.Get(t.Context(), sb.ID); err != nil || got.State != client.Running {
		t.Errorf("the sandbox is %+v, %v, want running", got, err)
	}
}
