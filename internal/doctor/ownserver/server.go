// Package ownserver runs a server with a state of its own on this host, for commands that try or measure
// sandboxes without the server of the host. It removes all that the server made.
package ownserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/statedir"
)

// poll is the time between two looks at other processes.
const poll = 20 * time.Millisecond

// logMax bounds the end of the server's log that a message quotes.
const logMax = 2 << 10

// endTime bounds the end of the server, and the wait for the end of its remains.
const endTime = 30 * time.Second

// Options are the inputs of a server.
type Options struct {
	// Program is the binary of the server.
	Program string
	// StateDir and RunDir are the directories in which the server gets its own, which Close removes.
	StateDir, RunDir string
	// Images is the directory of an image store that has the images Names.
	Images string
	Names  []string
	// Name begins the name of its state directory.
	Name string
	// Args are further arguments of "modbox server".
	Args []string
}

// Server is a server process with a state of its own.
type Server struct {
	API *client.Client
	// URL and Token are for other clients.
	URL, Token string

	o                Options
	stateDir, runDir string
	cmd              *exec.Cmd
	ended            chan struct{} // closed when the process of cmd has ended
}

// Open makes the directories of a server and starts it. With an error after the directories were made
// it also returns the server, for [Server.Close].
func Open(ctx context.Context, o Options) (s *Server, err error) {
	if err := statedir.Make(o.RunDir); err != nil {
		return nil, err
	}
	s = &Server{o: o}
	if s.runDir, err = os.MkdirTemp(o.RunDir, "p"); err != nil {
		return nil, err
	}
	if s.stateDir, err = os.MkdirTemp(o.StateDir, o.Name+"-"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.runDir))
	}
	if err := linkImages(ctx, o.Images, filepath.Join(s.stateDir, statedir.ImagesDir), o.Names); err != nil {
		return s, fmt.Errorf("link the images %s: %w", strings.Join(o.Names, ", "), err)
	}
	return s, s.Launch(ctx)
}

// Launch starts the server after its end, and returns when it answers.
func (s *Server) Launch(ctx context.Context) error {
	if err := os.RemoveAll(filepath.Join(s.stateDir, statedir.AddressFile)); err != nil {
		return err
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append([]string{"server", "--listen", "127.0.0.1:0", "--state-dir", s.stateDir, "--run-dir", s.runDir}, s.o.Args...)
	cmd := exec.Command(s.o.Program, args...)
	for _, line := range os.Environ() { // without settings for the server of this host
		if !strings.HasPrefix(line, "MODBOX_") {
			cmd.Env = append(cmd.Env, line)
		}
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the command, which then ends the server
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its log says more
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
	for {
		if address := statedir.RunningAddress(s.stateDir); address != "" {
			return s.connect(address)
		}
		select {
		case <-ended:
			return fmt.Errorf("the server ended before it was ready: %s", s.lastLog())
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready in time: %s", s.lastLog())
		case <-time.After(poll):
		}
	}
}

func (s *Server) connect(address string) error {
	token, err := os.ReadFile(filepath.Join(s.stateDir, statedir.TokenFile))
	if err != nil {
		return err
	}
	s.URL, s.Token = "http://"+address, strings.TrimSpace(string(token))
	s.API, err = client.New(s.URL, s.Token, client.WithAttempts(1))
	return err
}

// StateDir returns its state directory.
func (s *Server) StateDir() string { return s.stateDir }

// Alive reports whether the server's process runs.
func (s *Server) Alive() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the server and waits for its end, at most until ctx ends.
func (s *Server) Signal(ctx context.Context, sig syscall.Signal) error {
	if !s.Alive() {
		return nil
	}
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the server does not end: %w", ctx.Err())
	}
}

func (s *Server) log() string { return filepath.Join(s.stateDir, "server.log") }

// lastLog returns the last lines of the server's log, for a message.
func (s *Server) lastLog() string {
	f, err := os.Open(s.log())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if at, err := f.Seek(-logMax, io.SeekEnd); err != nil || at < 0 {
		_, _ = f.Seek(0, io.SeekStart) // it is shorter
	}
	text, _ := io.ReadAll(io.LimitReader(f, logMax)) // only for a message
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

// Close destroys all sandboxes, ends the server, reports remains, and removes them by force.
func (s *Server) Close(ctx context.Context) error {
	err := s.end(ctx)
	wait, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err = errors.Join(err, s.WaitForNothing(wait))
	s.removeByForce()
	return errors.Join(err, os.RemoveAll(s.runDir), os.RemoveAll(s.stateDir))
}

// end destroys all sandboxes and ends the server.
func (s *Server) end(ctx context.Context) (err error) {
	if s.API != nil && !s.Alive() {
		err = s.Launch(ctx)
	}
	if err == nil && s.Alive() && s.API != nil {
		for sb, e := range s.API.Sandboxes.List(client.ListOptions{}).All(ctx) {
			if e != nil {
				err = errors.Join(err, e)
				break
			}
			if _, e := s.API.Sandboxes.Delete(ctx, sb.ID); e != nil && !client.IsCode(e, client.NotFound) {
				err = errors.Join(err, e)
			}
		}
	}
	wait, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if e := s.Signal(wait, syscall.SIGTERM); e != nil {
		err = errors.Join(err, e, s.Signal(ctx, syscall.SIGKILL))
	}
	return err
}

// removeByForce ends and unmounts remains after an error.
func (s *Server) removeByForce() {
	for pid := range s.BoxProcesses() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	for _, point := range s.mounts() {
		_ = unix.Unmount(point, unix.MNT_DETACH) // best effort
	}
	for _, group := range s.groups() {
		_ = os.Remove(group) // once its processes have ended
	}
}
