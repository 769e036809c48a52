package soak_test

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/modbox/modbox/test/testserver"
)

// census counts the processes, files and memory of a server while nobody uses a sandbox.
type census struct {
	host        int   // processes, control groups, mounts and directories of sandboxes
	descriptors int   // open files of the server
	goroutines  int   // of the server
	heap        int64 // bytes of live objects of the server at the latest garbage collection
	disk        int64 // bytes of the state directory without the database and images, which stay for some time
}

func (c census) String() string {
	return fmt.Sprintf("%d processes, control groups, mounts and directories of sandboxes, %d descriptors, %d goroutines, %.1f MiB of live objects, %.1f MiB of disk",
		c.host, c.descriptors, c.goroutines, float64(c.heap)/(1<<20), float64(c.disk)/(1<<20))
}

// Growth that is no leak: connections of clients and caches come and go.
const (
	moreDescriptors = 8
	moreGoroutines  = 16
	moreHeap        = 8 << 20
	moreDisk        = 4 << 20
	// imageTime is when the images of deleted snapshots are removed at the latest.
	imageTime = 30 * time.Minute
)

// growth returns what there is more of in c than in an earlier census.
func (c census) growth(earlier census) (grown []string) {
	check := func(what string, now, before, allowed int64) {
		if now > before+allowed {
			grown = append(grown, fmt.Sprintf("%s: %d after, %d before, at most %d more are allowed", what, now, before, allowed))
		}
	}
	check("processes, control groups, mounts and directories of sandboxes", int64(c.host), int64(earlier.host), 0)
	check("open descriptors of the server", int64(c.descriptors), int64(earlier.descriptors), moreDescriptors)
	check("goroutines of the server", int64(c.goroutines), int64(earlier.goroutines), moreGoroutines)
	check("bytes of live objects of the server", c.heap, earlier.heap, moreHeap)
	check("bytes of the state directory", c.disk, earlier.disk, moreDisk)
	return grown
}

// take counts what the server holds now.
func take(t *testing.T, s *testserver.Server) census {
	t.Helper()
	numbers := metrics(t, s)
	return census{
		host:        len(s.Leftovers()),
		descriptors: int(numbers["process_open_fds"]),
		goroutines:  int(numbers["go_goroutines"]),
		// The collector's goal is twice the live objects: GOGC is 100.
		heap: int64(numbers["go_memstats_next_gc_bytes"]) / 2,
		disk: disk(t, s.StateDir, filepath.Join(s.StateDir, "images")),
	}
}

// metrics returns the values of the server's gauges and counters without labels.
func metrics(t *testing.T, s *testserver.Server) map[string]float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatalf("GET /metrics = %s: %v", resp.Status, err)
	}
	numbers := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 0 {
				numbers[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	for _, name := range []string{"process_open_fds", "go_goroutines", "go_memstats_next_gc_bytes"} {
		if numbers[name] == 0 {
			t.Fatalf("the server's metrics lack %s", name)
		}
	}
	return numbers
}

// disk returns the bytes that the files of a directory take, without the database and the directory without.
func disk(t *testing.T, dir, without string) (total int64) {
	t.Helper()
	for _, bytes := range files(t, dir, without) {
		total += bytes
	}
	return total
}

// files returns the bytes of each file that disk counts, by path.
func files(t *testing.T, dir, without string) map[string]int64 {
	t.Helper()
	list := map[string]int64{}
	seen := map[uint64]bool{} // hard links count once
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if path == without {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "modbox.db") {
			if os.IsNotExist(err) { // a file that has just been removed
				return nil
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if st := info.Sys().(*syscall.Stat_t); !seen[st.Ino] {
			seen[st.Ino] = true
			list[path] = st.Blocks * 512
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// rest waits until the pool is full and nothing has come or gone for a second, and counts then.
func rest(t *testing.T, s *testserver.Server) census {
	t.Helper()
	last, same := take(t, s), 0
	for deadline := time.Now().Add(timeLimit); same < 3; time.Sleep(500 * time.Millisecond) { // polling another process
		now := take(t, s)
		if now.host == last.host && metrics(t, s)["modbox_pool_boxes"] == poolSize {
			same++
		} else {
			same = 0
		}
		if last = now; same < 3 && time.Now().After(deadline) {
			t.Fatalf("the server does not come to rest in %v: %s", timeLimit, last)
		}
	}
	return last
}

// settled waits until the server holds no more than in an earlier census, and returns what it still has too much of.
func settled(t *testing.T, s *testserver.Server, earlier census, wait time.Duration) (now census, grown []string) {
	t.Helper()
	for deadline := time.Now().Add(wait); ; time.Sleep(500 * time.Millisecond) { // polling another process
		now = take(t, s)
		if grown = now.growth(earlier); len(grown) == 0 || time.Now().After(deadline) {
			return now, grown
		}
	}
}

// removedImages waits until images take no more of the disk than earlier: the root filesystem of a deleted snapshot stays for
// some minutes after its last use.
func removedImages(t *testing.T, s *testserver.Server, earlier map[string]int64) {
	t.Helper()
	sum := func(files map[string]int64) (n int64) {
		for _, bytes := range files {
			n += bytes
		}
		return n
	}
	for deadline := time.Now().Add(imageTime); ; time.Sleep(time.Second) { // polling another process
		now := files(t, filepath.Join(s.StateDir, "images"), "")
		if sum(now) <= sum(earlier)+moreDisk {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("images take %d bytes %v after the deletion of the last snapshot, and took %d before; new are:", sum(now), imageTime, sum(earlier))
			for _, path := range slices.Sorted(maps.Keys(now)) {
				if _, before := earlier[path]; !before {
					t.Logf("%s: %d bytes", path, now[path])
				}
			}
			return
		}
	}
}
