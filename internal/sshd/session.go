package sshd

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/guest"
)

const (
	// exitRefused is the exit status when there is no command to have one, as ssh's own errors have.
	exitRefused = 255
	// envMax and envBytes bound the variables of a session.
	envMax, envBytes = 64, 4 << 10
	// commandMax bounds a command line, which becomes one argument.
	commandMax = 128 << 10
	// Sizes of a terminal when the client names none.
	defaultRows, defaultCols = 24, 80
	// sizeMax bounds the rows and columns of a terminal.
	sizeMax    = 1 << 15
	stdinPiece = 32 << 10
	// signalsMax bounds the signals that wait for the command.
	signalsMax = 8
)

// sftpServer is the program in each sandbox that serves the subsystem sftp on its stdin and stdout.
var sftpServer = []string{"/.modbox/agent", "sftp"}

// Payloads of requests (RFC 4254, 6).
type (
	ptyRequest struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	windowChange struct{ Cols, Rows, Width, Height uint32 }
	envRequest   struct{ Name, Value string }
	textRequest  struct{ Text string } // exec, subsystem, signal
	exitStatus   struct{ Status uint32 }
	exitBySignal struct {
		Signal     string
		CoreDumped bool
		Message    string
		Language   string
	}
)

// session is a channel of type session. One goroutine handles its requests; the command runs in
// another.
type session struct {
	connection *connection
	channel    ssh.Channel
	env        map[string]string

	work sync.WaitGroup // ends when the channel does
	// resized has a value when size was changed, signals what the client sent. The command takes them
	// when it can: the requests of the client must not wait for that, or the connection stands still.
	resized chan struct{}
	signals chan unix.Signal

	mu   sync.Mutex
	size *agentapi.Size // guarded by mu; nil without a terminal
}

// session serves a channel of type session until it ends.
func (c *connection) session(ctx context.Context, offered ssh.NewChannel) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return // the connection is gone
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s := &session{connection: c, channel: channel, env: map[string]string{}, resized: make(chan struct{}, 1), signals: make(chan unix.Signal, signalsMax)}
	started := false
	for r := range requests {
		cmd, err := s.request(r, started)
		if r.WantReply {
			_ = r.Reply(err == nil, nil) // fails only with the connection
		}
		if err == nil && cmd != nil {
			started = true
			s.work.Go(func() { s.run(ctx, *cmd) }) // after the reply, which a channel that it closed cannot take
		}
	}
	cancel(errGone) // the command has nobody to run for
	s.work.Wait()
}

var errRefused = errors.New("refused")

// request handles a request of the client. It returns the command to start, if that is asked for,
// and an error when the request is refused.
func (s *session) request(r *ssh.Request, started bool) (*agentapi.Command, error) {
	switch r.Type {
	case "pty-req":
		var in ptyRequest
		if err := ssh.Unmarshal(r.Payload, &in); err != nil || started {
			return nil, errRefused
		}
		s.size = sizeOf(in.Rows, in.Cols)
		return nil, s.setEnv("TERM", in.Term)
	case "env":
		var in envRequest
		if err := ssh.Unmarshal(r.Payload, &in); err != nil || started || in.Name != "LANG" && in.Name != "TERM" && !strings.HasPrefix(in.Name, "LC_") {
			return nil, errRefused
		}
		return nil, s.setEnv(in.Name, in.Value)
	case "window-change":
		var in windowChange
		if err := ssh.Unmarshal(r.Payload, &in); err != nil {
			return nil, errRefused
		}
		return nil, s.resize(*sizeOf(in.Rows, in.Cols))
	case "signal":
		var in textRequest
		if err := ssh.Unmarshal(r.Payload, &in); err != nil {
			return nil, errRefused
		}
		return nil, s.signal(in.Text)
	case "shell", "exec", "subsystem":
		if started {
			return nil, errRefused
		}
		return s.command(r)
	}
	return nil, errRefused // agent and X11 forwarding, too
}

// setEnv sets a variable of the command. Errors: when it is too much.
func (s *session) setEnv(name, value string) error {
	if value == "" {
		return nil
	}
	_, known := s.env[name]
	if len(name)+len(value) > envBytes || !known && len(s.env) == envMax || strings.ContainsRune(name+value, 0) {
		return errRefused
	}
	s.env[name] = value
	return nil
}

// command returns the command that a request starts.
func (s *session) command(r *ssh.Request) (*agentapi.Command, error) {
	cmd := &agentapi.Command{Stdin: true, Env: s.env, TTY: s.size}
	if r.Type == "shell" {
		cmd.Argv = command.Shell()
		return cmd, nil
	}
	var in textRequest
	if err := ssh.Unmarshal(r.Payload, &in); err != nil || len(in.Text) > commandMax {
		return nil, errRefused
	}
	switch {
	case r.Type == "exec":
		cmd.Argv = command.Script(in.Text)
	case in.Text == "sftp":
		cmd.Argv, cmd.TTY = sftpServer, nil
	default:
		return nil, errRefused
	}
	return cmd, nil
}

// run runs the command to its end, tells the client, and closes the channel.
func (s *session) run(ctx context.Context, cmd agentapi.Command) {
	c := s.connection
	defer s.channel.Close()
	err := c.server.deps.Audit.Operate(ctx, &sessionOperation, c.login.Actor(), c.login.remote, c.login.program, func(ctx context.Context) error {
		audit.FromContext(ctx).Detail("ssh_key", c.login.key.Fingerprint)
		if slices.Equal(cmd.Argv, sftpServer) {
			audit.FromContext(ctx).WithoutOutput()
		}
		if err := c.server.permitted(ctx, c.login); err != nil {
			return err
		}
		in := command.Sandbox{Shell: true, Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
			return c.server.deps.Calls.Exec(ctx, c.login.caller(), c.login.ref, cmd)
		}}
		running, err := command.Start(ctx, in, cmd)
		if err != nil {
			return err
		}
		audit.FromContext(ctx).Start()
		return s.attend(ctx, running)
	})
	if err == nil || errors.Is(err, errGone) {
		return
	}
	_, _ = io.WriteString(s.channel.Stderr(), "modbox: "+c.server.explain(err)+"\r\n") // fails only with the connection
	s.exit(exitRefused)
}

// attend carries the input and output of a command that runs until its end.
func (s *session) attend(ctx context.Context, running *command.Session) error {
	ctx, cancel := context.WithCancel(ctx)
	s.work.Go(func() { feed(s.channel, running) })
	controlled := make(chan struct{})
	go func() {
		defer close(controlled)
		s.control(ctx, running)
	}()
	defer func() {
		cancel()
		running.Close()
		<-controlled
	}()
	for {
		f, err := running.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch f.Type {
		case agentapi.FrameStdout:
			_, err = s.channel.Write(f.Data)
		case agentapi.FrameStderr:
			_, err = s.channel.Stderr().Write(f.Data)
		case agentapi.FrameExit:
			if ctx.Err() != nil { // which killed the command
				return context.Cause(ctx)
			}
			s.report(f.Exit)
		}
		if err != nil {
			return errGone
		}
	}
}

// feed carries the client's input to a command until the input or the channel ends.
func feed(channel io.Reader, running *command.Session) {
	// Only as plain readers and writers do they use the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{running}, struct{ io.Reader }{channel}, make([]byte, stdinPiece))
	if err == nil {
		_ = running.CloseStdin() // a command that ended needs none
		return
	}
	_, _ = io.Copy(io.Discard, channel) // the command takes no more
}

// control carries sizes and signals to the command until ctx ends. A command that ended needs none.
func (s *session) control(ctx context.Context, running *command.Session) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.resized:
			s.mu.Lock()
			size := *s.size
			s.mu.Unlock()
			_ = running.Resize(ctx, size)
		case signal := <-s.signals:
			_ = running.Signal(ctx, int(signal))
		}
	}
}

// report tells the client how the command ended.
func (s *session) report(exit *agentapi.Exit) {
	if exit.TimedOut {
		_, _ = io.WriteString(s.channel.Stderr(), "modbox: the command ran out of time\r\n")
	}
	if name := signalName(exit.Signal); name != "" {
		_, _ = s.channel.SendRequest("exit-signal", false, ssh.Marshal(&exitBySignal{Signal: name}))
		return
	}
	s.exit(exit.Code)
}

// exit tells the client an exit status; an error means that the connection is gone.
func (s *session) exit(status int) {
	_, _ = s.channel.SendRequest("exit-status", false, ssh.Marshal(&exitStatus{uint32(status)}))
}

// resize sets the size of the terminal.
func (s *session) resize(size agentapi.Size) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == nil {
		return errRefused
	}
	s.size = &size
	select {
	case s.resized <- struct{}{}:
	default: // the command will get this size
	}
	return nil
}

// signal sends a signal to the command.
func (s *session) signal(name string) error {
	number := signals[name]
	if number == 0 {
		return errRefused
	}
	select {
	case s.signals <- number:
		return nil
	default:
		return errRefused
	}
}

// sizeOf returns the size of a terminal as a client names it.
func sizeOf(rows, cols uint32) *agentapi.Size {
	if rows == 0 || cols == 0 {
		rows, cols = defaultRows, defaultCols
	}
	return &agentapi.Size{Rows: uint16(min(rows, sizeMax)), Cols: uint16(min(cols, sizeMax))}
}
