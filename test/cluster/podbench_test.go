package cluster_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// bench measures creates without a pool and with one, and resumes, beside plain Pods. It fails only if a call fails.
func (p perSandbox) bench(t *testing.T) {
	if os.Getenv("MODBOX_TEST_CLUSTER_BENCH") != "1" {
		t.Skip("takes minutes: set MODBOX_TEST_CLUSTER_BENCH=1")
	}
	b := bench{Server: &testserver.Server{Client: p.Client}, t: t}
	b.plainPods()
	first := func(cpu string) string {
		sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: client.Resources{CPU: cpu}})
		if err != nil {
			t.Fatal(err)
		}
		b.echo(sb.ID)
		return sb.ID
	}
	remove := func(id string) {
		if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
		p.none(t, "after the end of the sandbox")
	}
	for _, cpu := range []string{"250m", "500m", "1"} {
		var creates, pauses, resumes []time.Duration
		for range benchRounds {
			var id string
			creates = append(creates, timed(func() { id = first(cpu) }))
			pauses = append(pauses, timed(func() {
				if _, err := p.Sandboxes.Pause(t.Context(), id); err != nil {
					t.Error(err)
				}
			}))
			resumes = append(resumes, timed(func() { b.echo(id) }))
			remove(id)
		}
		b.show("a Pod for each sandbox, CPU "+cpu+": create to first output", b.pod, creates...)
		b.show("a Pod for each sandbox, CPU "+cpu+": pause", b.pod, pauses...)
		b.show("a Pod for each sandbox, CPU "+cpu+": resume to first output", b.pod, resumes...)
	}
	var wg sync.WaitGroup
	ids := make([]string, 10)
	b.show("a Pod for each sandbox: 10 creates at once, all first outputs", b.pod, timed(func() {
		for i := range ids {
			wg.Go(func() { ids[i] = first("") })
		}
		wg.Wait()
	}))
	for _, id := range ids {
		if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	p.none(t, "after the end of all sandboxes")
}

// pool measures creates that are given a box of the pool: of the image, and a blank box that has got the files of the image. It fails only if a call fails.
func (p perSandbox) pool(t *testing.T) {
	if os.Getenv("MODBOX_TEST_CLUSTER_BENCH") != "1" {
		t.Skip("takes minutes: set MODBOX_TEST_CLUSTER_BENCH=1")
	}
	b := bench{Server: &testserver.Server{Client: p.Client}, t: t}
	b.plainPod()
	const size = 3 // two boxes of the image and a blank box, as soon as the image is in demand
	p.set(t, fmt.Sprint("MODBOX_POOL_SIZE=", size))
	defer p.set(t, "MODBOX_POOL_SIZE-")
	times := map[string][]time.Duration{}
	for round := range benchRounds {
		if round > 0 {
			until(t, "the pool has its boxes", func() bool {
				return p.metric(t, "modbox_pool_boxes") == size && p.metric(t, "modbox_pool_blank_boxes") == 1 && withImage() == size
			})
		} else {
			until(t, "the pool has its boxes", func() bool { return p.metric(t, "modbox_pool_boxes") == size })
		}
		waiting := p.pods(t, ".metadata.labels.modbox/sandbox")
		var ids []string
		for i := range size {
			var id string
			took := timed(func() {
				sb, err := p.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: client.Resources{Memory: "256Mi"}}) // as a blank box
				if err != nil {
					t.Fatal(err)
				}
				b.echo(sb.ID)
				id = sb.ID
			})
			ids = append(ids, id)
			switch pooled := p.fromPool(t, id) && slices.Contains(waiting, id); { // the others may be from boxes that were made meanwhile
			case pooled && round == 0:
				times["a blank box without the image"] = append(times["a blank box without the image"], took)
			case pooled && i < size-1:
				times["a box of the image"] = append(times["a box of the image"], took)
			case pooled:
				times["a blank box that has the image"] = append(times["a blank box that has the image"], took)
			}
		}
		for _, id := range ids {
			if _, err := p.Sandboxes.Delete(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		for _, id := range ids {
			until(t, "the Pod of the sandbox is gone", func() bool { return !slices.Contains(p.pods(t, ".metadata.labels.modbox/sandbox"), id) })
		}
	}
	for _, what := range []string{"a blank box without the image", "a box of the image", "a blank box that has the image"} {
		b.show("a Pod for each sandbox: create to first output, with "+what, b.pod, times[what]...)
	}
}

// withImage returns the number of workers of Pods for sandboxes that have the files of an image.
func withImage() (n int) {
	for _, dir := range processes("worker", "--join=modbox-join:7071") {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		files, _ := filepath.Glob(filepath.Join(dir, "root/var/lib/modbox/state/images/images/*"))
		whole := slices.ContainsFunc(files, func(file string) bool {
			name, _, _ := strings.Cut(filepath.Base(file), ".")
			return len(name) == 64 // the others are still being written
		})
		if whole && strings.Contains(string(line), "\x00--id=pod-") {
			n++
		}
	}
	return n
}

// metric returns the value of a metric of the server.
func (p perSandbox) metric(t *testing.T, name string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the metrics:\n%s", name, body)
	return 0
}

// fromPool reports whether a sandbox was given a box of the pool.
func (p perSandbox) fromPool(t *testing.T, id string) bool {
	t.Helper()
	for ev, err := range p.Sandboxes.Events(id, client.EventsOptions{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data["from_pool"] == "true" {
			return true
		}
	}
	return false
}
