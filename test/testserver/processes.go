package testserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// KillBoxes ends every process of this server's sandboxes with SIGKILL, as a
// restart of the host would. The server must not be running.
func (s *Server) KillBoxes() {
	s.t.Helper()
	for pid := range s.boxProcesses() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			s.t.Fatal(err)
		}
	}
}

// processes describes the processes of this server's sandboxes.
func (s *Server) processes() []string {
	var out []string
	for pid, cmdline := range s.boxProcesses() {
		out = append(out, fmt.Sprintf("process %d: %s", pid, cmdline))
	}
	return out
}

// groups lists the control groups of this server's sandboxes, and their parent once the server has
// stopped. The driver derives its name from RunDir.
func (s *Server) groups() []string {
	sum := sha256.Sum256([]byte(s.RunDir))
	own := "modbox-" + hex.EncodeToString(sum[:6])
	var out []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // groups of others come and go
			return nil
		case !d.IsDir():
		case filepath.Base(filepath.Dir(path)) == own, s.cmd == nil && d.Name() == own:
			out = append(out, "control group "+path)
		}
		return nil
	})
	return out
}

// boxProcesses returns the processes, other than the server, whose command line
// names this server's run directory.
func (s *Server) boxProcesses() map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if pid == os.Getpid() || s.cmd != nil && pid == s.cmd.Process.Pid {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.Contains(cmdline, []byte(s.RunDir)) {
			continue
		}
		out[pid] = string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
	}
	return out
}
