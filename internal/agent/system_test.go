package agent_test

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent"
)

// TestLeaveChildrenSilent checks that the process neither catches the signal of its children, as Go does at first, nor ignores it.
func TestLeaveChildrenSilent(t *testing.T) {
	has := func(set string) bool {
		t.Helper()
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(set + `:\s+(\w+)`).FindSubmatch(status)
		if found == nil {
			t.Fatalf("no %s in the status of the process", set)
		}
		signals, err := strconv.ParseUint(string(found[1]), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return signals>>(uint(unix.SIGCHLD)-1)&1 != 0
	}
	if !has("SigCgt") {
		t.Fatal("Go does not catch the signal: LeaveChildrenSilent has nothing to do any more")
	}
	if err := agent.LeaveChildrenSilent(); err != nil {
		t.Fatal(err)
	}
	if has("SigCgt") || has("SigIgn") {
		t.Errorf("the signal of children is caught: %v, ignored: %v, want neither", has("SigCgt"), has("SigIgn"))
	}
}
