package image_test

import (
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/registrytest"
)

// TestPullAfterACrash: a puller that was killed leaves blobs, which the next one uses.
func TestPullAfterACrash(t *testing.T) {
	if dir := os.Getenv("MODBOX_TEST_PULL_DIR"); dir != "" { // this is the process to kill
		_, err := pullStore(t, dir).Pull(t.Context(), os.Getenv("MODBOX_TEST_PULL_REF"), image.PullOptions{})
		t.Fatalf("the pull ended: %v", err)
	}
	reg, dir := registrytest.New(t), t.TempDir()
	first, second := gzipped(t, file("a", noise(1<<20), 0o644)), gzipped(t, file("b", noise(2<<20), 0o644))
	ref := reg.Push(t, "app:v1", imageOf(t, v1.Config{}, first, second))
	data := read(t, second.Compressed)
	halfway := make(chan struct{})
	var once sync.Once
	reg.On(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, digestOf(t, second).String()) {
			return false
		}
		_, _ = w.Write(data[:1<<20])
		_ = http.NewResponseController(w).Flush()
		once.Do(func() { close(halfway) })
		<-r.Context().Done()
		return true
	})
	killPuller(t, dir, ref, halfway, map[string]int64{
		digestOf(t, second).Hex + "-*.part":                    1 << 20,
		digestOf(t, first).Hex + "-" + strings.Repeat("?", 16): int64(len(read(t, first.Compressed))),
	})
	reg.On(nil)
	before := reg.Fetched()
	s := pullStore(t, dir)
	_, files := pull(t, s, ref)
	if got := slices.Sorted(maps.Keys(contents(t, files))); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the image has %v", got)
	}
	if again := reg.Fetched(); again[digestOf(t, first).String()] != 0 || before[digestOf(t, first).String()] != 1 {
		t.Errorf("the finished layer was fetched %v before the crash and %v after", before, again)
	}
	for _, left := range []string{"tmp", "pulls"} {
		if entries, err := os.ReadDir(filepath.Join(dir, left)); err != nil || len(entries) != 0 {
			t.Errorf("%s has %v, %v", left, entries, err)
		}
	}
}

// killPuller pulls in a process of its own and kills that once files of the
// store's pulls, by patterns, have at least some sizes.
func killPuller(t *testing.T, dir, ref string, ready <-chan struct{}, sizes map[string]int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPullAfterACrash$")
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "MODBOX_TEST_PULL_DIR="+dir, "MODBOX_TEST_PULL_REF="+ref)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ready:
	case <-time.After(5 * time.Minute):
		t.Error("the puller does not come that far")
	}
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for file, size := range sizes {
		for {
			found, _ := filepath.Glob(filepath.Join(dir, "pulls", file)) // the patterns are right
			if len(found) == 1 {
				if info, err := os.Stat(found[0]); err == nil && info.Size() >= size {
					break
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("the puller did not write %d bytes of %s", size, file)
			}
			<-tick.C
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the puller was not killed")
	}
}
