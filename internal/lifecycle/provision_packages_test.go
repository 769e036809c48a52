package lifecycle_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
	"golang.org/x/sys/unix"
)

// Capabilities claims isolation where a test wants it.
func (d *faultyDriver) Capabilities() driver.Capabilities {
	c := d.Driver.Capabilities()
	c.Isolated = d.isolated
	return c
}

// withTools makes an environment whose base image has, instead of the tools that
// install packages, scripts that log how they were called. The fake driver runs
// them on this machine: no other program is in their PATH.
func withTools(t *testing.T, scripts map[string]string) (e *env, calls func() []string) {
	t.Helper()
	e, _ = withNetwork(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		text := "#!/bin/sh\necho " + name + " \"$@\" >>" + log + "\n" + script
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e.images.list[0].Config.Env = []string{"PATH=" + bin}
	e.isolated = true
	return e, func() []string {
		data, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
}

const works = "exit 0\n"

func TestDependenciesAreInstalledOnce(t *testing.T) {
	e, calls := withTools(t, map[string]string{"apt-get": works, "mkdir": works, "find": works, "npm": works})
	s := e.start()
	req := lifecycle.CreateRequest{AptPackages: []string{"zip", "curl=8*"}, NpmPackages: []string{"typescript@5", "@a/b"}}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			sb, _, err := s.Create(t.Context(), e.caller, req)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := s.Wait(t.Context(), e.caller, string(sb.ID), sandbox.Running, time.Minute); err != nil || got.State != sandbox.Running {
				t.Errorf("state %s, %v, %v", got.State, got.Cause, err)
			}
		})
	}
	wg.Wait()
	want := []string{
		"apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 update -o APT::Update::Error-Mode=any",
		"mkdir -p /usr/share/man/man1 /usr/share/man/man2 /usr/share/man/man3 /usr/share/man/man4 /usr/share/man/man5 /usr/share/man/man6 /usr/share/man/man7 /usr/share/man/man8 /usr/share/man/man9",
		"apt-get -q -y -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 install --no-install-recommends -- zip curl=8*",
		"find /var/lib/apt/lists /var/cache/apt /var/log/apt -mindepth 1 -delete",
		"npm install --global --no-fund --no-audit -- typescript@5 @a/b",
	}
	if diff := cmp.Diff(want, calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	// The order and repetitions of the lists do not matter.
	sb := s.run(lifecycle.CreateRequest{AptPackages: []string{"curl=8*", "zip", "zip"}, NpmPackages: []string{"@a/b", "typescript@5"}})
	if diff := cmp.Diff([]string{"curl=8*", "zip", "zip"}, sb.AptPackages); diff != "" {
		t.Errorf("dependencies of the sandbox (-want +got):\n%s", diff)
	}
	if got := len(calls()); got != len(want) {
		t.Errorf("%d calls, want still %d", got, len(want))
	}
	if sb.ImageDigest == "sha256:1" || sb.Image != "modbox/base:latest" || sb.Network.Enabled {
		t.Errorf("sandbox of image %s (%s) with network %v, want another root filesystem than the base's and no network", sb.Image, sb.ImageDigest, sb.Network)
	}
	s.run(lifecycle.CreateRequest{AptPackages: []string{"zip"}})
	if got := len(calls()); got != len(want)+4 {
		t.Errorf("%d calls, want 4 more for other dependencies", got)
	}
	eventually(t, "the boxes in which they were installed are gone", func() bool {
		ids, err := s.driver.List(t.Context())
		return err == nil && len(ids) == 5
	})
}

func TestPipPackagesAreInstalled(t *testing.T) {
	for name, c := range map[string]struct{ index, want string }{
		"image": {"", "unset unset"},
		"https": {"https://index.example/simple", "https://index.example/simple unset"},
		"http":  {"http://index.example:81/simple", "http://index.example:81/simple index.example:81"},
	} {
		t.Run(name, func(t *testing.T) {
			e, calls := withTools(t, map[string]string{
				"apt-get": works, "mkdir": works, "find": works, "npm": works,
				"python3": "test $3 = --version || echo $PIP_BREAK_SYSTEM_PACKAGES ${PIP_INDEX_URL-unset} ${PIP_TRUSTED_HOST-unset} >>${0%/bin/python3}/log\n",
			})
			e.cfg.PipIndexURL = c.index
			s := e.start()
			req := lifecycle.CreateRequest{AptPackages: []string{"python3-pip"}, NpmPackages: []string{"a"}, PipPackages: []string{"b[c,d]==1.2.*", "e"}}
			first := s.run(req)
			log := calls()
			want := []string{"npm install --global --no-fund --no-audit -- a", "python3 -m pip --version", "python3 -m pip install -- b[c,d]==1.2.* e", "1 " + c.want}
			if diff := cmp.Diff(want, log[4:]); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			req.PipPackages = []string{"e", "b[c,d]==1.2.*"}
			again := s.run(req)
			if got := calls(); again.ImageDigest != first.ImageDigest || len(got) != len(log) || !slices.Equal(again.PipPackages, req.PipPackages) {
				t.Errorf("the same packages: image %s, recorded %q, calls %q", again.ImageDigest, again.PipPackages, got)
			}
			req.PipPackages = []string{"e"}
			s.run(req)
			if got := calls(); len(got) != 2*len(log) {
				t.Errorf("calls after other packages: %q", got)
			}
		})
	}
}

// TestDependenciesWaitWithTheirBase: the base image is not removed while the installation waits for
// its turn, and neither is the result before a row names it.
func TestDependenciesWaitWithTheirBase(t *testing.T) {
	e, _ := withTools(t, map[string]string{"apt-get": works, "mkdir": works, "find": works})
	e.cfg.MaxBuilds = 1
	s := e.start()
	release, err := s.Prepare().AcquireInstall(t.Context(), s.caller.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	s.store.faults.on(func(_ int, call string) error {
		if call == "driver.Create" && e.images.holders("sha256:1") == 0 && e.images.holding() == 1 {
			made.Add(1)
		}
		return nil
	}, nil)
	sb := s.create(lifecycle.CreateRequest{AptPackages: []string{"zip"}})
	eventually(t, "its base is held", func() bool { return e.images.holders("sha256:1") == 1 })
	release()
	s.reach(string(sb.ID), sandbox.Running)
	if made.Load() != 1 {
		t.Errorf("what its box is made of was held %d times, want 1", made.Load())
	}
	eventually(t, "nothing is held any more", func() bool { return e.images.holding() == 0 })
}

func TestDependenciesThatCannotBeInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		scripts map[string]string
		req     lifecycle.CreateRequest
		want    string
	}{
		"update":    {map[string]string{"apt-get": "echo no mirror; exit 100"}, lifecycle.CreateRequest{AptPackages: []string{"zip"}}, "apt_packages: apt-get ended with code 100: no mirror"},
		"install":   {map[string]string{"apt-get": "test $7 = update || { echo line >&2; echo E: no such package >&2; exit 100; }", "mkdir": works}, lifecycle.CreateRequest{AptPackages: []string{"zip"}}, "line; E: no such package"},
		"npm":       {map[string]string{"npm": "echo E404; exit 1"}, lifecycle.CreateRequest{NpmPackages: []string{"x"}}, "npm_packages: npm ended with code 1: E404"},
		"bun":       {map[string]string{"bun": "echo not found; exit 1"}, lifecycle.CreateRequest{NpmPackages: []string{"x"}}, "npm_packages: bun ended with code 1: not found"},
		"neither":   {nil, lifecycle.CreateRequest{NpmPackages: []string{"x"}}, "npm_packages: the image modbox/base:latest has neither npm nor bun"},
		"no_python": {nil, lifecycle.CreateRequest{PipPackages: []string{"x"}}, "pip_packages: the image modbox/base:latest has no pip; with Debian, add python3-pip to apt_packages"},
		"no_pip":    {map[string]string{"python3": "echo No module named pip >&2; exit 1"}, lifecycle.CreateRequest{PipPackages: []string{"x"}}, "pip_packages: the image modbox/base:latest has no pip"},
		"pip_package": {
			map[string]string{"python3": "test $3 = --version || { echo 'ERROR: No matching distribution found for x==9' >&2; exit 1; }"},
			lifecycle.CreateRequest{PipPackages: []string{"x==9"}}, "pip_packages: the index has no Python package x==9, or no version of it for this Python: python3 ended with code 1: ERROR:",
		},
		"pip_index": {
			map[string]string{"python3": "test $3 = --version || { { echo 'Failed to establish a new connection: [Errno -3]'; echo 'ERROR: No matching distribution found for x'; } >&2; exit 1; }"},
			lifecycle.CreateRequest{PipPackages: []string{"x"}}, "pip_packages: the index of Python packages cannot be reached: python3 ended with code 1: Failed",
		},
		"no_apt": {nil, lifecycle.CreateRequest{AptPackages: []string{"zip"}}, "apt_packages: the image modbox/base:latest has no apt-get"},
		"much": {
			map[string]string{"npm": "i=0; while [ $i -lt 1000 ]; do echo some line of output; i=$((i+1)); done; echo the end; exit 1"},
			lifecycle.CreateRequest{NpmPackages: []string{"x"}}, "some line of output; the end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := withTools(t, c.scripts)
			s := e.start()
			sb := s.reach(string(s.create(c.req).ID), sandbox.Failed)
			if sb.Cause.Code != sandbox.CauseImage || !strings.Contains(sb.Cause.Message, c.want) || len(sb.Cause.Message) > sandbox.MessageMax {
				t.Errorf("cause %s, want image and %q", sb.Cause, c.want)
			}
			eventually(t, "nothing is left", func() bool {
				ids, err := s.driver.List(t.Context())
				return err == nil && len(ids) == 0
			})
		})
	}
}

func TestInvalidDependencies(t *testing.T) {
	e, calls := withTools(t, nil)
	s := e.start()
	for _, name := range []string{"", "-y", "Curl", "a b", "curl;reboot", "curl-", "../x", "x=", "x=$(id)", "x=1 2", "x==1", "x=-1", strings.Repeat("x", 300), "curl\n", "a/b"} {
		_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{AptPackages: []string{"curl", name}})
		wantField(t, "dependency "+name, err, "apt_packages[1]")
	}
	for _, name := range []string{"", "-g", "a b", "a;b", "`id`", "a|b", "$x", "../x", "a/b", "git+ssh://x", "@a", "@a/", "x@", "x@-1", "x@a b", "file:x", "x\n"} {
		_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{NpmPackages: []string{name}})
		wantField(t, "package "+name, err, "npm_packages[0]")
	}
	for _, name := range []string{
		"", "-r", "--index-url=x", "a b", "a;b", "a ; python_version>'3'", "./x", "/x", "../x", "a/b", "x.whl", "x-1.0.tar.gz", "X.ZIP", "x==1.whl", "git+https://x", "x @ https://x",
		"https://x", "x>=1", "x~=1", "x===1", "x==", "x==*", "x==1.*.2", "x==1,==2", "x[", "x[]", "x[a,]", "x[a b]", "[a]", "x.", "_x", "x\n", "$x", strings.Repeat("x", 300),
	} {
		_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{PipPackages: []string{name}})
		wantField(t, "package "+name, err, "pip_packages[0]")
	}
	_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{NpmPackages: make([]string, sandbox.PackagesMax+1)})
	wantField(t, "too many", err, "npm_packages")
	if got := calls(); len(got) != 1 || got[0] != "" {
		t.Errorf("calls %q, want none", got)
	}
}

func fieldIn(err error) string {
	var e *sandbox.Error
	if errors.As(err, &e) {
		return e.Field
	}
	return ""
}

func wantField(t *testing.T, what string, err error, field string) {
	t.Helper()
	if got := fieldIn(err); sandbox.CodeOf(err) != sandbox.Invalid || got != field {
		t.Errorf("%s: %v (field %q), want %s refused", what, err, got, field)
	}
}

func TestDependenciesWithoutWhatTheyNeed(t *testing.T) {
	e, _ := withTools(t, nil)
	e.isolated = false // as the drivers of tests are
	s := e.start()
	_, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{AptPackages: []string{"zip"}})
	if sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("without isolation: %v, want unsupported", err)
	}
	s.stop()
	e.isolated, e.gateways = true, nil
	s = e.start()
	if _, _, err := s.Create(t.Context(), e.caller, lifecycle.CreateRequest{NpmPackages: []string{"x"}}); sandbox.CodeOf(err) != sandbox.Unsupported {
		t.Errorf("without network: %v, want unsupported", err)
	}
}

// TestKilledWhileInstalling checks that the next server installs again what its predecessor did not finish, and destroys the box of the first installation.
func TestKilledWhileInstalling(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "never")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	e, calls := withTools(t, map[string]string{"npm": "read x <" + fifo})
	s := e.start()
	sb := s.create(lifecycle.CreateRequest{NpmPackages: []string{"x"}})
	eventually(t, "npm runs", func() bool { return calls()[0] != "" })
	s.kill()
	s = e.start()
	eventually(t, "npm runs again", func() bool { return len(calls()) == 2 })
	s.destroy(string(sb.ID))
	eventually(t, "the box is gone", func() bool {
		s.Sweep()
		ids, err := s.driver.List(t.Context())
		return err == nil && len(ids) == 0
	})
}

// TestBaseIsHeldWhileItIsBuiltOn: an image that others are being made from must not be removed to save disk.
func TestBaseIsHeldWhileItIsBuiltOn(t *testing.T) {
	e, _ := withTools(t, map[string]string{"apt-get": works, "mkdir": works, "find": works})
	s := e.start()
	var during atomic.Int64
	s.driver.faults.on(func(_ int, call string) error {
		if call == "driver.WriteLayer" {
			during.Store(int64(e.images.holders("sha256:1")))
		}
		return nil
	}, nil)
	s.run(lifecycle.CreateRequest{AptPackages: []string{"zip"}})
	if got := during.Load(); got != 2 { // the sandbox that waits, and the box
		t.Errorf("while dependencies were installed %d held their base, want 2", got)
	}
	eventually(t, "the base is let go", func() bool { return e.images.holders("sha256:1") == 0 })
}
