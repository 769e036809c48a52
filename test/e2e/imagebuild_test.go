package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// tarOf returns a tar of files.
func tarOf(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// built is the outcome of a build.
type built struct {
	image  *client.Image
	steps  int
	cached []string
	output string
}

// buildImage builds an image of a Dockerfile and files.
func buildImage(t *testing.T, s *testserver.Server, o client.ImageBuildOptions, files map[string]string) (built, error) {
	t.Helper()
	var b built
	var err error
	b.image, err = s.Images.Build(t.Context(), o, tarOf(t, files), func(e client.ImageBuildEvent) {
		switch {
		case e.Type == "step" && e.Cached:
			b.cached = append(b.cached, strings.Fields(e.Instruction)[0])
		case e.Type == "step":
			b.steps++
		}
		b.output += string(e.Data)
	})
	return b, err
}

// mustBuild is buildImage for what must go well.
func mustBuild(t *testing.T, s *testserver.Server, o client.ImageBuildOptions, files map[string]string) built {
	t.Helper()
	b, err := buildImage(t, s, o, files)
	if err != nil {
		t.Fatalf("build: %v; output:\n%s", err, b.output)
	}
	return b
}

const stagesDockerfile = `ARG BASE=nowhere
FROM $BASE AS tools
WORKDIR /make
COPY src/ ./
RUN mkdir out && cat a.txt b.txt > out/both && ln -s both out/link && echo "made in $PWD"
FROM $BASE
ARG GREETING=hello
ENV WHO=world TEXT="$GREETING from env"
RUN ["/bin/sh", "-c", "echo \"$TEXT, $WHO\" > /greeting && id -u > /who"]
COPY src/a.txt /tmp/in
RUN cp /tmp/in /tmp/out
RUN cmp /tmp/in /tmp/out && rm /tmp/out
RUN groupadd -g 4321 crew && useradd -u 4321 -g crew -m crew
COPY --from=tools --chown=crew:crew --chmod=0750 /make/out/ /srv/out/
USER crew
WORKDIR data
RUN id -un > me && touch made
COPY . /ctx
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["cat /greeting"]
EXPOSE 8080
LABEL a=b
`

func TestImageBuild(t *testing.T) {
	s := testserver.Start(t)
	files := map[string]string{
		"Dockerfile": stagesDockerfile, "src/a.txt": "A\n", "src/b.txt": "B\n", "secret.key": "hush", "keep/x.log": "x", "keep/y.log": "y",
		".dockerignore": "*.key\n**/*.log\n!keep/x.log\n",
	}
	o := client.ImageBuildOptions{Tag: "app:v1", BuildArgs: map[string]string{"BASE": "modbox/base", "GREETING": "hi"}}
	first := mustBuild(t, s, o, files)
	if first.image.Ref != "app:v1" || len(first.cached) != 0 || !strings.Contains(first.output, "made in /make") {
		t.Errorf("built %+v", first)
	}
	sb := s.MustCreate(client.CreateOptions{Image: "app:v1"})
	out := s.Bash(sb.ID, `cat /greeting /who; stat -c '%n %U:%G %a' /srv/out /srv/out/both; readlink /srv/out/link; cat /srv/out/link
		pwd; id -un; cat me; stat -c %U made .; find /ctx -type f | sort; echo $TEXT; test -e /make || echo not made`, time.Minute)
	want := `hi from env, world
0
/srv/out crew:crew 755
/srv/out/both crew:crew 750
both
A
B
/workspace/data
crew
crew
crew
crew
/ctx/.dockerignore
/ctx/Dockerfile
/ctx/keep/x.log
/ctx/src/a.txt
/ctx/src/b.txt
hi from env
not made
`
	if d := cmp.Diff(want, string(out.Stdout)); d != "" || len(out.Stderr) > 0 {
		t.Errorf("in a sandbox of it (-want +got):\n%s%s", d, out.Stderr)
	}

	again := mustBuild(t, s, o, files)
	if d := cmp.Diff([]string{"WORKDIR", "COPY", "RUN", "RUN", "COPY", "RUN", "RUN", "RUN", "COPY", "WORKDIR", "RUN", "COPY"}, again.cached); d != "" || again.image.Digest != first.image.Digest {
		t.Errorf("built again: digest %s, was %s; cached (-want +got):\n%s", again.image.Digest, first.image.Digest, d)
	}
}

func TestImageBuildFails(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0")
	b, err := buildImage(t, s, client.ImageBuildOptions{Tag: "app"}, map[string]string{
		"Dockerfile": "FROM modbox/base\nRUN echo one; \\\n  echo two >&2; exit 3\n",
	})
	var failed *client.ImageBuildError
	both := b.output == "one\ntwo\n" || b.output == "two\none\n" // two streams have no order among them
	if !errors.As(err, &failed) || failed.Line != 2 || failed.ExitCode != 3 || !both {
		t.Errorf("build: %v (%+v), output %q", err, failed, b.output)
	}
	if left := s.Left(""); len(left) > 0 {
		t.Errorf("a failed build left %v", left)
	}
}

// TestImageBuildEndsWithItsClient: nothing of it goes on.
func TestImageBuildEndsWithItsClient(t *testing.T) {
	s := testserver.Start(t, "--pool-size", "0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := s.Images.Build(ctx, client.ImageBuildOptions{}, tarOf(t, map[string]string{"Dockerfile": "FROM modbox/base\nRUN echo begun; sleep 1000\n"}),
		func(e client.ImageBuildEvent) {
			if strings.Contains(string(e.Data), "begun") {
				cancel()
			}
		})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("build: %v", err)
	}
	if left := s.Left(""); len(left) > 0 {
		t.Errorf("the build left %v", left)
	}
}

// runBuild runs modbox build.
func runBuild(t *testing.T, s *testserver.Server, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testserver.Binary(t), append([]string{"build"}, args...)...)
	cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	return string(out), said.String(), err
}

func TestBuildCommand(t *testing.T) {
	s := testserver.Start(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"Dockerfile": "FROM modbox/base\nCOPY . /app\nRUN ls -A /app\n", "a": "1", "b.tmp": "2", ".dockerignore": "*.tmp\nDockerfile\n",
	})
	out, said, err := runBuild(t, s, "-t", "cli", dir)
	if err != nil || out != "cli:latest\n" || !strings.Contains(said, "[3/3] RUN ls -A /app\n.dockerignore\na\n") {
		t.Errorf("modbox build: %q, %v:\n%s", out, err, said)
	}
	if out, said, err = runBuild(t, s, "-t", "cli", dir); err != nil || strings.Count(said, "CACHED\n") != 2 {
		t.Errorf("modbox build again: %q, %v:\n%s", out, err, said)
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte("FROM modbox/base\nRUN --mount=type=cache,target=/x true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said, err = runBuild(t, s, dir); err == nil || !strings.Contains(said, "line 2: RUN --mount is not supported") {
		t.Errorf("modbox build of what is not supported: %v:\n%s", err, said)
	}
}

// TestImageBuildOnWhatThereIs builds on a snapshot and on a built image, with here
// documents, and pushes to a registry that wants credentials.
func TestImageBuildOnWhatThereIs(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/base"})
	s.Bash(sb.ID, "echo kept > kept", time.Minute)
	if _, err := s.Snapshots.Create(t.Context(), sb.ID, client.SnapshotOptions{Name: "saved"}); err != nil {
		t.Fatal(err)
	}
	mustBuild(t, s, client.ImageBuildOptions{Tag: "middle"}, map[string]string{"Dockerfile": `FROM saved
USER 0
RUN <<EOF
#!/usr/bin/env -S bash -e
array=(a b)
echo "${array[1]} from $0" > /script
EOF
RUN <<EOF
echo one > /lines
echo two >> /lines
EOF
ARG NAME=ann
COPY <<EOF /etc/inline.conf
user=$NAME
EOF
`})
	reg := startRegistry(t)
	reg.on(basicAuth)
	to := reg.host + "/team/built:v1"
	o := client.ImageBuildOptions{Tag: to, Push: true}
	last := map[string]string{"Dockerfile": "FROM middle\nENV A=b\nCMD [\"sleep\", \"infinity\"]\n"}
	if _, err := buildImage(t, s, o, last); err == nil || !strings.Contains(err.Error(), "other credentials") {
		t.Fatalf("push without credentials: %v", err)
	}
	if _, said, code := run(t, s, registryPassword, "registry", "add", reg.host, "--username", "ann", "--password-stdin"); code != 0 {
		t.Fatal(said)
	}
	b := mustBuild(t, s, o, last)
	if _, said, code := run(t, s, "", "images", "rm", to); code != 0 {
		t.Fatal(said)
	}
	pulled := s.MustCreate(client.CreateOptions{Image: to})
	if pulled.ImageDigest == b.image.Digest {
		t.Errorf("the sandbox is made of what was discarded, not of what the registry has")
	}
	out := s.Bash(pulled.ID, "cat kept /script /lines /etc/inline.conf; echo $A", time.Minute)
	if want := "kept\nb from /dev/shm/build-script\none\ntwo\nuser=ann\nb\n"; string(out.Stdout) != want {
		t.Errorf("in a sandbox of what was pulled: %q, %s, want %q", out.Stdout, out.Stderr, want)
	}
}

// TestImageBuildsFillTheDisk: what is built counts for the workspace's disk, and what turns
// out not to fit is not kept.
func TestImageBuildsFillTheDisk(t *testing.T) {
	s := testserver.Start(t)
	ws, err := s.Workspaces.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	used := func() client.DiskUse {
		t.Helper()
		q, err := s.Workspaces.Quota(t.Context(), ws[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		return q.Used.DiskBy
	}
	app := mustBuild(t, s, client.ImageBuildOptions{Tag: "app"}, map[string]string{"Dockerfile": "FROM modbox/base\nRUN echo hello > /hello\n"})
	first := used()
	if first.ImageBytes == 0 || first.ImageBytes > app.image.SizeBytes/4 || first.BuildCacheBytes > 64<<10 {
		t.Errorf("after a build of an image of %d bytes with the built-in image below: %+v, want the bytes of a layer", app.image.SizeBytes, first)
	}
	// The disk has space for a box, and not for a layer of 20 MiB, which has a compressed copy.
	if _, err := s.Workspaces.SetQuota(t.Context(), ws[0].ID, client.Quota{Disk: fmt.Sprint(first.ImageBytes + first.BuildCacheBytes + 32<<20)}); err != nil {
		t.Fatal(err)
	}
	big, err := buildImage(t, s, client.ImageBuildOptions{Tag: "more"}, map[string]string{"Dockerfile": "FROM modbox/base\nRUN head -c 20971520 /dev/urandom > /more && stat -c 'wrote %s' /more\n"})
	if !client.IsCode(err, client.QuotaExceeded) || !strings.Contains(err.Error(), "quota of disk") || !strings.Contains(big.output, "wrote 20971520") {
		t.Errorf("a build of what the disk has no space for: %v, output %q, want the refusal after the end of its step", err, big.output)
	}
	if d := cmp.Diff(first, used()); d != "" {
		t.Errorf("used after it (-before +after):\n%s", d)
	}
	if _, err := s.Workspaces.SetQuota(t.Context(), ws[0].ID, client.Quota{Disk: fmt.Sprint(first.ImageBytes + first.BuildCacheBytes)}); err != nil {
		t.Fatal(err)
	}
	_, err = buildImage(t, s, client.ImageBuildOptions{Tag: "more"}, map[string]string{"Dockerfile": "FROM scratch\nWORKDIR /w\n"})
	if !client.IsCode(err, client.QuotaExceeded) {
		t.Errorf("a build on a full disk: %v", err)
	}
	if err := s.Images.Delete(t.Context(), app.image.ID); err != nil {
		t.Fatal(err)
	}
	if now := used(); now.ImageBytes != 0 || now.BuildCacheBytes != first.ImageBytes+first.BuildCacheBytes {
		t.Errorf("used after the image was removed: %+v, before %+v", now, first)
	}
}
