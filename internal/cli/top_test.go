package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/cli/base"
)

// busy is a server with the sandboxes "idle", and "busy", which uses one and a half cores.
type busy struct{ asked atomic.Int64 }

func (b *busy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/sandboxes" {
		_, _ = io.WriteString(w, `{"items":[{"id":"i","name":"idle","state":"running"},{"id":"b","name":"busy","state":"running"}]}`)
		return
	}
	st := wire.Stats{MemoryBytes: 100 << 20, MemoryLimit: 512 << 20, DiskLimit: 2 << 30, Processes: 3, Time: fixed}
	if strings.Contains(r.URL.Path, "/b/") {
		n := b.asked.Add(1)
		st.Time = fixed.Add(time.Duration(n) * time.Second)
		st.CPUNanos = n * 1_500_000_000
	}
	_ = json.NewEncoder(w).Encode(st)
}

func TestTop(t *testing.T) {
	r := invoke(t, new(busy), "", "top", "--interval", "100ms")
	want := "NAME   CPU      MEMORY              DISK        PROCESSES   ID\nbusy   150.0%   100 MiB / 512 MiB   - / 2.0 GiB   3           b\nidle   0.0%"
	if squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }; r.code != 0 || !strings.HasPrefix(squeeze(r.stdout), squeeze(want)) {
		t.Errorf("modbox top = %+v, want %q", r, want)
	}
	if r := invoke(t, new(busy), "", "top", "--interval", "100ms", "--json"); r.code != 0 || !strings.Contains(r.stdout, `"cpu_percent": 150`) {
		t.Errorf("modbox top --json = %+v", r)
	}
	if r := invoke(t, nil, "", "top", "--interval", "1ms"); r.code != base.ExitUsage || !strings.Contains(r.stderr, "--interval") {
		t.Errorf("modbox top --interval 1ms = %+v", r)
	}
}

// TestTopOnATerminal shows the table anew until Ctrl-C.
func TestTopOnATerminal(t *testing.T) {
	server := httptest.NewServer(new(busy))
	t.Cleanup(server.Close)
	screen, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer terminal.Close()
	env := &base.Env{Stdin: terminal, Stdout: terminal, Stderr: os.Stderr, Environ: []string{"MODBOX_URL=" + server.URL, "MODBOX_API_TOKEN=mbx_test", "HOME=" + t.TempDir()}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- execute(ctx, env, []string{"top", "--interval", "100ms"}) }()
	if err := screen.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	for buf := make([]byte, 4096); strings.Count(seen.String(), "\x1b[H") < 2 || strings.Count(seen.String(), "150.0%") < 2; {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatalf("the terminal showed %q, then %v", seen.String(), err)
		}
		seen.Write(buf[:n])
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}
