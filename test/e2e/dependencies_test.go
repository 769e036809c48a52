package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestDependencies installs packages from the real mirrors, so it bounds no time.
func TestDependencies(t *testing.T) {
	t.Parallel() // it waits for mirrors
	_, args := mirrors(t)
	s := testserver.Start(t, args...)
	start := func(o client.CreateOptions) *client.Sandbox {
		t.Helper()
		o.WaitUpTo = 8 * time.Minute
		sb, err := s.Sandboxes.Create(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	says := func(sb *client.Sandbox, line, want string) {
		t.Helper()
		if sb.State != client.Running {
			t.Fatalf("sandbox is %s: %+v", sb.State, sb.Cause)
		}
		if res := s.Bash(sb.ID, line, time.Minute); !strings.Contains(string(res.Stdout), want) || res.ExitCode != 0 {
			t.Errorf("%s\nended with %d: %s%s, want %q", line, res.ExitCode, lastOf(res.Stdout), lastOf(res.Stderr), want)
		}
	}
	o := client.CreateOptions{Image: codeExec, AptPackages: []string{"sl", "bc=1*"}, NpmPackages: []string{"is-odd"}}
	// Two at once share the work.
	results := make(chan *client.Sandbox, 2)
	for range 2 {
		go func() {
			sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{
				Image: o.Image, AptPackages: o.AptPackages, NpmPackages: o.NpmPackages, WaitUpTo: 8 * time.Minute,
			})
			if err != nil {
				t.Error(err)
			}
			results <- sb
		}()
	}
	first, second := <-results, <-results
	if first == nil || second == nil {
		t.FailNow()
	}
	says(first, "test -x /usr/games/sl && echo 6*7 | bc", "42")
	says(second, `cd "$(npm root -g)" && ls`, "is-odd")
	// The image does not contain what only the tools needed, and the sandbox has no network.
	says(first, "ls -A /var/lib/apt/lists | wc -l; stat -c %s /etc/resolv.conf", "0\n0")
	if first.ImageDigest != second.ImageDigest {
		t.Errorf("root filesystems %s and %s, want one", first.ImageDigest, second.ImageDigest)
	}
	third := start(o)
	says(third, "echo 6*7 | bc", "42")
	events, err := s.Sandboxes.Events(third.ID, client.EventsOptions{}).Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Type == "image_building" {
			t.Errorf("a sandbox with what was installed before waited for %q", e.Message)
		}
	}
	checks, err := s.Images.ValidateAptPackages(t.Context(), "", []string{"bc=1*", "bc=999*", "no-such-package-anywhere"})
	if err != nil || len(checks.Valid) != 1 || len(checks.Invalid) != 2 || len(checks.Invalid[0].Versions) == 0 {
		t.Errorf("ValidateAptPackages() = %+v, %v, want only the first valid", checks, err)
	}
	for _, c := range []struct {
		o    client.CreateOptions
		want string
	}{
		{client.CreateOptions{Image: codeExec, AptPackages: []string{"no-such-package-anywhere"}}, "Unable to locate package no-such-package-anywhere"},
		{client.CreateOptions{Image: codeExec, NpmPackages: []string{"is-odd@999.999.999"}}, "npm ended with code 1"},
		{client.CreateOptions{Image: "modbox/base", NpmPackages: []string{"is-odd"}}, "neither npm nor bun"},
	} {
		sb := start(c.o)
		if sb.Cause == nil || sb.Cause.Code != "image" || !strings.Contains(sb.Cause.Message, c.want) {
			t.Errorf("sandbox is %s, cause %+v, want %q", sb.State, sb.Cause, c.want)
		}
	}
}

// TestDependenciesCount checks that installed packages count for the workspaces that use them, and
// are stored once.
func TestDependenciesCount(t *testing.T) {
	t.Parallel() // it waits for mirrors
	_, args := mirrors(t)
	s := testserver.Start(t, append(args, "--pool-size", "0")...)
	ws, err := s.Workspaces.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	quota := func(id string) client.QuotaUsed {
		t.Helper()
		q, err := s.Workspaces.Quota(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return q.Used
	}
	o := client.CreateOptions{Image: "modbox/base", AptPackages: []string{"sl"}, WaitUpTo: 8 * time.Minute}
	first, err := s.Sandboxes.Create(t.Context(), o)
	if err != nil || first.State != client.Running {
		t.Fatalf("sandbox is %+v, %v", first, err)
	}
	base, err := s.Images.Get(t.Context(), o.Image)
	if err != nil {
		t.Fatal(err)
	}
	left := quota(ws[0].ID).DiskBy.BuildCacheBytes
	if left == 0 || left > base.SizeBytes/4 {
		t.Errorf("after an install %d bytes of build cache count, want a layer over the %d of the image", left, base.SizeBytes)
	}
	if used := quota(ws[0].ID); used.Sandboxes != 1 || used.Memory != first.Resources.Memory {
		t.Errorf("after an install: %+v, want one sandbox's", used)
	}
	// When the quota is exhausted, packages installed before still work, and others do not fit.
	disk := int64(2<<30) + left
	if _, err := s.Workspaces.SetQuota(t.Context(), ws[0].ID, client.Quota{Disk: fmt.Sprint(disk)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	again, err := s.Sandboxes.Create(t.Context(), o)
	if err != nil || again.State != client.Running || again.ImageDigest != first.ImageDigest {
		t.Errorf("another with the same: %+v, %v", again, err)
	}
	if _, err := s.Sandboxes.Delete(t.Context(), again.ID); err != nil {
		t.Fatal(err)
	}
	o.AptPackages = []string{"bc"}
	other, err := s.Sandboxes.Create(t.Context(), o)
	if err != nil || other.Cause == nil || other.Cause.Code != "image" || !strings.Contains(other.Cause.Message, "quota of disk") {
		t.Errorf("one with others: %+v, %v, want it failed for the quota of disk", other, err)
	}
	if now := quota(ws[0].ID).DiskBy.BuildCacheBytes; now != left {
		t.Errorf("build cache after it: %d, before %d", now, left)
	}
	s.Kill()
	s.Launch()
	if now := quota(ws[0].ID).DiskBy.BuildCacheBytes; now != left {
		t.Errorf("build cache after the server was killed: %d, before %d", now, left)
	}
}

// TestKilledInstallation kills a server while it installs packages, at another point of the work each time, and starts the next. The
// layer is there as a whole or not at all, nothing else stays, and the next installation works.
func TestKilledInstallation(t *testing.T) {
	_, args := mirrors(t)
	s := testserver.Start(t, append(args, "--pool-size", "0")...)
	files := func(dir string) int {
		t.Helper()
		list, err := filepath.Glob(filepath.Join(s.StateDir, "images", dir))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	const roots, work = "images/*.erofs", "tmp/*"
	images, packages := files(roots), []string{"sl", "bc"}
	for n, name := range packages {
		o := client.CreateOptions{Image: "modbox/base", AptPackages: []string{name}, WaitUpTo: 8 * time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.Sandboxes.Create(ctx, o) // the server is killed under it
		}()
		for begun := false; !begun; {
			select {
			case <-done:
				begun = true
			case <-time.After(time.Millisecond):
				begun = n == 0 && len(s.Leftovers()) > 0 || files(work) > 0
			}
		}
		<-time.After(time.Duration(n) * 20 * time.Millisecond) // the layer is being written, or nearly done
		s.Kill()
		cancel()
		<-done
		s.Launch()
		if got := files(work); got != 0 {
			t.Errorf("%s: %d temporary files are there after a kill", name, got)
		}
		t.Logf("%s: the layer was complete before the kill: %v", name, files(roots) > images+n)
		sb := s.MustCreate(o)
		if res := s.Bash(sb.ID, "dpkg -s "+name+" && dpkg --verify "+name+" && ls /usr/bin | wc -l", time.Minute); res.ExitCode != 0 {
			t.Errorf("%s after a kill: %s%s", name, lastOf(res.Stdout), lastOf(res.Stderr))
		}
		if _, err := s.Sandboxes.Delete(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
		if got := files(roots); got != images+n+1 {
			t.Errorf("%s: %d root filesystems, want %d with the installations", name, got, images+n+1)
		}
		info, err := os.Stat(rootFile(s, sb.ImageDigest))
		if err != nil || info.Size() > 20<<20 {
			t.Errorf("%s: the layer has %d bytes, %v", name, info.Size(), err)
		}
	}
}
