// Package testserver runs the real modbox binary for end-to-end tests: a server
// process of its own, with real gVisor and real images, whose state is new and
// whose remains are checked when the test ends.
package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/auth"
	"github.com/modbox/modbox/internal/embedded"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/statedir"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
)

// Environment of the suites that use this package.
const (
	envRun    = "MODBOX_TEST_GVISOR"    // must be 1, else the test is skipped
	envBinary = "MODBOX_BIN"            // the binary; default bin/modbox of the repository
	envImages = "MODBOX_TEST_IMAGE_DIR" // built images; default: the images of the quickstart
)

// timeLimit bounds steps that may hang: a server's start, the removal of its sandboxes, a command
// or a sandbox's start for which the test sets no limit. A machine may be slow or busy.
const timeLimit = 5 * time.Minute

// Server is a running modbox server and its state.
type Server struct {
	*client.Client
	// URL and Token are for clients.
	URL, Token string
	// StateDir and RunDir are the server's directories.
	StateDir, RunDir string

	t     testing.TB
	args  []string
	files []*os.File
	cmd   *exec.Cmd
	log   *os.File
}

// Start starts a server with new state and the built images. When the test ends
// the server is stopped and everything it left on the host fails the test.
// args are added to `modbox server`. It has no pool of warm boxes, unless args have --pool-size: at each start it would
// boot two, which most tests do not need, and one more for each sandbox.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartIn(t, t.TempDir(), args...)
}

// StartSmall is Start for tests that use the files of modbox/base only: the name modbox/code-exec,
// of the default image, means the same root filesystem there. Each server reads all root filesystems
// when it starts, and the usual one of the default image has seven times the size.
func StartSmall(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartSmallIn(t, t.TempDir(), args...)
}

// StartIn is Start with a state directory of the caller, which exists, for example on a file system
// of its own, and outlives the server.
func StartIn(t testing.TB, stateDir string, args ...string) *Server {
	t.Helper()
	skipElsewhere(t)
	return start(t, stateDir, func(dir string) { linkBuilt(t, dir) }, args...)
}

// StartSmallIn is StartIn with the images of StartSmall.
func StartSmallIn(t testing.TB, stateDir string, args ...string) *Server {
	t.Helper()
	skipElsewhere(t)
	return start(t, stateDir, func(dir string) { linkSmall(t, dir) }, args...)
}

// skipElsewhere skips a test where the suites that use this package do not run.
func skipElsewhere(t testing.TB) {
	t.Helper()
	if os.Getenv(envRun) != "1" {
		t.Skipf("runs on real gVisor, with a built binary and images: set %s=1 (make test does)", envRun)
	}
}

// start is StartIn; link makes the image store in a directory.
func start(t testing.TB, stateDir string, link func(dir string), args ...string) *Server {
	t.Helper()
	runDir, err := os.MkdirTemp("/tmp", "mbx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runDir) })
	s := &Server{t: t, StateDir: stateDir, RunDir: runDir, args: args}
	link(filepath.Join(s.StateDir, statedir.ImagesDir))
	linkPrograms(t, s.StateDir)
	makeDatabase(t, s.StateDir)
	// Not in the state directory, whose file system may be full, or unmounted by the test.
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "server.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.finish)
	s.Launch()
	return s
}

// root returns the repository's root.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above the working directory")
	return ""
}

// Binary returns the modbox binary under test.
func Binary(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv(envBinary); bin != "" {
		return bin
	}
	return filepath.Join(root(t), "bin", "modbox")
}

func imageDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(envImages)
	if dir == "" {
		dir = filepath.Join(root(t), ".modbox", "state", "images")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("no built images: %v; run `make quickstart`, or set %s", err, envImages)
	}
	return dir
}

// linkImages makes an image store with the images of another, whose files are
// never changed but replaced, so that what a test makes is its own.
func linkImages(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case name == "tmp": // builds of others that are under way
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case strings.HasSuffix(name, ".lock"):
			return nil
		}
		// A link would change the inode of a root filesystem, and so end the record that it is undamaged. A store that
		// scripts/images.sh has lent has its records elsewhere.
		if filepath.Ext(name) == ".erofs" || d.Type() == fs.ModeSymlink {
			return os.Symlink(path, target)
		}
		if os.Link(path, target) == nil {
			return nil
		}
		return copyFile(path, target) // on another file system
	})
	if err != nil {
		t.Fatal(err)
	}
}

// linkPrograms gives a state directory the programs that a server unpacks there, as an earlier server
// would: to unpack them takes longer than the rest of a server's start. A server replaces programs
// that are not its own. It does nothing where links are not possible.
func linkPrograms(t testing.TB, stateDir string) {
	t.Helper()
	for _, name := range []string{embedded.Agent, embedded.Sandbox} {
		sum, err := os.ReadFile(filepath.Join(root(t), "internal/embedded/files", name+".sha256"))
		if err != nil {
			return // not built here: Binary is of elsewhere
		}
		target := filepath.Join(stateDir, statedir.BinDir, strings.TrimSpace(string(sum)), name)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		_ = os.Link(filepath.Join(root(t), "bin", name), target)
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

// Launch starts the server process, again after Kill or Stop, and returns when it is ready.
func (s *Server) Launch() {
	s.t.Helper()
	address := filepath.Join(s.StateDir, "address")
	_ = os.Remove(address)
	args := append([]string{"server", "--listen", "127.0.0.1:0", "--state-dir", s.StateDir, "--run-dir", s.RunDir}, s.args...)
	s.cmd = exec.Command(Binary(s.t), args...)
	// Tests that pull have a registry of their own, on loopback; no other asks one far away.
	s.cmd.Env = append(os.Environ(), "MODBOX_IMAGES_DEFAULT_REGISTRY=", "MODBOX_IMAGES_INSECURE_REGISTRIES=127.0.0.1",
		"MODBOX_EXEC_DEFAULT_TIMEOUT="+timeLimit.String(), "MODBOX_SANDBOX_START_TIMEOUT="+timeLimit.String(),
		"MODBOX_SANDBOX_ANSWER_TIMEOUT="+timeLimit.String(), "MODBOX_POOL_SIZE=0")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.ExtraFiles = s.files
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(timeLimit)
	for {
		if b, err := os.ReadFile(address); err == nil && len(b) > 0 {
			s.URL = "http://" + strings.TrimSpace(string(b))
			if os.Getenv("MODBOX_TLS_CERT") != "" {
				s.URL = "https" + strings.TrimPrefix(s.URL, "http")
			}
			break
		}
		if hasExited(s.cmd.Process.Pid) {
			s.t.Fatalf("the server ended before it was ready; its log:\n%s", s.Log())
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("server not ready in %v; its log:\n%s", timeLimit, s.Log())
		}
		time.Sleep(10 * time.Millisecond) // polling a file of another process
	}
	token, err := os.ReadFile(filepath.Join(s.StateDir, "token"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.Token = strings.TrimSpace(string(token))
	if s.Client, err = client.New(s.URL, s.Token, client.WithAttempts(1)); err != nil {
		s.t.Fatal(err)
	}
}

// SetArgs replaces the extra arguments of servers launched from now on.
func (s *Server) SetArgs(args ...string) { s.args = args }

// Inherit has servers launched from now on find files open, from descriptor 3 on.
func (s *Server) Inherit(files ...*os.File) { s.files = files }

// BoxProcesses returns the ids of the processes of this server's sandboxes, in rising order.
func (s *Server) BoxProcesses() []int {
	return slices.Sorted(maps.Keys(s.boxProcesses()))
}

// Kill ends the server process with SIGKILL, as a crash would.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
}

// hasExited reports whether a child process has ended; its exit code can still be read.
func hasExited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo == int32(unix.SIGCHLD)
}

// HasExited reports whether the server process has ended by itself. Stop is still needed before the next.
func (s *Server) HasExited() bool { return hasExited(s.PID()) }

// Stop ends the server process with SIGTERM and waits for it.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// PID returns the server's process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Log returns what the server has logged so far.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.log.Name())
	return string(b)
}

// finish destroys every sandbox, stops the server, and fails the test for leftovers.
func (s *Server) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	if s.cmd == nil {
		s.Launch()
	}
	if err := s.destroyAll(ctx); err != nil {
		s.t.Errorf("destroy the remaining sandboxes: %v", err)
	}
	s.Stop() // also empties its pool
	if left := s.Left(""); len(left) > 0 {
		s.t.Errorf("left on the host after every sandbox was destroyed and the server stopped:\n%s", strings.Join(left, "\n"))
	}
	if s.t.Failed() {
		s.t.Logf("server log:\n%s", tail(s.Log(), 100))
	}
	_ = s.log.Close()
}

// destroyAll destroys the sandboxes of all workspaces, which only the database
// lists, as their owners.
func (s *Server) destroyAll(ctx context.Context) error {
	open, at := store.OpenAt, store.Location{Path: filepath.Join(s.StateDir, "modbox.db")}
	if url := os.Getenv("MODBOX_DATABASE_URL"); url != "" { // it belongs to the server
		open = store.OpenExistingAt
		at.Postgres = database.Postgres{URL: url, MaxConnections: 2, ConnectTimeout: timeLimit, StatementTimeout: timeLimit}
	}
	db, err := open(ctx, at)
	if err != nil {
		return err
	}
	defer db.Close()
	live, err := db.Sandboxes.LiveSandboxes(ctx)
	if err != nil {
		return err
	}
	tokens, err := auth.New(auth.Store{Tokens: db.Tokens, Memberships: db.Workspaces, Sessions: db.Sessions, Users: db.Users})
	if err != nil {
		return err
	}
	defer tokens.Close()
	as := map[sandbox.WorkspaceID]string{}
	for _, sb := range live {
		if as[sb.Workspace] == "" {
			ws, err := db.Workspaces.Workspace(ctx, sb.Workspace)
			if sandbox.CodeOf(err) == sandbox.NotFound {
				continue // it is being deleted, with what it has
			}
			if err != nil {
				return err
			}
			token, _, err := tokens.CreateToken(ctx, auth.Identity{User: ws.CreatedBy, Workspace: ws.ID}, auth.TokenRequest{})
			if err != nil {
				return err
			}
			as[sb.Workspace] = token
		}
		c, err := client.New(s.URL, as[sb.Workspace], client.WithWorkspace(string(sb.Workspace)))
		if err != nil {
			return err
		}
		if _, err := c.Sandboxes.Delete(ctx, string(sb.ID)); err != nil && !client.IsCode(err, client.NotFound) {
			return fmt.Errorf("delete %s of workspace %s: %w", sb.ID, sb.Workspace, err)
		}
	}
	return nil
}

// Create makes a running sandbox or fails the test.
func (s *Server) MustCreate(o client.CreateOptions) *client.Sandbox {
	s.t.Helper()
	if o.WaitUpTo == 0 {
		o.WaitUpTo = timeLimit
	}
	if o.TTL == 0 {
		o.TTL = 10 * time.Minute
	}
	sb, err := s.Sandboxes.Create(s.t.Context(), o)
	if err != nil {
		s.t.Fatalf("create: %v", err)
	}
	if sb.State != client.Running {
		s.t.Fatalf("create: sandbox is %s: %v", sb.State, sb.Cause)
	}
	return sb
}

// Bash runs a line of bash in a sandbox; only a command that could not be run fails the test. A
// timeout of a minute or more only guards against hanging, and may be longer.
func (s *Server) Bash(ref, line string, timeout time.Duration) *client.ExecResult {
	s.t.Helper()
	if timeout >= time.Minute {
		timeout = max(timeout, timeLimit)
	}
	res, err := s.Sandboxes.Exec(s.t.Context(), ref, client.Command{Argv: []string{"/bin/bash", "-c", line}, Timeout: timeout})
	if err != nil {
		s.t.Fatalf("exec %q: %v", line, err)
	}
	return res
}

// Leftovers lists what exists on the host because of this server's sandboxes:
// processes, mounts (a network namespace that outlives its processes is one), control
// groups, and files of boxes. It is empty when no sandbox lives and the server, which
// may keep some ready, has stopped.
func (s *Server) Leftovers() []string {
	left := append(s.processes(), s.groups()...)
	for _, dir := range []string{filepath.Join(s.RunDir, "boxes"), filepath.Join(s.StateDir, "layers")} {
		entries, _ := os.ReadDir(dir) // the driver makes it
		for _, e := range entries {
			left = append(left, "file "+filepath.Join(dir, e.Name()))
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, s.RunDir) || strings.Contains(line, s.StateDir+"/") {
				left = append(left, "mount "+strings.TrimSpace(line))
			}
		}
	}
	return left
}

// Left waits until no leftover has the text, and returns the leftovers that still have it.
func (s *Server) Left(text string) []string {
	for deadline := time.Now().Add(timeLimit); ; time.Sleep(50 * time.Millisecond) { // polling other processes
		left := slices.DeleteFunc(s.Leftovers(), func(l string) bool { return !strings.Contains(l, text) })
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
