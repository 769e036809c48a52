package ownserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// leftovers lists what exists on the host because of the server's sandboxes: processes, mounts (a
// namespace that outlives its processes is a mount), control groups and files.
func (s *Server) leftovers() []string {
	var left []string
	for pid, cmdline := range s.BoxProcesses() {
		left = append(left, fmt.Sprintf("process %d: %s", pid, cmdline))
	}
	for _, point := range s.mounts() {
		left = append(left, "mount "+point)
	}
	for _, group := range s.groups() {
		left = append(left, "control group "+group)
	}
	for _, dir := range []string{filepath.Join(s.runDir, "boxes"), filepath.Join(s.stateDir, "layers")} {
		entries, _ := os.ReadDir(dir) // the driver makes it
		for _, e := range entries {
			left = append(left, "file "+filepath.Join(dir, e.Name()))
		}
	}
	return left
}

// BoxProcesses returns the processes, other than the server, whose command line names the run directory.
func (s *Server) BoxProcesses() map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir)) // it has digits only
		if pid == os.Getpid() || s.cmd != nil && pid == s.cmd.Process.Pid {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && bytes.Contains(cmdline, []byte(s.runDir+"/")) {
			out[pid] = string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '}))
		}
	}
	return out
}

// mounts returns the points of mounts below the directories of the server.
func (s *Server) mounts() (points []string) {
	text, _ := os.ReadFile("/proc/self/mountinfo") // there is none without /proc
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && (strings.HasPrefix(fields[4], s.runDir+"/") || strings.HasPrefix(fields[4], s.stateDir+"/")) {
			points = append(points, fields[4])
		}
	}
	return points
}

// groups returns the control groups of the server's sandboxes, children first, and their parent once
// the server has ended. The driver derives its name from the run directory.
func (s *Server) groups() (groups []string) {
	sum := sha256.Sum256([]byte(s.runDir))
	own := "modbox-" + hex.EncodeToString(sum[:6])
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil: // groups of others come and go
		case !d.IsDir():
		case filepath.Base(filepath.Dir(path)) == own:
			groups = append([]string{path}, groups...)
		case d.Name() == own && !s.Alive():
			groups = append(groups, path)
		}
		return nil
	})
	return groups
}

// WaitForNothing waits until nothing of sandboxes remains.
func (s *Server) WaitForNothing(ctx context.Context) error {
	for {
		left := s.leftovers()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left: %s", strings.Join(left[:min(len(left), 5)], "; "))
		case <-time.After(poll):
		}
	}
}
