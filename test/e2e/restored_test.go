package e2e_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// echo is a server on port 7000 with a client in the same sandbox that keeps one
// connection: each line sent is answered, and each answer noted in /tmp/talk with
// the wall clock.
const echo = `
import random, socket, threading, time
srv = socket.create_server(("127.0.0.1", 7000))
def answer(c):
    for line in c.makefile("rb"):
        c.sendall(line)
def serve():
    while True:
        threading.Thread(target=answer, args=(srv.accept()[0],), daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
c = socket.create_connection(("127.0.0.1", 7000)); f = c.makefile("rb"); n = 0
while True:
    n += 1
    c.sendall(b"%d\n" % n)
    if int(f.readline()) != n: raise SystemExit("wrong answer")
    with open("/tmp/talk.new", "w") as out: out.write("%d %.3f %d" % (n, time.time(), c.getsockname()[1]))
    import os; os.rename("/tmp/talk.new", "/tmp/talk")
    time.sleep(0.01)
`

// talk returns what echo has recorded: how many answers, when, and the client's port.
func talk(t *testing.T, s *testserver.Server, id string) (n int, at float64, port string) {
	t.Helper()
	fields := strings.Fields(string(s.Bash(id, "cat /tmp/talk", time.Minute).Stdout))
	if len(fields) != 3 {
		t.Fatalf("sandbox %s: talk %q", id, fields)
	}
	n, err := strconv.Atoi(fields[0])
	if err != nil {
		t.Fatal(err)
	}
	if at, err = strconv.ParseFloat(fields[1], 64); err != nil {
		t.Fatal(err)
	}
	return n, at, fields[2]
}

// wantTalking checks that echo goes on from before, over the same connection, at
// the right time of day.
func wantTalking(t *testing.T, s *testserver.Server, id string, before int, port string) int {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		n, at, now := talk(t, s, id)
		if now != port {
			t.Fatalf("sandbox %s: the connection is another, from port %s, was %s", id, now, port)
		}
		off := time.Since(time.UnixMilli(int64(at * 1000)))
		if n > before && off.Abs() < time.Minute {
			return n
		}
		if time.Now().After(deadline) {
			t.Fatalf("sandbox %s: %d answers, the last %v ago; want more than %d, and the time of day", id, n, off, before)
		}
	}
}

// random returns what a sandbox makes of its sources of randomness.
func random(t *testing.T, s *testserver.Server, id string) []string {
	t.Helper()
	res := s.Bash(id, `head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; echo
python3 -c 'import os, random, ssl; print(os.urandom(16).hex()); print(random.getrandbits(128)); print(ssl.RAND_bytes(16).hex())'`, time.Minute)
	if res.ExitCode != 0 {
		t.Fatalf("randomness of %s: %+v", id, res)
	}
	return strings.Fields(string(res.Stdout))
}

// TestWhatIsRestoredGoesOn takes a process with a server, and a connection to it,
// through a pause, a restart of the server, a checkpoint and forks.
func TestWhatIsRestoredGoesOn(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	if _, err := s.Sandboxes.Files.Write(t.Context(), sb.ID, "/tmp/echo.py", strings.NewReader(echo), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Bash(sb.ID, `setsid nohup python3 /tmp/echo.py >/tmp/log 2>&1 & until [ -s /tmp/talk ]; do sleep 0.05; done`, time.Minute)
	n, _, port := talk(t, s, sb.ID)

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	s.Kill() // and what the host runs has ended, as after its restart
	s.KillBoxes()
	s.Launch()
	n = wantTalking(t, s, sb.ID, n, port)

	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), sb.ID, "here"); err != nil {
		t.Fatal(err)
	}
	wantTalking(t, s, sb.ID, n, port)
	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), sb.ID, "here"); err != nil {
		t.Fatal(err)
	}
	n = wantTalking(t, s, sb.ID, n, port)

	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	ids := []string{sb.ID}
	for _, child := range children {
		if child.Err != nil {
			t.Fatal(child.Err)
		}
		ids = append(ids, child.Sandbox.ID)
	}
	for _, id := range ids {
		wantTalking(t, s, id, n, port)
		for _, r := range random(t, s, id) {
			if seen[r] {
				t.Errorf("sandbox %s drew %s, which another drew", id, r)
			}
			seen[r] = true
		}
	}
	if len(seen) != 4*len(ids) {
		t.Errorf("drew %d numbers, want %d", len(seen), 4*len(ids))
	}
}

// TestLimitsAreVisibleInside reads what programs size themselves by.
func TestLimitsAreVisibleInside(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "256Mi", CPU: "2", Disk: "128Mi"}})
	res := s.Bash(sb.ID, `nproc; awk '/MemTotal/{print $2}' /proc/meminfo; df -k --output=size / | tail -n 1; df -k --output=size /tmp | tail -n 1; ulimit -u`, time.Minute)
	want := "2\n262144\n131072\n65536\n4096\n"
	if got := strings.ReplaceAll(string(res.Stdout), " ", ""); got != want {
		t.Errorf("nproc, memory, disk, /tmp and processes are %q (%s), want %q", got, res.Stderr, want)
	}
}
