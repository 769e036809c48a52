package e2e_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// writeFiles writes executable files below a directory.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// buildSnapshot runs modbox snapshot build and returns the ID that it printed, and its progress
// output.
func buildSnapshot(t *testing.T, s *testserver.Server, dir string, args ...string) (id, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testserver.Binary(t), append([]string{"snapshot", "build", dir}, args...)...)
	cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
	var stderr bytes.Buffer
	cmd.Stderr = io.MultiWriter(&stderr, t.Output())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("snapshot build: %v", err)
	}
	return strings.TrimSpace(string(out)), stderr.String()
}

func TestDeclarativeBuild(t *testing.T) {
	s := testserver.Start(t)
	dir := t.TempDir()
	files := map[string]string{
		"modbox-snapshot.yaml": "version: 1\nruntime: modbox/base\nname: app\nfiles: ['src/**', '!**/*.log']\nenv: {GREETING: \"hello ${WHO}\"}\nmetadata: {commit: \"${C}\"}\n",
		"src/run.sh":           "echo $GREETING from $0\n", "src/x.log": "noise", "src/ü.txt": "content",
	}
	writeFiles(t, dir, files)
	build := func(args ...string) string {
		t.Helper()
		id, _ := buildSnapshot(t, s, dir, append([]string{"--env", "WHO=world", "--metadata", "C=abc"}, args...)...)
		return id
	}
	id := build()
	sn, err := s.Snapshots.Get(t.Context(), "app")
	if err != nil || sn.ID != id || sn.ContentHash == "" || sn.Metadata["commit"] != "abc" || sn.SandboxID != "" {
		t.Fatalf("built %s, found %+v, %v", id, sn, err)
	}
	sb := s.MustCreate(client.CreateOptions{Snapshot: "app"})
	out := s.Bash(sb.ID, "sh src/run.sh; ls -A src; stat -c %U src/run.sh; id -un", time.Minute)
	user := strings.Fields(string(out.Stdout))
	if !strings.HasPrefix(string(out.Stdout), "hello world from src/run.sh\nrun.sh\nü.txt\n") || user[len(user)-1] != user[len(user)-2] {
		t.Errorf("in a sandbox of the build: %q, %s", out.Stdout, out.Stderr)
	}
	if again := build(); again != id {
		t.Errorf("the same content gave %s, want %s as before", again, id)
	}
	forced := build("--force", "--tag", "v2")
	if second, err := s.Snapshots.Get(t.Context(), "app:v2"); err != nil || forced == id || second.ID != forced || second.Digest == "" {
		t.Errorf("forced build %s: %+v, %v", forced, second, err)
	}
}

// TestDeclarativeBuildInstallsPackages builds with everything a build file can
// have. It installs from the real mirrors, so it bounds no time.
func TestDeclarativeBuildInstallsPackages(t *testing.T) {
	t.Parallel() // it waits for mirrors
	_, args := mirrors(t)
	s := testserver.Start(t, args...)
	dir := t.TempDir()
	const description = "version: 1\nruntime: " + codeExec + "\nname: tools\ndescription: what it needs\n" +
		"apt_packages: [bc=1*]\nnpm_packages: [is-odd]\nfiles: [lib]\nenv: {ANSWER: '6*7'}\nmetadata: {team: a}\n"
	writeFiles(t, dir, map[string]string{"modbox-snapshot.yaml": description, "lib/run.sh": `echo "$ANSWER" | bc` + "\n"})
	id, said := buildSnapshot(t, s, dir)
	if !strings.Contains(said, "tools: uploading: its files\n") || !strings.Contains(said, "tools: installing: ") {
		t.Errorf("the build said %q, want its phases", said)
	}
	sn, err := s.Snapshots.Get(t.Context(), "tools:latest")
	if err != nil || sn.ID != id || sn.Description != "what it needs" || sn.Metadata["team"] != "a" || sn.LayerBytes == 0 {
		t.Fatalf("built %s, found %+v, %v", id, sn, err)
	}
	if again, said := buildSnapshot(t, s, dir); again != id || !strings.Contains(said, "unchanged") {
		t.Errorf("the same content gave %s and said %q, want %s and that it is unchanged", again, said, id)
	}
	sb := s.MustCreate(client.CreateOptions{Snapshot: "tools"})
	res := s.Bash(sb.ID, `sh lib/run.sh; ls "$(npm root -g)" | grep is-odd; stat -c %s /etc/resolv.conf; ls -A /var/lib/apt/lists | wc -l`, time.Minute)
	if got, want := string(res.Stdout), "42\nis-odd\n0\n0\n"; got != want {
		t.Errorf("in a sandbox of the build: %q, %s, want %q", got, res.Stderr, want)
	}

	// Other files with the same packages: the installed packages are used again.
	writeFiles(t, dir, map[string]string{"lib/run.sh": `echo "$ANSWER + 1" | bc` + "\n"})
	changed, _ := buildSnapshot(t, s, dir)
	after, err := s.Snapshots.Get(t.Context(), "tools")
	if err != nil || after.ID != changed || after.ID == id || after.ParentID != id || after.BaseDigest != sn.BaseDigest {
		t.Errorf("a build of other files on the same packages: %+v, %v, want parent %s and base %s", after, err, id, sn.BaseDigest)
	}
	sb = s.MustCreate(client.CreateOptions{Snapshot: "tools"})
	if res := s.Bash(sb.ID, "sh lib/run.sh", time.Minute); string(res.Stdout) != "43\n" {
		t.Errorf("in a sandbox of the second build: %q, %s", res.Stdout, res.Stderr)
	}

	// A build whose tools fail says why, and leaves nothing.
	_, _, err = s.Snapshots.Build(t.Context(), client.SnapshotBuildOptions{
		SnapshotOptions: client.SnapshotOptions{Name: "wrong"}, Runtime: codeExec, AptPackages: []string{"no-such-package-anywhere"},
	})
	if !client.IsCode(err, client.Invalid) || !strings.Contains(err.Error(), "Unable to locate package no-such-package-anywhere") {
		t.Errorf("a build with an unknown package: %v, want what apt-get said", err)
	}
	page, err := s.Snapshots.List(client.SnapshotFilter{Name: "wrong"}).Page(t.Context(), client.PageOptions{})
	if err != nil || len(page.Items) > 0 {
		t.Errorf("snapshots of a build that failed: %+v, %v", page.Items, err)
	}
}
