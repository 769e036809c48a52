package crash_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// counter is a process that counts for ever in its memory and in the last line of a file. It starts no
// other programs, which would take most of the test's CPU time.
const counter = `mkfifo /tmp/pipe; exec 3<>/tmp/pipe; i=0; while true; do i=$((i+1)); echo $i >> /tmp/count; read -t 0.02 -u 3; done`

// churn takes a sandbox through operations on its state until ctx ends. Errors
// are not judged: the server is killed under it.
func churn(ctx context.Context, s *client.Client, id string) {
	for n := 0; ctx.Err() == nil; n++ {
		switch n % 5 {
		case 0, 2:
			_, _ = s.Sandboxes.Pause(ctx, id)
		case 1:
			_, _ = s.Sandboxes.Resume(ctx, id, client.ResumeOptions{})
		case 3:
			name := fmt.Sprint("c", rand.Uint32())
			if _, err := s.Sandboxes.Checkpoints.Create(ctx, id, name); err == nil {
				_, _ = s.Sandboxes.Checkpoints.Restore(ctx, id, name)
				_ = s.Sandboxes.Checkpoints.Delete(ctx, id, name)
			}
		case 4:
			children, _ := s.Sandboxes.Fork(ctx, id, client.ForkOptions{Count: 2, TTL: 10 * time.Minute})
			for _, child := range children {
				if child.Sandbox != nil {
					_, _ = s.Sandboxes.Delete(ctx, child.Sandbox.ID)
				}
			}
		}
	}
}

// count returns what the counter of a sandbox has come to, resuming it when it is paused.
func count(t *testing.T, s *testserver.Server, id string) string {
	t.Helper()
	res, err := s.Sandboxes.Exec(t.Context(), id, client.Command{Shell: "cat /marker; tail -n 1 /tmp/count", User: "root"})
	if err != nil || res.ExitCode != 0 {
		sb, _ := s.Sandboxes.Get(t.Context(), id)
		t.Fatalf("sandbox %s: cat = %+v, %v; sandbox %+v", id, res, err, sb)
	}
	marker, n, _ := strings.Cut(string(res.Stdout), "\n")
	if marker != "kept" {
		t.Errorf("sandbox %s: marker %q", id, marker)
	}
	return n
}

// TestKillInTheMiddleOfStateChanges kills the server at random moments of
// pauses, resumes, checkpoints, restores and forks. After each restart every
// sandbox must be there, with its files and its process going on.
func TestKillInTheMiddleOfStateChanges(t *testing.T) {
	s := testserver.StartSmall(t)
	const rounds, boxes = 6, 3
	ids := make([]string, boxes)
	for i := range ids {
		sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{
			Image: "modbox/base", WaitUpTo: 5 * time.Minute, Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"},
		})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = sb.ID
		res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{
			User: "root", Shell: "echo kept > /marker; (setsid bash -c '" + counter + "' </dev/null >/dev/null 2>&1 &); until [ -s /tmp/count ]; do sleep 0.01; done",
		})
		if err != nil || res.ExitCode != 0 {
			t.Fatalf("start the counter: %+v, %v", res, err)
		}
	}
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() { churn(ctx, s.Client, id) })
		}
		// The moment is random on purpose: between any two steps of any of the calls.
		<-time.After(time.Duration(200+rand.IntN(1200)) * time.Millisecond)
		s.Kill()
		cancel()
		wg.Wait()
		s.Launch()
		for _, id := range ids {
			before := count(t, s, id)
			deadline := time.Now().Add(5 * time.Minute)
			for count(t, s, id) == before {
				if time.Now().After(deadline) {
					t.Fatalf("round %d: the process in sandbox %s does not go on", round, id)
				}
			}
		}
	}
	wantNothingQuarantined(t, s)
	page, err := s.Sandboxes.List(client.ListOptions{}).Page(t.Context(), client.PageOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range page.Items {
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Errorf("delete %s: %v", sb.ID, err)
		}
	}
	left, err := filepath.Glob(filepath.Join(s.StateDir, "checkpoints", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	// The sweep removes the forks' leftovers of a killed server.
	for deadline := time.Now().Add(5 * time.Minute); len(left) > 0; left, _ = filepath.Glob(filepath.Join(s.StateDir, "checkpoints", "*", "*")) {
		if time.Now().After(deadline) {
			t.Fatalf("checkpoints left: %v", left)
		}
		time.Sleep(100 * time.Millisecond) // polling another process
	}
	if _, err := os.Stat(filepath.Join(s.StateDir, "checkpoints")); err != nil {
		t.Error(err) // else the globs above found nothing for another reason
	}
}

// TestKillInTheMiddleOfStartsFromFiles kills the server at random moments of
// pauses and of resumes that give the memory up, while an archive is being sent.
// After each restart the sandbox must be there with its files, whole.
func TestKillInTheMiddleOfStartsFromFiles(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}})
	res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{User: "root", Shell: "mkdir /kept && head -c 1000000 /dev/urandom > /kept/data && cd /kept && sha256sum data > sum"})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("write files: %+v, %v", res, err)
	}
	archive := tarGz(t, 50)
	const rounds = 5
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.Sandboxes.Pause(ctx, sb.ID)
				_, _ = s.Sandboxes.Resume(ctx, sb.ID, client.ResumeOptions{Memory: client.MemoryDiscard})
				_ = s.Sandboxes.Files.UploadArchive(ctx, sb.ID, "/tmp/in", bytes.NewReader(archive), client.UploadArchiveOptions{})
			}
		})
		// The moment is random on purpose: between any two steps of any of the calls.
		<-time.After(time.Duration(100+rand.IntN(1500)) * time.Millisecond)
		s.Kill()
		cancel()
		wg.Wait()
		s.Launch()
		res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "cd /kept && sha256sum -c sum"})
		if err != nil || res.ExitCode != 0 {
			now, _ := s.Sandboxes.Get(t.Context(), sb.ID)
			t.Fatalf("round %d: files after the restart: %+v, %v; sandbox %+v", round, res, err, now)
		}
	}
}

// tarGz returns an archive of so many files.
func tarGz(t *testing.T, files int) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for i := range files {
		data := make([]byte, 64<<10)
		if err := tw.WriteHeader(&tar.Header{Name: fmt.Sprint("f", i), Mode: 0o644, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// TestRestartOfTheHost ends every process, as a restart does: paused sandboxes come back with their
// memory, running sandboxes have ended with the cause.
func TestRestartOfTheHost(t *testing.T) {
	s := testserver.StartSmall(t)
	paused := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	running := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	res, err := s.Sandboxes.Exec(t.Context(), paused.ID, client.Command{
		User: "root", Shell: "echo kept > /marker; (setsid bash -c '" + counter + "' </dev/null >/dev/null 2>&1 &); until [ -s /tmp/count ]; do sleep 0.01; done",
	})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("start the counter: %+v, %v", res, err)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), paused.ID); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.KillBoxes()
	if err := os.RemoveAll(filepath.Join(s.RunDir, "boxes")); err != nil { // it is on tmpfs
		t.Fatal(err)
	}
	s.Launch()
	got, err := s.Sandboxes.Wait(t.Context(), running.ID, client.Failed)
	if err != nil || got.Cause == nil || got.Cause.Code != "host_restart" {
		t.Errorf("the one that ran: %+v, %v, want the cause host_restart", got, err)
	}
	before := count(t, s, paused.ID)
	for deadline := time.Now().Add(5 * time.Minute); count(t, s, paused.ID) == before; {
		if time.Now().After(deadline) {
			t.Fatal("the process in the paused sandbox does not go on")
		}
	}
	if now, err := s.Sandboxes.Get(t.Context(), paused.ID); err != nil || now.MemoryLostReason != "" {
		t.Errorf("the paused one: %+v, %v", now, err)
	}
}
