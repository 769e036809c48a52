package hostile_test

import (
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// resetPeakRSS makes the peak of the server's memory its present memory, which it returns, in bytes.
func (r *rig) resetPeakRSS() int64 {
	r.t.Helper()
	if err := os.WriteFile("/proc/"+strconv.Itoa(r.PID())+"/clear_refs", []byte("5"), 0); err != nil {
		r.t.Fatal(err)
	}
	return r.serverPeakRSS()
}

// serverPeakRSS reads the most memory that the server process had since its start or resetPeakRSS, in bytes.
func (r *rig) serverPeakRSS() int64 {
	r.t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(r.PID()) + "/status")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				r.t.Fatal(err)
			}
			return kb << 10
		}
	}
	r.t.Fatal("no VmHWM line")
	return 0
}

func TestHugeOutputIsCutAndFlagged(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	before := r.serverPeakRSS()
	res := r.Bash(id, `head -c 512M /dev/zero; head -c 5M /dev/zero >&2; exit 3`, 5*time.Minute)
	if res.ExitCode != 3 || !res.StdoutTruncated || !res.StderrTruncated || len(res.Stdout) != 1<<20 {
		t.Errorf("512 MiB of output: exit code %d, truncated %t/%t, %d bytes kept; want 3, true/true, %d",
			res.ExitCode, res.StdoutTruncated, res.StderrTruncated, len(res.Stdout), 1<<20)
	}
	if grown := r.serverPeakRSS() - before; grown > 128<<20 {
		t.Errorf("512 MiB of output made the server grow by %d MiB", grown>>20)
	}
	r.alive(id)
	r.gone(id)
}

// counter counts bytes.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func TestHugeStreamArrivesWhole(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	stream, err := r.Sandboxes.ExecStream(t.Context(), id, client.Command{Argv: []string{"head", "-c", "128M", "/dev/zero"}, Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var n counter
	exit, err := stream.Copy(&n, io.Discard)
	if err != nil || exit.ExitCode != 0 || n != 128<<20 {
		t.Errorf("streaming 128 MiB: %d bytes, exit %+v, %v", n, exit, err)
	}
	r.gone(id)
}

func TestReaderThatGoesAwayKillsTheCommand(t *testing.T) {
	r := newRig(t)
	id := r.victim()
	stream, err := r.Sandboxes.ExecStream(t.Context(), id, client.Command{Argv: []string{"/bin/bash", "-c", "yes"}, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	stream.Close()
	r.noneLeft(id, "yes")
	r.gone(id)
}
