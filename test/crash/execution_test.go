package crash_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// lastNumber is the last of the numbers that a command prints, each on a line of eight characters.
const lastNumber = 2_999_999

// printNumbers is a command that prints the numbers to both outputs, and then runs the shell's commands then.
func printNumbers(then string) client.Command {
	return client.Command{Argv: []string{"/bin/bash", "-c", `seq -f %07.0f 0 "$1" | tee /dev/stderr; ` + then, "sh", strconv.Itoa(lastNumber)}}
}

// hashOfNumbers is the hash of what printNumbers prints to one output.
func hashOfNumbers() (sum string, bytes int64) {
	h := sha256.New()
	line := []byte("0000000\n")
	for n := 0; n <= lastNumber; n++ {
		for i, rest := 6, n; i >= 0; i, rest = i-1, rest/10 {
			line[i] = byte('0' + rest%10)
		}
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil)), int64(lastNumber+1) * int64(len(line))
}

// TestServerKilledInTheMiddleOfOutput kills the server again and again while a
// command writes 24 MB to each of its outputs, and looks whether every byte is
// there once.
func TestServerKilledInTheMiddleOfOutput(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	e, err := s.Executions.Start(t.Context(), sb.ID, printNumbers("until [ -e /tmp/go ]; do sleep 0.05; done; exit 9"), client.ExecutionOptions{Kind: client.KindJob})
	if err != nil {
		t.Fatal(err)
	}
	want, size := hashOfNumbers()
	kills, unfinished := 0, 0
	for ; kills < 8; kills++ {
		<-time.After(time.Duration(50+rand.IntN(500)) * time.Millisecond) // any moment, on purpose
		now, err := s.Executions.Get(t.Context(), e.ID, 0)
		if err == nil && kills >= 3 && now.Stdout.SizeBytes == size && now.Stderr.SizeBytes == size {
			break
		}
		s.Kill()
		// Of whole output, the file is longer than size: it begins with a header.
		if file, failed := os.Stat(filepath.Join(s.StateDir, "streams", e.Stdout.StreamID)); err == nil && failed == nil && now.Stdout.SizeBytes > 0 && file.Size() < size {
			unfinished++
		}
		s.Launch()
	}
	t.Logf("the server was killed %d times, %d of them in the middle of output", kills, unfinished)
	if unfinished == 0 {
		t.Error("no kill was in the middle of output")
	}
	s.Bash(sb.ID, "touch /tmp/go", time.Minute)
	end, err := s.Executions.Get(t.Context(), e.ID, 5*time.Minute)
	if err != nil || end.State != client.ExecutionFailed || end.ExitCode == nil || *end.ExitCode != 9 {
		t.Fatalf("execution %+v, %v; want failed with exit code 9", end, err)
	}
	for name, out := range map[string]client.OutputStream{"stdout": end.Stdout, "stderr": end.Stderr} {
		r, err := s.Streams.Read(t.Context(), out.StreamID, client.StreamOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		n, err := io.Copy(h, r)
		r.Close()
		if got := hex.EncodeToString(h.Sum(nil)); err != nil || n != size || out.SizeBytes != size || out.Truncated || got != want {
			t.Errorf("%s: %d bytes with hash %s, %v, said to be %+v; want %d bytes with hash %s", name, n, got, err, out, size, want)
		}
	}
}

// TestStdinAcrossAKill streams input while the server is killed and goes on where it was.
func TestStdinAcrossAKill(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	e, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Argv: []string{"sha256sum"}}, client.ExecutionOptions{Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	h := sha256.New()
	for range 8 {
		if err := s.Streams.Write(t.Context(), e.StdinStreamID, strings.NewReader(part), false); err != nil {
			t.Fatal(err)
		}
		io.WriteString(h, part)
		s.Kill()
		s.Launch()
	}
	if err := s.Streams.Write(t.Context(), e.StdinStreamID, strings.NewReader(""), true); err != nil {
		t.Fatal(err)
	}
	end, err := s.Executions.Get(t.Context(), e.ID, 5*time.Minute)
	if err != nil || end.State != client.ExecutionCompleted {
		t.Fatalf("execution %+v, %v; want completed", end, err)
	}
	if got, want := readAll(t, s, end.Stdout.StreamID), hex.EncodeToString(h.Sum(nil))+"  -\n"; got != want {
		t.Errorf("the command read something else: %q, want %q", got, want)
	}
}

// TestBoxKilledUnderAnExecution ends the sandbox of an execution: no exit code is made up.
func TestBoxKilledUnderAnExecution(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	e, err := s.Executions.Start(t.Context(), sb.ID, client.Command{Shell: "echo before; sleep 600"}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Streams.Read(t.Context(), e.Stdout.StreamID, client.StreamOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	s.Kill()
	s.KillBoxes()
	s.Launch()
	end, err := s.Executions.Get(t.Context(), e.ID, 5*time.Minute)
	if err != nil || end.State != client.ExecutionFailed || end.ExitCode != nil || end.Error == "" {
		t.Errorf("execution %+v, %v; want failed without an exit code, with the reason", end, err)
	}
	if got := readAll(t, s, e.Stdout.StreamID); got != "before\n" {
		t.Errorf("output %q, want what came before", got)
	}
}

// TestOneShotAcrossAKill kills the server while a one-shot sandbox runs.
func TestOneShotAcrossAKill(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base", OneShot: true, Command: &client.Command{Shell: "echo up; sleep 1; echo done"}})
	list, err := s.Executions.List(sb.ID, "").Collect(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("executions %+v, %v; want one at once", list, err)
	}
	r, err := s.Streams.Read(t.Context(), list[0].Stdout.StreamID, client.StreamOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	s.Kill()
	s.Launch()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	end, err := s.Sandboxes.Wait(ctx, sb.ID, client.Destroyed)
	if err != nil || end.Cause == nil || end.Cause.Code != "completed" {
		t.Fatalf("sandbox %+v, %v; want its end with cause completed", end, err)
	}
	list, err = s.Executions.List(sb.ID, "").Collect(t.Context())
	if err != nil || len(list) != 1 || list[0].ExitCode == nil || *list[0].ExitCode != 0 {
		t.Fatalf("executions %+v, %v; want one with exit code 0", list, err)
	}
	if got := readAll(t, s, list[0].Stdout.StreamID); got != "up\ndone\n" {
		t.Errorf("output %q", got)
	}
	if _, err := os.Stat(filepath.Join(s.StateDir, "streams", list[0].Stdout.StreamID)); errors.Is(err, os.ErrNotExist) {
		t.Error("the stream is not where it is said to be")
	}
}

func readAll(t *testing.T, s *testserver.Server, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	r, err := s.Streams.Read(ctx, id, client.StreamOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestExecutionAcrossAPause pauses a sandbox in the middle of output, kills the
// server meanwhile, and resumes: the command goes on and no byte is lost.
func TestExecutionAcrossAPause(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	e, err := s.Executions.Start(t.Context(), sb.ID, printNumbers("until [ -e /tmp/go ]; do sleep 0.05; done"), client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			s.Kill()
			s.Launch()
		}
		if _, err := s.Executions.Get(t.Context(), e.ID, time.Minute); !client.IsCode(err, client.NotRunning) {
			t.Fatalf("a wait while the sandbox is paused: %v; want code not_running", err)
		}
		now, err := s.Executions.Get(t.Context(), e.ID, 0)
		if err != nil || now.State != client.ExecutionRunning {
			t.Fatalf("while the sandbox is paused: %+v, %v; want running", now, err)
		}
		if got, err := s.Sandboxes.Get(t.Context(), sb.ID); err != nil || got.State != "paused" {
			t.Fatalf("the sandbox is %+v, %v; the execution must not have resumed it", got, err)
		}
		if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.Bash(sb.ID, "touch /tmp/go", time.Minute)
	end, err := s.Executions.Get(t.Context(), e.ID, 5*time.Minute)
	if err != nil || end.State != client.ExecutionCompleted {
		t.Fatalf("execution %+v, %v; want completed", end, err)
	}
	want, size := hashOfNumbers()
	sum := sha256.Sum256([]byte(readAll(t, s, end.Stdout.StreamID)))
	if got := hex.EncodeToString(sum[:]); got != want || end.Stdout.SizeBytes != size {
		t.Errorf("stdout has %d bytes with hash %s, want %d with %s", end.Stdout.SizeBytes, got, size, want)
	}
}
