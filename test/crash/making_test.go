package crash_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// until polls another process.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	// The longer it takes, the less often it asks.
	for begun := time.Now(); !done(); time.Sleep(min(max(20*time.Millisecond, time.Since(begun)/20), time.Second)) {
		if time.Since(begun) > 5*time.Minute {
			t.Fatalf("waited five minutes for %s", what)
		}
	}
}

// names lists a directory of the server's state; what is not there is empty.
func names(t *testing.T, s *testserver.Server, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.StateDir, dir))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	list := []string{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".lock") {
			list = append(list, e.Name())
		}
	}
	return list
}

// working returns the host's processes that work in the server's store of images.
func working(s *testserver.Server) []string {
	var found []string
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil && strings.HasPrefix(dir, filepath.Join(s.StateDir, "images")) {
			found = append(found, filepath.Dir(link)+" in "+dir)
		}
	}
	return found
}

// TestKillInTheMiddleOfMakings kills the server while an image is being made: for
// a build of a snapshot or of a Dockerfile, for a sandbox with packages, and for a
// sandbox of a runtime that is built when it is first used. After each restart the sandbox that
// waited is made again: it runs, has ended with the reason, or is destroyed, and nothing else is there that was not before.
// The network of the boxes leads nowhere, so that the tools work for a while.
func TestKillInTheMiddleOfMakings(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0")
	const first = "FROM modbox/base\nRUN echo first > /first\n" // a layer of the cache, over which the interrupted step runs
	noFiles := func() io.Reader { return strings.NewReader(strings.Repeat("\x00", 1024)) }
	if _, err := s.Images.Build(t.Context(), client.ImageBuildOptions{Dockerfile: []byte(first)}, noFiles(), nil); err != nil {
		t.Fatal(err)
	}
	images := names(t, s, "images/images")
	boxed := func() bool { return len(s.Leftovers()) > 0 }
	building := func() bool { return len(names(t, s, "images/tmp")) > 0 }
	create := func(o client.CreateOptions) func(context.Context) {
		return func(ctx context.Context) {
			o.WaitUpTo = 5 * time.Minute
			_, _ = s.Sandboxes.Create(ctx, o) // the server is killed under it
		}
	}
	for _, c := range []struct {
		name    string
		begin   func(context.Context)
		under   func() bool
		destroy bool // the sandbox, as soon as the next server answers
	}{
		{"build of a snapshot", func(ctx context.Context) {
			_, _, _ = s.Snapshots.Build(ctx, client.SnapshotBuildOptions{ // the server is killed under it
				SnapshotOptions: client.SnapshotOptions{Name: "cut"}, Runtime: "modbox/code-exec", NpmPackages: []string{"is-odd"},
				Files: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(tarGz(t, 1))), nil },
			})
		}, boxed, false},
		{"packages", create(client.CreateOptions{Image: "modbox/code-exec", NpmPackages: []string{"is-even"}}), boxed, false},
		{"Debian packages", create(client.CreateOptions{Image: "modbox/base", AptPackages: []string{"sl"}}), boxed, true},
		{"build of a Dockerfile", func(ctx context.Context) {
			o := client.ImageBuildOptions{Tag: "cut", Dockerfile: []byte(first + "RUN head -c 300M /dev/urandom > /big && sleep 60\n")}
			_, _ = s.Images.Build(ctx, o, noFiles(), nil) // the server is killed under it
		}, boxed, false},
		{"runtime", create(client.CreateOptions{Image: "bun:1"}), building, true},
		{"runtime again", create(client.CreateOptions{Image: "bun:1"}), building, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var begun sync.WaitGroup
		begun.Go(func() { c.begin(ctx) })
		until(t, c.name+" to be under way", c.under)
		// The moment is random on purpose: between any two steps.
		<-time.After(time.Duration(rand.IntN(1500)) * time.Millisecond)
		s.Kill()
		cancel()
		begun.Wait()
		s.Launch()
		if !c.destroy {
			until(t, c.name+": sandboxes to reach an end", func() bool { return len(inBetween(t, s)) == 0 })
		}
		ran := sandboxes(t, s, client.Running)
		for _, id := range append(sandboxes(t, s, client.Provisioning), ran...) {
			if _, err := s.Sandboxes.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if len(ran) > 0 { // its root filesystem was made
			images = names(t, s, "images/images")
		}
		page, err := s.Sandboxes.List(client.ListOptions{States: []client.State{client.Failed}}).Page(t.Context(), client.PageOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page.Items {
			if sb.Cause == nil || sb.Cause.Code != "host_restart" && sb.Cause.Code != "image" {
				t.Errorf("%s: a sandbox has failed for %+v, want a reason", c.name, sb.Cause)
			}
		}
		until(t, c.name+": boxes to be removed", func() bool { return len(s.Leftovers()) == 0 })
		until(t, c.name+": tools on the host to end", func() bool { return len(working(s)) == 0 })
		if snapshots, err := s.Snapshots.List(client.SnapshotFilter{}).Page(t.Context(), client.PageOptions{}); err != nil || len(snapshots.Items) > 0 {
			t.Errorf("%s: snapshots %+v, %v, want none", c.name, snapshots.Items, err)
		}
		for _, dir := range []string{"spool", "images/tmp"} {
			until(t, c.name+": "+dir+" to be empty", func() bool { return len(names(t, s, dir)) == 0 })
		}
		if d := cmp.Diff(images, names(t, s, "images/images")); d != "" {
			t.Errorf("%s: root filesystems (-before +after):\n%s", c.name, d)
		}
	}
	// The interrupted work succeeds now, up to the message of its tool.
	sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", NpmPackages: []string{"is-odd"}, WaitUpTo: 5 * time.Minute})
	if err != nil || sb.Cause == nil || !strings.Contains(sb.Cause.Message, "neither npm nor bun") {
		t.Errorf("after all: %+v, %v, want a failure that says there is no npm", sb, err)
	}
}
