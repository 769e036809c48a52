package main_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agentapi"
)

// TestDependencies keeps the agent small: the standard library, a package for pseudo-terminals, system
// calls, the SFTP server with the parts of SSH that its package imports, the parser of shell code, and our packages.
func TestDependencies(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"github.com/creack/pty",
		"github.com/kr/fs",
		"github.com/modbox/modbox/cmd/modbox-agent",
		"github.com/modbox/modbox/internal/agent",
		"github.com/modbox/modbox/internal/agent/answer",
		"github.com/modbox/modbox/internal/agent/fileserver",
		"github.com/modbox/modbox/internal/agent/rootdir",
		"github.com/modbox/modbox/internal/agentapi",
		"github.com/modbox/modbox/internal/kernel",
		"github.com/modbox/modbox/internal/kernelapi",
		"github.com/modbox/modbox/internal/proctree",
		"github.com/modbox/modbox/internal/program",
		"github.com/modbox/modbox/internal/shellscan",
		"github.com/pkg/sftp",
		"github.com/pkg/sftp/internal/encoding/ssh/filexfer",
		"github.com/pkg/sftp/internal/encoding/ssh/filexfer/openssh",
		"golang.org/x/crypto/blowfish",
		"golang.org/x/crypto/chacha20",
		"golang.org/x/crypto/cryptobyte",
		"golang.org/x/crypto/cryptobyte/asn1",
		"golang.org/x/crypto/curve25519",
		"golang.org/x/crypto/internal/alias",
		"golang.org/x/crypto/internal/poly1305",
		"golang.org/x/crypto/ssh",
		"golang.org/x/crypto/ssh/internal/bcrypt_pbkdf",
		"golang.org/x/sys/unix",
		"mvdan.cc/sh/v3/fileutil",
		"mvdan.cc/sh/v3/syntax",
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the agent's dependencies changed (-want +got):\n%s", diff)
	}
}

// build compiles the agent.
func build(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "modbox-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, msg)
	}
	return path
}

func TestSize(t *testing.T) {
	info, err := os.Stat(build(t))
	if err != nil {
		t.Fatal(err)
	}
	// Each sandbox reads the agent when it boots. The scripts that run contexts in six languages and the root of layers
	// made it larger than 8 MiB.
	if limit := int64(8<<20 + 128<<10); info.Size() > limit {
		t.Errorf("the agent has %d bytes, want at most %d", info.Size(), limit)
	}
}

// startInit runs the agent as PID 1 of namespaces of its own.
func startInit(t testing.TB) *agentapi.Client {
	t.Helper()
	agent, socket := build(t), filepath.Join(t.TempDir(), "agent.sock")
	cmd := exec.Command("sh", "-c", `mount -t proc proc /proc && exec "$0" -listen "unix:$1"`, agent, socket)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNET,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappingsEnableSetgroups: os.Geteuid() == 0,
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("needs user namespaces, which this machine refuses: %v", err)
		}
		t.Fatal(err)
	}
	client := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	})
	t.Cleanup(func() {
		client.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for tick := time.NewTicker(time.Millisecond); ; {
		if _, err := client.Health(ctx); err == nil {
			tick.Stop()
			return client
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the agent does not answer")
		}
	}
}

// sh runs a script and returns its output and exit code.
func sh(t testing.TB, c *agentapi.Client, script string) (string, int) {
	t.Helper()
	s, err := c.Exec(t.Context(), agentapi.Command{Argv: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Errorf("Exec(%q) = %v", script, err)
		return "", -1
	}
	defer s.Close()
	var out strings.Builder
	code := -1
	for {
		f, err := s.Next()
		switch {
		case err == io.EOF:
			return out.String(), code
		case err != nil:
			t.Errorf("%q: %v", script, err)
			return out.String(), -1
		case f.Exit != nil:
			code = f.Exit.Code
		default:
			out.Write(f.Data)
		}
	}
}

func TestInit(t *testing.T) {
	c := startInit(t)
	if out, code := sh(t, c, "echo $PPID"); out != "1\n" || code != 0 {
		t.Fatalf("the agent is PID %q", out)
	}
	// Short commands whose own children outlive them: each leaves an orphan that
	// ends at about the same time as others' commands do.
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 60 {
				if out, code := sh(t, c, "(true & true &) >/dev/null 2>&1; (sleep 0.01 &) >/dev/null 2>&1; exit 5"); out != "" || code != 5 {
					t.Errorf("sh = %q, %d", out, code)
				}
			}
		})
	}
	wg.Wait()
	if _, code := sh(t, c, "kill -TERM 1; kill -HUP 1; kill -INT 1; kill -USR1 1; kill -PIPE 1; kill -KILL 1"); code == -1 {
		t.Error("signals reached the agent")
	}
	deadline := time.Now().Add(3 * time.Minute)
	for {
		out, _ := sh(t, c, "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; ls -d /proc/[0-9]* | wc -l")
		if fields := strings.Fields(out); len(fields) == 2 && fields[0] == "0" && len(fields[1]) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("zombies, all processes: %q", out)
		}
	}
}

func TestInitKillsTerminalSessions(t *testing.T) {
	c := startInit(t)
	s, err := c.Exec(t.Context(), agentapi.Command{Argv: []string{"/bin/sh", "-c", "setsid sleep 1000 & echo ready; wait"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if f, err := s.Next(); err != nil || string(f.Data) != "ready\n" {
		t.Fatalf("Next() = %q, %v", f.Data, err)
	}
	if err := s.Signal(9); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.Next(); err != nil {
			break
		}
	}
	if out, _ := sh(t, c, "grep -ls sleep /proc/[0-9]*/comm | wc -l"); out != "0\n" {
		t.Errorf("still asleep: %q", out)
	}
}

// BenchmarkExecTrue is one command through the real agent on a Unix socket.
func BenchmarkExecTrue(b *testing.B) {
	c := startInit(b)
	for b.Loop() {
		s, err := c.Exec(b.Context(), agentapi.Command{Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		for err == nil {
			_, err = s.Next()
		}
		s.Close()
		if err != io.EOF {
			b.Fatal(err)
		}
	}
}
