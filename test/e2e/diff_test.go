package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// changesOf returns the diff of a sandbox.
func changesOf(t *testing.T, s *testserver.Server, ref, path string, pageSize int) (lines []string) {
	t.Helper()
	list := s.Client.Sandboxes.Files.Diff(ref, path)
	list.PageSize = pageSize
	for c, err := range list.All(t.Context()) {
		if err != nil {
			t.Fatalf("diff of %q: %v", path, err)
		}
		line := fmt.Sprintf("%s %s %s %s %d", c.Change, c.Path, c.Type, c.Mode, c.SizeBytes)
		if c.Before != nil {
			line += fmt.Sprintf(", was %s %s", c.Before.Type, c.Before.Mode)
		}
		lines = append(lines, line)
	}
	return lines
}

// change changes files of a sandbox.
func changeFiles(t *testing.T, s *testserver.Server, ref string) {
	t.Helper()
	bash(t, s, ref, `cd /srv && mkdir -p new/deep && echo one >new/one && ln new/one new/two && ln -s ../etc new/deep/link && truncate -s 5M big
		chmod 0700 /opt
		echo changed >/etc/debian_version && rm /etc/issue && rm -r /etc/skel && mkdir /etc/skel && echo x >/etc/skel/.profile
		rm -r /etc/profile.d && echo file >/etc/profile.d && mkdir /etc/untouched && rmdir /etc/untouched && echo t >/tmp/none && touch /usr/share/here`)
}

var changed = []string{
	"changed /etc/debian_version file 0644 8, was file 0644",
	"removed /etc/issue file 0644 ",
	"changed /etc/profile.d file 0644 5, was directory 0755",
	"removed /etc/skel/.bash_logout file 0644 ",
	"removed /etc/skel/.bashrc file 0644 ",
	"changed /etc/skel/.profile file 0644 2, was file 0644",
	"changed /opt directory 0700 0, was directory 0755",
	"added /srv/big file 0644 5242880",
	"added /srv/new directory 0755 0",
	"added /srv/new/deep directory 0755 0",
	"added /srv/new/deep/link symlink 0777 0",
	"added /srv/new/one file 0644 4",
	"added /srv/new/two file 0644 4",
	"added /usr/share/here file 0644 0",
}

// withoutSizes cuts the sizes of removed files, which the image decides.
func withoutSizes(lines []string) []string {
	var out []string
	for _, l := range lines {
		if strings.HasPrefix(l, "removed") {
			l = l[:strings.LastIndex(l, " ")+1]
		}
		out = append(out, l)
	}
	return out
}

// TestDiff: what a sandbox has written is listed, running and paused, of an image and of a snapshot, which has layers.
func TestDiff(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	fresh := changesOf(t, s, sb.ID, "", 0)
	if len(fresh) != 2 { // which the server writes
		t.Errorf("a new sandbox differs by %q, want /etc/hosts and /etc/hostname", fresh)
	}
	changeFiles(t, s, sb.ID)
	want := func(ref, path string, pageSize int, want []string) {
		t.Helper()
		got := slices.DeleteFunc(withoutSizes(changesOf(t, s, ref, path, pageSize)), func(l string) bool {
			return strings.Contains(l, " /etc/hosts ") || strings.Contains(l, " /etc/hostname ")
		})
		if !slices.Equal(got, want) {
			t.Errorf("diff of %q in pages of %d:\n%s\nwant\n%s", path, pageSize, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	for _, size := range []int{0, 1, 4} {
		want(sb.ID, "", size, changed)
	}
	want(sb.ID, "/etc/skel", 0, changed[3:6])
	want(sb.ID, "/etc/issue", 0, changed[1:2])
	want(sb.ID, "/usr/bin", 0, nil)
	if got := bash(t, s, sb.ID, "cat /srv/new/two"); got != "one\n" {
		t.Errorf("after the diff a file has %q", got)
	}
	out, errOut, code := run(t, s, "", "diff", sb.Name, "/etc/skel")
	if wantOut := "D /etc/skel/.bash_logout\nD /etc/skel/.bashrc\nC /etc/skel/.profile\n"; out != wantOut || code != 0 {
		t.Errorf("modbox diff = %q, %q, %d", out, errOut, code)
	}
	if out, _, code := run(t, s, "", "diff", sb.Name, "/etc/issue", "--original"); code != 0 || !strings.Contains(out, "Debian") {
		t.Errorf("modbox diff --original = %q, %d", out, code)
	}
	originals(t, s, sb.ID)
	sn, err := s.Client.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "d"})
	if err != nil {
		t.Fatal(err)
	}
	// The same from the saved files of a paused sandbox, which stays paused.
	if _, err := s.Client.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	want(sb.ID, "", 3, changed)
	if got, err := s.Client.Sandboxes.Get(t.Context(), sb.ID); err != nil || got.State != "paused" {
		t.Errorf("after the diff the sandbox is %+v, %v", got, err)
	}
	// A sandbox of the snapshot has a root of layers.
	over := s.MustCreate(client.CreateOptions{Snapshot: sn.ID})
	bash(t, s, over.ID, "rm -r /srv/new/deep && echo again >/srv/new/one && rm -r /etc/skel && touch /etc/issue")
	want(over.ID, "", 2, []string{
		"added /etc/issue file 0644 0", "removed /etc/skel directory 0755 ", "removed /srv/new/deep directory 0755 ",
		"changed /srv/new/one file 0644 6, was file 0644", // alone: overlay file systems do not keep hard links of lower layers together
	})
}

func bash(t *testing.T, s *testserver.Server, ref, line string) string {
	t.Helper()
	res := s.Bash(ref, line, time.Minute)
	if res.ExitCode != 0 {
		t.Fatalf("%q = %+v", line, res)
	}
	return string(res.Stdout)
}

func wantCode(t *testing.T, what string, err error, code client.Code) {
	t.Helper()
	if !client.IsCode(err, code) {
		t.Errorf("%s = %v, want code %s", what, err, code)
	}
}

// originals reads files of the image.
func originals(t *testing.T, s *testserver.Server, ref string) {
	t.Helper()
	body, err := s.Client.Sandboxes.Files.Original(t.Context(), ref, "/etc/skel/.bashrc")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if text, err := io.ReadAll(body); err != nil || !strings.Contains(string(text), "bash") {
		t.Errorf("the original has %q, %v", text, err)
	}
	for path, code := range map[string]client.Code{"/srv/new/one": client.FileNotFound, "/etc": client.Invalid, "/bin": client.Invalid, "etc/issue": client.Invalid} {
		_, err := s.Client.Sandboxes.Files.Original(t.Context(), ref, path)
		wantCode(t, path, err, code)
	}
	_, err = s.Client.Sandboxes.Files.Diff(ref, "/none").Collect(t.Context())
	wantCode(t, "/none", err, client.FileNotFound)
	_, err = s.Client.Sandboxes.Files.Diff(ref, "etc").Collect(t.Context())
	wantCode(t, "etc", err, client.Invalid)
}

// TestDiffsAreBounded: a workspace that asks for many diffs is refused, its sandbox goes on, and a snapshot of another is made.
func TestDiffsAreBounded(t *testing.T) {
	s := testserver.StartSmall(t)
	sb, other := s.MustCreate(client.CreateOptions{Image: "modbox/base"}), s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	bash(t, s, sb.ID, "head -c 200M /dev/zero >/srv/big")
	var wg sync.WaitGroup
	var mu sync.Mutex
	refused, answered := 0, 0
	for range 50 {
		wg.Go(func() {
			_, err := s.Client.Sandboxes.Files.Diff(sb.ID, "/srv").Collect(t.Context())
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				answered++
			case client.IsCode(err, client.QuotaExceeded):
				refused++
			default:
				t.Errorf("diff = %v", err)
			}
		})
	}
	if _, err := s.Client.Snapshots.Create(t.Context(), other.ID, client.SnapshotOptions{Name: "meanwhile"}); err != nil {
		t.Errorf("a snapshot meanwhile: %v", err)
	}
	wg.Wait()
	if refused == 0 || answered == 0 {
		t.Errorf("%d diffs were answered and %d refused, want some of both", answered, refused)
	}
	if got := bash(t, s, sb.ID, "echo here"); got != "here\n" {
		t.Errorf("afterwards a command prints %q", got)
	}
}

// TestDiffOfHostileNames: names and times that programs choose reach the client, in pages of any size.
func TestDiffOfHostileNames(t *testing.T) {
	s := testserver.StartSmall(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	bash(t, s, sb.ID, `mkdir /srv/h && cd /srv/h && touch $'a\nb' $'\xff\xfe' $'\x1b[31m' .wh.x "$(printf %0255d 0)" && touch -d @400000000000 late && ln -s "$(printf '\377%.0s' {1..4000})" to`)
	want := []string{"/srv/h", "/srv/h/\x1b[31m", "/srv/h/" + strings.Repeat("0", 255), "/srv/h/a\nb", "/srv/h/late", "/srv/h/to", "/srv/h/\ufffd\ufffd"}
	for _, size := range []int{0, 1, 3} {
		list := s.Client.Sandboxes.Files.Diff(sb.ID, "/srv/h")
		list.PageSize = size
		got := []string{}
		for c, err := range list.All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, c.Path); c.Path == "/srv/h/late" && c.ModTime.Year() < 2262 {
				t.Errorf("the time of a late file is %v", c.ModTime)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d the names are %q, want %q", size, got, want)
		}
	}
	out, _, code := run(t, s, "", "diff", sb.Name, "/srv/h")
	if code != 0 || strings.Count(out, "\n") != len(want) || strings.Contains(out, "\x1b") {
		t.Errorf("modbox diff = %q, %d", out, code)
	}
}

// TestDiffIsInterrupted: when a sandbox is destroyed while it is read for a diff, the diff ends with code ended, and when the
// server is killed meanwhile, the sandbox goes on with the next.
func TestDiffIsInterrupted(t *testing.T) {
	s := testserver.StartSmall(t)
	begin := func() (sandbox string, end chan error) {
		sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
		bash(t, s, sb.ID, "truncate -s 900M /srv/holes /srv/more")
		end = make(chan error, 1)
		go func() {
			_, err := s.Client.Sandboxes.Files.Diff(sb.ID, "").Collect(t.Context())
			end <- err
		}()
		for !isFrozen(t, s, sb.ID) {
			select {
			case err := <-end:
				t.Fatalf("the diff ends before the sandbox is seen to stand still: %v", err)
			default:
				time.Sleep(time.Millisecond)
			}
		}
		return sb.ID, end
	}
	destroyed, end := begin()
	if _, err := s.Client.Sandboxes.Delete(t.Context(), destroyed); err != nil {
		t.Error(err)
	}
	wantCode(t, "the diff of a sandbox that is destroyed", <-end, client.Ended)
	kept, end := begin()
	s.Kill()
	if err := <-end; err == nil {
		t.Error("a diff is answered by a server that was killed")
	}
	s.Launch()
	if got := bash(t, s, kept, "rm /srv/holes /srv/more; echo here"); got != "here\n" {
		t.Errorf("with the next server a command prints %q", got)
	}
	if isFrozen(t, s, kept) {
		t.Error("the sandbox counts as one that stands still")
	}
	if _, err := s.Client.Sandboxes.Files.Diff(kept, "/etc").Collect(t.Context()); err != nil {
		t.Errorf("the diff by the next server: %v", err)
	}
}

// isFrozen reports whether the driver has noted that a sandbox stands still.
func isFrozen(t *testing.T, s *testserver.Server, sandbox string) bool {
	t.Helper()
	state, err := os.ReadFile(filepath.Join(s.RunDir, "boxes", sandbox, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(state, []byte(`"held":true`))
}
