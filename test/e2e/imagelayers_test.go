package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// manyChanges makes, replaces and removes files in every way, in few enough steps that each is a layer.
const manyChanges = `FROM modbox/base
USER 0
RUN mkdir -p /d/sub /d/gone/deep /d/dir-then-file/k /d/again && echo 1 > /d/one && echo 2 > /d/two && echo x > /d/sub/x && echo g > /d/gone/deep/g && \
    ln /d/one /d/hard && chmod 4711 /d/two && chown 12:34 /d/sub && chmod 2750 /d/sub && mkfifo /d/pipe && ln -s one /d/link && \
    echo f > /d/file-then-dir && echo k > /d/dir-then-file/k/k && echo old > /d/again/old && touch -d 2001-02-03T04:05:06Z /d/two && echo tmp > /tmp/kept
COPY one /d/one
RUN grep -q copied /d/one && grep -q 1 /d/hard && rm -r /d/gone /d/again && mkdir /d/gone /d/again && echo new > /d/again/new && \
    rm -r /d/dir-then-file && echo now > /d/dir-then-file && rm /d/file-then-dir && mkdir /d/file-then-dir && echo k > /d/file-then-dir/k && \
    grep -q tmp /tmp/kept && echo more >> /tmp/kept && rm -r /usr/share/doc && rm /etc/debian_version && chmod 700 /d/sub
COPY --chown=5:6 one /d/gone/deep/
RUN test ! -e /d/gone/deep/g && test ! -e /d/again/old && ln /d/two /d/two-again && echo 3 >> /d/two && mv /d/sub /d/moved && cp /tmp/kept /d/from-tmp && rm /tmp/kept && echo tmp > /tmp/other
`

// moreChanges adds steps until one has the files of all before, and goes on over that.
const moreChanges = `
RUN echo 1 > /d/one && rm -r /d/again
RUN mkdir /d/again && echo back > /d/again/old
COPY one /d/moved/x
RUN rm /d/two && grep -q 3 /d/two-again
RUN rm -r /d/moved && test ! -e /d/moved
COPY one /d/moved
RUN grep -q copied /d/moved && grep -q back /d/again/old && grep -q tmp /tmp/other && chown 7:8 /d/again/old
RUN rm -r /d/file-then-dir && ln -s again /d/file-then-dir && echo through > /d/file-then-dir/through
`

// everything lists the files of a sandbox without files that the agent writes.
const everything = `find / -xdev \( -path /.modbox -o -path /tmp -o -path /dev -o -path /proc -o -path /sys -o -path /etc/hosts -o -path /etc/hostname -o -path /etc/resolv.conf \) -prune \
	-o -type d \( \( -path / -o -path /etc \) -printf '%p %y %m %U:%G\n' -o -printf '%p %y %m %U:%G %T@\n' \) -o -printf '%p %y %m %U:%G %s %T@ %l\n' | sort
find /d -type f -exec md5sum {} + | sort`

// TestStepsAreLayers compares images whose steps are layers with what a registry gives back of them, a single
// root filesystem each: all files are the same, and the layers take only the space of what the steps changed.
func TestStepsAreLayers(t *testing.T) {
	s := testserver.Start(t)
	reg := startRegistry(t)
	ws, err := s.Workspaces.List().Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := func(ref string) string {
		t.Helper()
		sb := s.MustCreate(client.CreateOptions{Image: ref})
		out := s.Bash(sb.ID, everything, 5*time.Minute)
		if n := strings.Count(string(out.Stdout), "\n"); n < 1000 || len(out.Stderr) > 0 {
			t.Errorf("%s has %d files: %s", ref, n, out.Stderr)
		}
		return string(out.Stdout)
	}
	base, err := s.Images.Get(t.Context(), "modbox/base")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tag, dockerfile string
		space           int64 // the most that it may take with what was built before
	}{{"short", manyChanges, base.SizeBytes / 4}, {"long", manyChanges + moreChanges, base.SizeBytes / 4}} {
		ref := reg.host + "/team/layers:" + c.tag
		files := map[string]string{"Dockerfile": c.dockerfile, "one": "copied\n"}
		img := mustBuild(t, s, client.ImageBuildOptions{Tag: ref, Push: true}, files).image
		if img.SizeBytes <= base.SizeBytes/2 {
			t.Errorf("%s has %d bytes, modbox/base %d", c.tag, img.SizeBytes, base.SizeBytes)
		}
		q, err := s.Workspaces.Quota(t.Context(), ws[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		by := q.Used.DiskBy
		t.Logf("%s: %d bytes, takes %d as image and %d as cache; modbox/base has %d", c.tag, img.SizeBytes, by.ImageBytes, by.BuildCacheBytes, base.SizeBytes)
		if by.ImageBytes+by.BuildCacheBytes > c.space {
			t.Errorf("after the build of %s the images take %+v, want %d at most", c.tag, by, c.space)
		}
		layered := list(ref)
		if _, said, code := run(t, s, "", "images", "rm", ref); code != 0 {
			t.Fatal(said)
		}
		if d := cmp.Diff(list(ref), layered); d != "" {
			t.Errorf("%s differs (-as pulled +in layers):\n%.5000s", c.tag, d)
		}
	}
}
