package upgrade_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// counting starts a process in a sandbox that counts for ever, and returns its id in the sandbox.
func counting(t *testing.T, s *testserver.Server, ref string) (pid string) {
	t.Helper()
	res := s.Bash(ref, "setsid nohup bash -c 'i=0; while :; do i=$((i+1)); echo $i >/var/tmp/count.new; mv /var/tmp/count.new /var/tmp/count; sleep 0.05; done' >/dev/null 2>&1 & echo $!; while ! [ -s /var/tmp/count ]; do sleep 0.05; done", time.Minute)
	if res.ExitCode != 0 {
		t.Fatalf("start a process: %+v", res)
	}
	return strings.TrimSpace(string(res.Stdout))
}

// count returns how far the process has counted.
func count(t *testing.T, s *testserver.Server, ref string) int {
	t.Helper()
	res := s.Bash(ref, "cat /var/tmp/count", time.Minute)
	n, err := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if err != nil {
		t.Fatalf("the count of %s: %v: %+v", ref, err, res)
	}
	return n
}

// wantCounting fails the test unless the process is the same, and still counts.
func wantCounting(t *testing.T, s *testserver.Server, ref, pid string, from int) {
	t.Helper()
	if res := s.Bash(ref, "kill -0 "+pid, time.Minute); res.ExitCode != 0 {
		t.Errorf("process %s of sandbox %s has ended: %s", pid, ref, res.Stderr)
		return
	}
	for deadline := time.Now().Add(2 * time.Minute); count(t, s, ref) <= from; time.Sleep(50 * time.Millisecond) { // polling a process in a sandbox
		if time.Now().After(deadline) {
			t.Errorf("the process of sandbox %s has counted to %d and no further", ref, from)
			return
		}
	}
}

func write(t *testing.T, s *testserver.Server, ref, text string) {
	t.Helper()
	if res := s.Bash(ref, "echo "+text+" >/var/tmp/note", time.Minute); res.ExitCode != 0 {
		t.Fatalf("write: %+v", res)
	}
}

func wantNote(t *testing.T, s *testserver.Server, ref, want string) {
	t.Helper()
	if got := strings.TrimSpace(string(s.Bash(ref, "cat /var/tmp/note", time.Minute).Stdout)); got != want {
		t.Errorf("the file in sandbox %s has %q, want %q", ref, got, want)
	}
}

// TestUpgradeInPlace replaces the program of a server that has a running sandbox, a paused one, one
// with a checkpoint and a snapshot, and one in which a job runs.
func TestUpgradeInPlace(t *testing.T) {
	newer := testserver.Binary(t)
	if os.Getenv("MODBOX_TEST_GVISOR") == "1" { // otherwise the server skips the test
		t.Setenv("MODBOX_BIN", older(t))
	}
	s := testserver.Start(t, "--pool-size", "0")
	version, err := s.Version(t.Context())
	if err != nil || !strings.Contains(version.Version, "older") {
		t.Fatalf("the server has version %+v, %v, want the older one", version, err)
	}
	create := func(name string) string {
		t.Helper()
		return s.MustCreate(client.CreateOptions{Name: name, Image: "modbox/base", Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}, TTL: 30 * time.Minute}).ID
	}
	running, paused, saved, working := create("running"), create("paused"), create("saved"), create("working")
	runningPID, pausedPID := counting(t, s, running), counting(t, s, paused)
	write(t, s, paused, "paused")
	if _, err := s.Sandboxes.Pause(t.Context(), paused); err != nil {
		t.Fatal(err)
	}
	write(t, s, saved, "saved")
	if _, err := s.Sandboxes.Checkpoints.Create(t.Context(), saved, "first"); err != nil {
		t.Fatal(err)
	}
	snapshot, err := s.Snapshots.Create(t.Context(), saved, client.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, saved, "later")
	job, err := s.Executions.Start(t.Context(), working, client.Command{Argv: []string{"bash", "-c", "while ! [ -e /var/tmp/go ]; do sleep 0.05; done; echo done"}}, client.ExecutionOptions{Kind: client.KindJob})
	if err != nil {
		t.Fatal(err)
	}
	counted, processes := count(t, s, running), s.BoxProcesses()
	if migrated(t, s) > 0 {
		t.Fatal("the older server has migrated its database already")
	}
	s.Stop()
	if got := s.BoxProcesses(); !slices.Equal(got, processes) {
		t.Fatalf("processes of sandboxes after the stop: %v, want %v", got, processes)
	}

	t.Setenv("MODBOX_BIN", newer)
	s.Launch()
	if version, err := s.Version(t.Context()); err != nil || strings.Contains(version.Version, "older") {
		t.Fatalf("the server has version %+v, %v, want the newer one", version, err)
	}
	if migrated(t, s) == 0 {
		t.Errorf("the server has no copy of the database from before its migration: olderCommit has all migrations, name one before the newest")
	}
	if got := s.BoxProcesses(); !slices.Equal(got, processes) {
		t.Errorf("processes of sandboxes after the upgrade: %v, want them untouched: %v", got, processes)
	}
	for ref, want := range map[string]client.State{running: client.Running, paused: client.Paused, saved: client.Running, working: client.Running} {
		if sb, err := s.Sandboxes.Get(t.Context(), ref); err != nil || sb.State != want {
			t.Errorf("sandbox %s after the upgrade: %+v, %v, want it %s", ref, sb, err, want)
		}
	}
	wantCounting(t, s, running, runningPID, counted)

	if res := s.Bash(working, "touch /var/tmp/go", time.Minute); res.ExitCode != 0 {
		t.Errorf("touch: %+v", res)
	}
	if job, err = s.Executions.Get(t.Context(), job.ID, time.Minute); err != nil || job.ExitCode == nil || *job.ExitCode != 0 || job.Stdout.SizeBytes != int64(len("done\n")) {
		t.Errorf("the job after the upgrade: %+v, %v, want its end and its output", job, err)
	}

	sb, err := s.Sandboxes.Resume(t.Context(), paused, client.ResumeOptions{})
	if err != nil {
		t.Fatalf("resume what the older server paused: %v", err)
	}
	wantNote(t, s, paused, "paused")
	sameGVisor := gvisor(t, olderCommit) == gvisor(t, "")
	if (sb.MemoryLostReason == "") != sameGVisor {
		t.Errorf("memory of the paused sandbox: lost because of %q, want it restored exactly if gVisor is the same (%v)", sb.MemoryLostReason, sameGVisor)
	}
	if sameGVisor {
		wantCounting(t, s, paused, pausedPID, 0)
	}

	if _, err := s.Sandboxes.Checkpoints.Restore(t.Context(), saved, "first"); err != nil {
		t.Fatalf("restore a checkpoint of the older server: %v", err)
	}
	wantNote(t, s, saved, "saved")
	fresh := s.MustCreate(client.CreateOptions{Snapshot: snapshot.ID})
	wantNote(t, s, fresh.ID, "saved")

	if sameGVisor { // otherwise a pause is refused, see docs/stateful.md
		counted = count(t, s, running)
		if _, err := s.Sandboxes.Pause(t.Context(), running); err != nil {
			t.Fatalf("pause a sandbox that the older server started: %v", err)
		}
		if _, err := s.Sandboxes.Resume(t.Context(), running, client.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		wantCounting(t, s, running, runningPID, counted)
	}

	// Back: the older server refuses the newer database, and changes nothing.
	s.Stop()
	refused(t, s)
	s.Launch()
	wantCounting(t, s, running, runningPID, counted)
}

// migrated returns the number of copies of the database from before a migration.
func migrated(t *testing.T, s *testserver.Server) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(s.StateDir, "backups", "before-migration-*.db"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// refused fails the test unless the older program refuses the state of the newer one.
func refused(t *testing.T, s *testserver.Server) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), older(t), "server", "--listen", "127.0.0.1:0", "--state-dir", s.StateDir, "--run-dir", s.RunDir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "newer") {
		t.Errorf("the older program on the newer database: %v, want it refused:\n%s", err, out)
	}
}
