package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// containerUser is the user of the worker, as in the Helm chart.
const containerUser = 1000

// containerWorker is a worker in a container of runc, as Kubernetes runs the worker of the Helm chart: an ordinary user without capabilities, a
// root filesystem that cannot be written, and the seccomp profile of the repository. It shares the network of the host.
type containerWorker struct {
	t      *testing.T
	id     string
	bundle string
	root   string // of runc
	log    *os.File
	cmd    *exec.Cmd
}

// newContainerWorker prepares a worker of the server at an address, which makes its token later.
func newContainerWorker(t *testing.T, address, token string) *containerWorker {
	t.Helper()
	w := &containerWorker{t: t, id: "modbox-test-" + rand.Text(), bundle: t.TempDir(), root: t.TempDir()}
	state := t.TempDir()
	for _, dir := range []string{"dev", "etc/modbox", "proc", "run/modbox", "tmp", "usr/bin", "var/lib/modbox"} {
		if err := os.MkdirAll(filepath.Join(w.bundle, "rootfs", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"etc/modbox/token", "usr/bin/modbox"} { // where files are mounted
		if err := os.WriteFile(filepath.Join(w.bundle, "rootfs", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(w.spec(state, address, token))
	// runc gives a tmpfs the mode of the directory beneath.
	err = errors.Join(err, os.WriteFile(filepath.Join(w.bundle, "config.json"), text, 0o600), os.Chown(state, containerUser, containerUser),
		os.Chmod(filepath.Join(w.bundle, "rootfs/tmp"), 0o1777), os.Chmod(filepath.Join(w.bundle, "rootfs/run/modbox"), 0o1777))
	if err != nil {
		t.Fatal(err)
	}
	if w.log, err = os.Create(filepath.Join(t.TempDir(), "worker.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.end()
		if text, err := os.ReadFile(w.log.Name()); t.Failed() && err == nil {
			t.Logf("the log of the worker:\n%s", text)
		}
		_ = w.log.Close()
	})
	return w
}

// spec describes the container.
func (w *containerWorker) spec(state, address, token string) specs.Spec {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "seccomp", "modbox-worker.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	var profile specs.LinuxSeccomp
	if err := json.Unmarshal(text, &profile); err != nil {
		w.t.Fatal(err)
	}
	bind := func(from, to, mode string) specs.Mount {
		return specs.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", mode}}
	}
	mount := func(kind, to string, options ...string) specs.Mount {
		return specs.Mount{Destination: to, Type: kind, Source: kind, Options: append([]string{"nosuid"}, options...)}
	}
	return specs.Spec{
		Version: "1.0.2", Hostname: "modbox-worker-0",
		Root: &specs.Root{Path: "rootfs", Readonly: true},
		Process: &specs.Process{
			User: specs.User{UID: containerUser, GID: containerUser}, Cwd: "/", NoNewPrivileges: true, Env: []string{"HOME=/tmp"}, Capabilities: &specs.LinuxCapabilities{},
			Args: []string{"/usr/bin/modbox", "worker", "--join=" + address, "--token-file=/etc/modbox/token", "--state-dir=/var/lib/modbox/state", "--run-dir=/run/modbox/run"},
		},
		Mounts: []specs.Mount{
			mount("proc", "/proc", "noexec", "nodev"), mount("tmpfs", "/dev", "mode=755"), mount("tmpfs", "/tmp", "nodev"), mount("tmpfs", "/run/modbox", "nodev"),
			bind(testserver.Binary(w.t), "/usr/bin/modbox", "ro"), bind(state, "/var/lib/modbox", "rw"), bind(token, "/etc/modbox/token", "ro"),
		},
		Linux: &specs.Linux{
			Namespaces:    []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}},
			CgroupsPath:   "/" + w.id,
			MaskedPaths:   []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Seccomp:       &profile,
		},
	}
}

func (w *containerWorker) launch() {
	w.t.Helper()
	w.cmd = exec.Command("runc", "--root", w.root, "run", "--bundle", w.bundle, w.id)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	if err := w.cmd.Start(); err != nil {
		w.t.Fatalf("start runc (scripts/install-deps.sh --test installs it): %v", err)
	}
}

// end ends the container as the loss of its Pod does, with all processes in it.
func (w *containerWorker) end() {
	if w.cmd == nil {
		return
	}
	if out, err := exec.Command("runc", "--root", w.root, "delete", "--force", w.id).CombinedOutput(); err != nil {
		w.t.Errorf("runc delete: %v: %s", err, out)
	}
	_ = w.cmd.Wait()
	w.cmd = nil
}

// TestUnprivilegedWorker runs, pauses, resumes and forks a sandbox on a worker in an ordinary container. A sandbox ends with the container; a
// paused sandbox is resumed with its memory in the next.
func TestUnprivilegedWorker(t *testing.T) {
	if os.Getenv("MODBOX_TEST_GVISOR") != "1" || os.Getuid() != 0 {
		t.Skip("runs real gVisor in a container: set MODBOX_TEST_GVISOR=1 (make test does), as root")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	stateDir, token := t.TempDir(), filepath.Join(t.TempDir(), "token")
	w := newContainerWorker(t, address, token)
	joined := make(chan struct{})
	go func() { // the server is ready when it has its worker
		defer close(joined)
		var text []byte
		for err := errors.New("none yet"); err != nil && t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) { // polling a file of another process
			text, err = os.ReadFile(filepath.Join(stateDir, "worker", "token"))
		}
		if err := os.WriteFile(token, text, 0o644); err != nil {
			t.Error(err)
		}
		w.launch()
	}()
	s := testserver.StartSmallIn(t, stateDir, "--worker-listen", address)
	<-joined

	sb := s.MustCreate(client.CreateOptions{Image: "modbox/code-exec"})
	count := remember(t, s.Bash, sb.ID)
	count(sb.ID, 1)
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: "require"}); err != nil {
		t.Fatalf("resume: %v", err)
	}
	count(sb.ID, 2)
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || len(forks) != 1 || forks[0].Sandbox == nil {
		t.Fatalf("fork: %+v, %v", forks, err)
	}
	fork := forks[0].Sandbox.ID
	count(fork, 3)
	count(sb.ID, 3)

	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatalf("pause: %v", err)
	}
	w.end()
	w.launch()
	until(t, "the worker is connected again", func() bool { return strings.Count(s.Log(), "a worker is connected") == 2 })
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{Memory: "require"}); err != nil {
		t.Fatalf("resume in another container: %v", err)
	}
	count(sb.ID, 4)
	until(t, "the sandbox of the former container has ended", func() bool {
		ended, err := s.Sandboxes.Get(t.Context(), fork)
		return err == nil && ended.State == "failed"
	})
}
