package hostile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// stop sends SIGSTOP to processes of the host, waits until all their threads stand still, and lets them go on when the test ends.
func stop(t *testing.T, pids []int) {
	t.Helper()
	t.Cleanup(func() { goOn(pids) })
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); slices.ContainsFunc(pids, moves); time.Sleep(time.Millisecond) { // polling other processes
		if time.Now().After(end) {
			t.Fatalf("a process of %v does not stop", pids)
		}
	}
}

// moves reports whether a thread of a process is neither stopped nor dead.
func moves(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is valid
	return slices.ContainsFunc(files, func(file string) bool {
		stat, err := os.ReadFile(file)
		fields := stat[bytes.LastIndexByte(stat, ')')+1:] // the name before may have any bytes
		return err == nil && !bytes.ContainsAny(fields[:min(len(fields), 2)], "TtZX")
	})
}

func goOn(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
	}
}

// TestCallsIntoAStoppedProcess stops the process of a sandbox on the host. Calls into
// it fail with a code, and other sandboxes are as they were.
func TestCallsIntoAStoppedProcess(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0", "--sandbox-answer-timeout", "2s")
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	pids := s.BoxProcesses()
	other := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	ofOther := slices.DeleteFunc(s.BoxProcesses(), func(pid int) bool { return slices.Contains(pids, pid) })
	if len(pids) == 0 || len(ofOther) == 0 {
		t.Fatalf("processes %v and %v, want some of each", pids, ofOther)
	}
	s.Bash(sb.ID, "echo kept > /tmp/kept", time.Minute) // leaves an open connection
	stop(t, pids)
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"exec on an open connection", func() error {
			_, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"true"}})
			return err
		}},
		{"exec", func() error {
			_, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"true"}})
			return err
		}},
		{"list files", func() error { _, err := s.Sandboxes.Files.List(sb.ID, "/").Collect(t.Context()); return err }},
		{"pause", func() error { _, err := s.Sandboxes.Pause(t.Context(), sb.ID); return err }},
	} {
		begin := time.Now()
		err := c.call()
		t.Logf("%s: %v after %v", c.name, err, time.Since(begin).Round(time.Millisecond))
		if !client.IsCode(err, client.AgentUnreachable) {
			t.Errorf("%s of a sandbox whose process is stopped: %v, want agent_unreachable", c.name, err)
		}
	}
	if res := s.Bash(other.ID, "echo fine", time.Minute); string(res.Stdout) != "fine\n" {
		t.Errorf("another sandbox meanwhile: %+v", res)
	}
	goOn(pids)
	if res := s.Bash(sb.ID, "cat /tmp/kept", time.Minute); string(res.Stdout) != "kept\n" {
		t.Errorf("the sandbox when its process goes on: %+v", res)
	}
	stop(t, pids)
	if got, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil || got.State != client.Destroyed {
		t.Errorf("delete of a sandbox whose process is stopped = %+v, %v", got, err)
	}
}
