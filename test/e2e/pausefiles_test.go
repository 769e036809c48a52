package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// keptFiles writes, links, owns and deletes files in a sandbox, whose state keptListing shows.
const keptFiles = `set -e
mkdir -p /srv/deep /srv/empty /var/keep
head -c 9000000 /dev/urandom > /srv/big; truncate -s 50M /srv/holes; printf end >> /srv/holes
echo data > /srv/deep/file; ln -s deep /srv/link; ln /srv/deep/file /srv/hard; mkfifo -m 620 /srv/pipe
cp /bin/true /srv/suid; chmod 4755 /srv/suid; chmod 1777 /var/keep; chmod 711 /srv/deep
chown 1234:4321 /srv/deep/file; chown -h 77:88 /srv/link; touch -d '2001-02-03 04:05:06' /srv/empty
rm /etc/motd /etc/issue; echo mine >> /etc/hosts.allow; rm -rf /usr/share/doc; mkdir /usr/share/doc; touch /usr/share/doc/only
rm -rf /usr/share/common-licenses; echo file > /usr/share/common-licenses
echo lost > /tmp/scratch; echo lost > /dev/shm/scratch`

// keptListing describes the files that keptFiles changed.
const keptListing = `cd / && find srv var/keep usr/share/doc usr/share/common-licenses etc/hosts.allow -printf '%p %y %m %U:%G %l\n' | sort
find srv etc/hosts.allow -type f -printf '%p %n %s\n' | sort
stat -c %.9Y /srv/empty; sha256sum /srv/big /srv/holes /srv/suid /etc/hosts.allow; ls /etc/motd /etc/issue 2>&1; cat /usr/share/common-licenses`

// TestPauseWithoutMemory pauses a sandbox without its memory, over the death of the server, and finds everything
// but its processes and its temporary files.
func TestPauseWithoutMemory(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Env: map[string]string{"ROLE": "worker"}, TTL: time.Hour})
	asRoot := func(script string) string {
		t.Helper()
		out, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{User: "root", Argv: []string{"bash", "-c", script}})
		if err != nil || out.ExitCode != 0 {
			t.Fatalf("%q = %+v, %v", script, out, err)
		}
		return string(out.Stdout)
	}
	asRoot(keptFiles)
	want := asRoot(keptListing)
	job, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Shell: "trap 'echo bye; exit 3' TERM; sleep 100000 & echo ready; while :; do wait; done"}, client.ExecutionOptions{})
	for ; err == nil && job.Stdout.SizeBytes == 0; time.Sleep(20 * time.Millisecond) { // until its trap is set
		job, err = s.Executions.Get(t.Context(), job.ID, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		begin := time.Now()
		paused, err := s.Sandboxes.PauseWithoutMemory(t.Context(), sb.ID)
		if err != nil || paused.State != client.Paused || !paused.PausedWithoutMemory {
			t.Fatalf("pause without memory = %+v, %v", paused, err)
		}
		t.Logf("paused after %v", time.Since(begin))
		if images, err := filepath.Glob(filepath.Join(s.StateDir, "checkpoints", sb.ID, "*", "pages.img")); err != nil || len(images) != 0 {
			t.Errorf("memory was saved: %v, %v", images, err)
		}
		if round == 1 {
			s.Kill()
			s.Launch()
		}
		begin = time.Now()
		if d := cmp.Diff(want, asRoot(keptListing)); d != "" { // resumes it
			t.Fatalf("round %d: the files differ (-want +got):\n%s", round, d)
		}
		t.Logf("resumed after %v", time.Since(begin))
		if out := asRoot("echo $ROLE; ls /tmp/scratch /dev/shm/scratch 2>/dev/null; pgrep -fc '[w]hile :' || true"); out != "worker\n0\n" {
			t.Errorf("round %d: the sandbox has %q, want its environment, and neither temporary files nor processes", round, out)
		}
		now, err := s.Sandboxes.Get(t.Context(), sb.ID)
		if err != nil || now.State != client.Running || now.PausedWithoutMemory || !strings.Contains(now.MemoryLostReason, "without its memory") || now.ImageDigest != sb.ImageDigest ||
			now.Deadline == nil || !now.Deadline.Equal(*sb.Deadline) {
			t.Errorf("round %d: after the resume %+v, %v; before %+v", round, now, err, sb)
		}
	}
	e, err := s.Executions.Get(t.Context(), job.ID, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if e.State != client.ExecutionCancelled || e.ExitCode == nil || !strings.Contains(e.Error, "without its memory") {
		t.Errorf("the execution that the pause ended: %+v", e)
	} else if *e.ExitCode != 3 {
		t.Errorf("the execution that the pause ended has the exit code %d, want 3, of its trap", *e.ExitCode)
	}
	if _, err := s.Sandboxes.PauseWithoutMemory(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: client.MemoryRequire}); !client.IsCode(err, client.Unsupported) {
		t.Errorf("resume that requires the memory = %v, want code unsupported", err)
	}
	children, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{Count: 2, Env: map[string]string{"ROLE": "child"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range children {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		out, err := s.Sandboxes.Exec(t.Context(), c.Sandbox.ID, client.Command{User: "root", Argv: []string{"bash", "-c", "echo $ROLE; " + keptListing}})
		if err != nil || string(out.Stdout) != "child\n"+want {
			t.Errorf("a fork has %q, %v", out.Stdout, err)
		}
	}
	if now, err := s.Sandboxes.Get(t.Context(), sb.ID); err != nil || now.State != client.Paused {
		t.Errorf("after the fork it is %+v, %v", now, err)
	}
}

// TestPauseWithoutMemoryStartsTheMainCommand finds the image's own command running again.
func TestPauseWithoutMemoryStartsTheMainCommand(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/data"})
	states := func(when string, want ...client.ExecutionState) {
		t.Helper()
		var got []client.ExecutionState
		var err error
		for end := time.Now().Add(time.Minute); time.Now().Before(end) && err == nil && !slices.Equal(got, want); time.Sleep(20 * time.Millisecond) {
			var list []client.Execution
			list, err = s.Executions.List(sb.ID, "main").Collect(t.Context())
			got = nil
			for _, e := range list {
				got = append(got, e.State)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s the main commands are %v, %v, want %v", when, got, err, want)
		}
	}
	states("at first", client.ExecutionRunning)
	if _, err := s.Sandboxes.PauseWithoutMemory(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	states("in the pause", client.ExecutionCancelled)
	s.Bash(sb.ID, "true", time.Minute)
	states("after the resume", client.ExecutionRunning, client.ExecutionCancelled) // the newest first
}

// TestKilledInAPauseWithoutMemory kills the server at several moments of a pause and of a resume.
func TestKilledInAPauseWithoutMemory(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	s.Bash(sb.ID, "head -c 30000000 /dev/urandom > ~/big; sha256sum ~/big > ~/sum; (trap '' TERM; while :; do sleep 1; done) >/dev/null 2>&1 &", time.Minute)
	for _, after := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond, 2200 * time.Millisecond} {
		for what, do := range map[string]func(context.Context) error{
			"pause": func(ctx context.Context) error { _, err := s.Sandboxes.PauseWithoutMemory(ctx, sb.ID); return err },
			"resume": func(ctx context.Context) error {
				_, err := s.Sandboxes.Resume(ctx, sb.ID, client.ResumeOptions{})
				return err
			},
		} {
			if what == "resume" {
				if _, err := s.Sandboxes.PauseWithoutMemory(t.Context(), sb.ID); err != nil {
					t.Fatal(err)
				}
			} else if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- do(ctx) }()
			time.Sleep(after)
			s.Kill()
			cancel()
			<-done
			s.Launch()
			now, err := s.Sandboxes.Get(t.Context(), sb.ID)
			for end := time.Now().Add(time.Minute); err == nil && now.State == client.Pausing && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				now, err = s.Sandboxes.Get(t.Context(), sb.ID) // the server goes on with the pause in the background
			}
			if err != nil || now.State != client.Running && now.State != client.Paused {
				t.Fatalf("%s, killed after %v: %+v, %v", what, after, now, err)
			}
			t.Logf("%s, killed after %v: %s", what, after, now.State)
			if res := s.Bash(sb.ID, "sha256sum -c ~/sum", time.Minute); res.ExitCode != 0 {
				t.Errorf("%s, killed after %v: %s%s", what, after, res.Stdout, res.Stderr)
			}
		}
	}
	if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.StateDir, "checkpoints")); err != nil || len(left) > 1 { // "forks"
		t.Errorf("left of saved states: %v, %v", left, err)
	}
}
