package e2e_test

import (
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// readClock is a program that reads a clock after it has forbidden itself the system call.
//
//go:embed testdata/readclock.py
var readClock string

// TestEarlyClock checks that programs read a clock without a system call before gVisor compares its clocks for the second time by itself, a
// second after the start. Attempts that take longer show nothing, and a comparison may fail on a busy machine, so there are several.
func TestEarlyClock(t *testing.T) {
	s := testserver.Start(t)
	const attempts, second = 30, 950 * time.Millisecond
	shown := 0
	for range attempts {
		begin := time.Now()
		sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
		res, err := s.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Argv: []string{"python3", "-c", readClock}})
		took := time.Since(begin)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		switch got := strings.TrimSpace(string(res.Stdout)); {
		case took > second:
		case got == "without":
			return
		case got == "forbidden":
			shown++
		default:
			t.Fatalf("the program printed %q %q", res.Stdout, res.Stderr)
		}
	}
	if shown == 0 {
		t.Skipf("the machine is too busy: none of %d programs ended in the first second of its sandbox", attempts)
	}
	t.Errorf("in the first second, %d of %d programs needed a system call to read a clock, and no program did without", shown, attempts)
}
