package cluster_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

const (
	// benchRounds is the number of times that each call is measured, but the calls at once.
	benchRounds = 5
	benchAtOnce = 50
)

// benchSize are the resources of all sandboxes of the bench, and of the boxes of the pool.
var benchSize = client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "500m"}

// bench measures calls to a server with two workers in Pods, beside plain Pods.
type bench struct {
	*testserver.Server
	t       *testing.T
	workers []string
	pod     time.Duration // the median of plain Pods
	pods    time.Duration // benchAtOnce plain Pods at once
}

// TestBench measures sandboxes beside plain Pods. It fails only if a call fails.
func TestBench(t *testing.T) {
	if os.Getenv("MODBOX_TEST_CLUSTER_BENCH") != "1" {
		t.Skip("takes two minutes: set MODBOX_TEST_CLUSTER_BENCH=1")
	}
	address(t)
	b := bench{t: t, workers: []string{"worker-1", "worker-2"}}
	b.plainPods()
	run := func(name, pool string, measure func(b bench)) {
		t.Run(name, func(t *testing.T) {
			b := b
			b.t = t
			b.Server = startWithPods(t, b.workers, "--pool-size", pool, "--capacity-memory-overcommit", "20",
				"--sandbox-default-memory", benchSize.Memory, "--sandbox-default-disk", benchSize.Disk, "--sandbox-default-cpu", benchSize.CPU)
			measure(b)
		})
	}
	run("cold", "0", func(b bench) {
		b.show("create to first output, first of a server", b.pod, timed(func() { b.create(benchSize) }))
		var times []time.Duration
		for range benchRounds {
			times = append(times, timed(func() { b.create(benchSize) }))
		}
		b.show("create to first output, without a pool", b.pod, times...)
		b.destroyAll()
		var wg sync.WaitGroup
		b.show(fmt.Sprintf("%d creates at once, all first outputs", benchAtOnce), b.pods, timed(func() {
			for range benchAtOnce {
				wg.Go(func() { b.create(benchSize) })
			}
			wg.Wait()
		}))
	})
	run("warm", "3", func(b bench) { b.moves(b.creates()) })
}

func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// show prints the median of times, and compares it with the time of plain Pods.
func (b bench) show(what string, plain time.Duration, times ...time.Duration) time.Duration {
	b.t.Helper()
	if len(times) == 0 {
		b.t.Errorf("%s: nothing was measured", what)
		return 0
	}
	slices.Sort(times)
	median := times[len(times)/2]
	ratio := ""
	if plain != 0 {
		ratio = fmt.Sprintf(", %.3f of plain Pods", median.Seconds()/plain.Seconds())
	}
	b.t.Logf("%-45s %d times, median %v, most %v%s", what, len(times), median.Round(time.Millisecond), times[len(times)-1].Round(time.Millisecond), ratio)
	return median
}

// plainPod measures a Pod whose only container prints a line.
func (b *bench) plainPod() {
	var times []time.Duration
	for i := range benchRounds {
		name := fmt.Sprint("bench-", i)
		cmd := exec.Command("kubectl", "run", name, "--image", "modbox:test", "--image-pull-policy", "Never", "--restart", "Never", "--attach", "--quiet", "--", "version")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.t.Fatal(err)
		}
		times = append(times, timed(func() {
			if err := cmd.Start(); err != nil {
				b.t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil {
				b.t.Errorf("the output of kubectl run: %v", err)
			}
		}))
		_, _ = io.Copy(io.Discard, out) // the process ends with an error if this fails
		if err := cmd.Wait(); err != nil {
			b.t.Errorf("kubectl run: %v", err)
		}
		kubectl(b.t, "", "delete", "pod", name, "--now", "--wait=false")
	}
	b.pod = b.show("plain Pod, kubectl run to first output", 0, times...)
}

// plainPods is plainPod, and measures many such Pods at once.
func (b *bench) plainPods() {
	b.plainPod()
	var many strings.Builder
	for i := range benchAtOnce {
		fmt.Fprintf(&many, `
---
apiVersion: v1
kind: Pod
metadata: {name: bench-many-%d, labels: {modbox-test: bench}}
spec:
  restartPolicy: Never
  containers:
  - {name: version, image: "modbox:test", imagePullPolicy: Never, args: [version]}
`, i)
	}
	took := timed(func() {
		apply(b.t, many.String())
		kubectl(b.t, "", "wait", "--for=jsonpath={.status.phase}=Succeeded", "--timeout", timeLimit.String(), "pod", "-l", "modbox-test=bench")
	})
	b.pods = b.show(fmt.Sprintf("%d plain Pods at once, all have ended", benchAtOnce), 0, took)
	kubectl(b.t, "", "delete", "pod", "-l", "modbox-test=bench", "--now", "--timeout", timeLimit.String())
}

// create creates a sandbox, runs a command in it, and returns the id of the sandbox.
func (b bench) create(size client.Resources) string {
	sb, err := b.Sandboxes.Create(b.t.Context(), client.CreateOptions{Image: "modbox/code-exec", Resources: size})
	if err != nil {
		b.t.Error(err)
		return ""
	}
	b.echo(sb.ID)
	return sb.ID
}

func (b bench) echo(id string) {
	if _, err := b.Sandboxes.Exec(b.t.Context(), id, client.Command{Argv: []string{"echo", "out"}}); err != nil {
		b.t.Error(err)
	}
}

// creates measures creates that are given a box of the pool, and commands.
func (b bench) creates() (ids []string) {
	var creates, execs []time.Duration
	for range benchRounds {
		b.AwaitBlankBox()
		var id string
		took := timed(func() { id = b.create(benchSize) })
		ids = append(ids, id)
		if b.FromPool(id) {
			creates = append(creates, took)
		}
		execs = append(execs, timed(func() { b.echo(id) }))
	}
	b.show("create to first output, with a box of the pool", b.pod, creates...)
	b.show("exec", b.pod, execs...)
	return ids
}

// moves measures pauses, and resumes on the other node.
func (b bench) moves(ids []string) {
	var pauses, resumes []time.Duration
	for _, id := range ids {
		from := slices.IndexFunc(b.workers, func(name string) bool { return hasBox(name, id) })
		if from < 0 {
			b.t.Fatalf("no worker has the sandbox %s", id)
		}
		pauses = append(pauses, timed(func() {
			if _, err := b.Sandboxes.Pause(b.t.Context(), id); err != nil {
				b.t.Error(err)
			}
		}))
		for range 4 { // until the other worker has more memory that is not promised
			if hasBox(b.workers[from], b.create(client.Resources{Memory: "512Mi", Disk: benchSize.Disk, CPU: benchSize.CPU})) {
				break
			}
		}
		took := timed(func() {
			if _, err := b.Sandboxes.Resume(b.t.Context(), id, client.ResumeOptions{Memory: client.MemoryRequire}); err != nil {
				b.t.Error(err)
			}
			b.echo(id)
		})
		if hasBox(b.workers[1-from], id) {
			resumes = append(resumes, took)
		}
	}
	b.show("pause", b.pod, pauses...)
	b.show("resume on the other node to first output", b.pod, resumes...)
}

func (b bench) destroyAll() {
	for sb, err := range b.Sandboxes.List(client.ListOptions{}).All(b.t.Context()) {
		if err != nil {
			b.t.Fatal(err)
		}
		if _, err := b.Sandboxes.Delete(b.t.Context(), sb.ID); err != nil {
			b.t.Error(err)
		}
	}
}
