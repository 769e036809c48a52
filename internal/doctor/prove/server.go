package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

// server is the server of a proof, a process with a state of its own.
type server struct {
	program, stateDir, runDir string

	api   *client.Client
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process of cmd has ended
}

// launch starts the server, and returns when it answers.
func (s *server) launch(ctx context.Context) error {
	if err := os.RemoveAll(filepath.Join(s.stateDir, statedir.AddressFile)); err != nil {
		return err
	}
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.program, "server", "--listen", "127.0.0.1:0", "--state-dir", s.stateDir, "--run-dir", s.runDir, "--pool-size", "0")
	for _, line := range os.Environ() { // without settings for the server of this host
		if !strings.HasPrefix(line, "MODBOX_") {
			cmd.Env = append(cmd.Env, line)
		}
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the proof, which then ends the server
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

func (s *server) connect(address string) error {
	token, err := os.ReadFile(filepath.Join(s.stateDir, statedir.TokenFile))
	if err != nil {
		return err
	}
	s.api, err = client.New("http://"+address, strings.TrimSpace(string(token)), client.WithAttempts(1))
	return err
}

// alive reports whether the server's process runs.
func (s *server) alive() bool {
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

// signal sends a signal to the server and waits for its end, at most until ctx ends.
func (s *server) signal(ctx context.Context, sig syscall.Signal) error {
	if !s.alive() {
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

func (s *server) log() string { return filepath.Join(s.stateDir, "server.log") }

// lastLog returns the last lines of the server's log, for a message.
func (s *server) lastLog() string {
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

// close destroys all sandboxes, ends the server, reports remains, and removes them by force.
func (s *server) close(ctx context.Context) error {
	err := s.end(ctx)
	wait, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	err = errors.Join(err, s.wantNothing(wait))
	s.removeByForce()
	return errors.Join(err, os.RemoveAll(s.runDir), os.RemoveAll(s.stateDir))
}

// end destroys all sandboxes and ends the server.
func (s *server) end(ctx context.Context) (err error) {
	if s.api != nil && !s.alive() {
		err = s.launch(ctx)
	}
	if err == nil && s.alive() && s.api != nil {
		for sb, e := range s.api.Sandboxes.List(client.ListOptions{}).All(ctx) {
			if e != nil {
				err = errors.Join(err, e)
				break
			}
			if _, e := s.api.Sandboxes.Delete(ctx, sb.ID); e != nil && !client.IsCode(e, client.NotFound) {
				err = errors.Join(err, e)
			}
		}
	}
	wait, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if e := s.signal(wait, syscall.SIGTERM); e != nil {
		err = errors.Join(err, e, s.signal(ctx, syscall.SIGKILL))
	}
	return err
}

// removeByForce ends and unmounts remains after an error.
func (s *server) removeByForce() {
	for pid := range s.boxProcesses() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
	for _, point := range s.mounts() {
		_ = unix.Unmount(point, unix.MNT_DETACH) // best effort
	}
	for _, group := range s.groups() {
		_ = os.Remove(group) // once its processes have ended
	}
}

// hostAddresses returns an address of each network of this host, and of loopback.
func hostAddresses() ([]string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
			out = append(out, ip.IP.String())
		}
	}
	return out, nil
}
