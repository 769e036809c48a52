package envd

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/dialect/e2b"
	pb "github.com/modbox/modbox/internal/dialect/e2b/envdpb/process"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/sandbox"
)

// killGrace is the time between SIGTERM and SIGKILL for a process whose time limit has passed.
const killGrace = time.Millisecond

// processes runs the commands of all sandboxes. It implements the service process.Process.
type processes struct {
	work  *background.Group // the sessions
	calls *guest.Calls
	users *accounts

	mu       sync.Mutex
	sessions map[sandbox.ID]map[uint32]*session // guarded by mu; by the pid in the sandbox
}

func newProcesses(work *background.Group, calls *guest.Calls, users *accounts) *processes {
	return &processes{work: work, calls: calls, users: users, sessions: map[sandbox.ID]map[uint32]*session{}}
}

// detached returns a context with the values of a request's that ends with the server.
func (p *processes) detached(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(p.work.Context(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// open makes s the session of its process, with a reader of the output from now on, and passes the output
// on until ctx ends or the process does; then it calls done. Of two requests that connect to the same
// process at once the second gets the session of the first, without a reader: input over two connections
// would be lost.
func (p *processes) open(ctx context.Context, id sandbox.ID, s *session, done func()) (*session, *reader, error) {
	first := &reader{events: make(chan *pb.ProcessEvent), gone: make(chan struct{})}
	s.readers = map[*reader]struct{}{first: {}}
	p.mu.Lock()
	other := p.sessions[id][s.pid]
	if other != nil && !s.started && !other.isOver() {
		p.mu.Unlock()
		_ = s.command.Close() // the other has a connection
		done()
		return other, nil, nil
	}
	if p.sessions[id] == nil {
		p.sessions[id] = map[uint32]*session{}
	}
	p.sessions[id][s.pid] = s
	p.mu.Unlock()
	took := p.work.Go(func() {
		defer done()
		s.pump(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.sessions[id][s.pid] == s {
			delete(p.sessions[id], s.pid)
		}
		if len(p.sessions[id]) == 0 {
			delete(p.sessions, id)
		}
	})
	if !took {
		_ = s.command.Close() // the process goes on
		done()
		return nil, nil, sandbox.Errorf(sandbox.Unavailable, "the server is being shut down; try again")
	}
	return s, first, nil
}

// Start implements the service.
func (p *processes) Start(ctx context.Context, req *connect.Request[pb.StartRequest], stream *connect.ServerStream[pb.StartResponse]) error {
	s, first, err := p.start(ctx, visitOf(ctx), req)
	if err != nil {
		return public(ctx, err)
	}
	return public(ctx, s.follow(ctx, first, keepaliveOf(req.Header()), func(e *pb.ProcessEvent) error {
		return stream.Send(&pb.StartResponse{Event: e})
	}))
}

// start starts the command of a request.
func (p *processes) start(ctx context.Context, v *visit, req *connect.Request[pb.StartRequest]) (*session, *reader, error) {
	in := req.Msg
	config := in.GetProcess()
	if config.GetCmd() == "" {
		return nil, nil, sandbox.InvalidField("process.cmd", "must be set")
	}
	acc, _, err := p.users.user(ctx, v, basicUser(req.Header().Get("Authorization")))
	if err != nil {
		return nil, nil, err
	}
	cmd := agentapi.Command{
		Argv: append([]string{config.GetCmd()}, config.GetArgs()...), User: acc.name, Cwd: acc.home, Detach: true, Grace: killGrace,
		Stdin: in.Stdin == nil || in.GetStdin() || in.Pty != nil, Env: environment(v, config.GetEnvs()),
	}
	if config.GetCwd() != "" {
		cmd.Cwd = acc.resolve(config.GetCwd())
	}
	if deadline, ok := ctx.Deadline(); ok {
		cmd.Timeout = max(time.Until(deadline), time.Millisecond)
	}
	if size := in.GetPty().GetSize(); in.Pty != nil {
		cmd.TTY = terminal(size)
	}
	cmd.ID = idOf(cmd.TTY != nil)
	sessionCtx, done := p.detached(ctx)
	running, err := p.calls.Exec(sessionCtx, v.caller, v.ref, cmd)
	if err != nil {
		done()
		if sandbox.CodeOf(err) == sandbox.FileNotFound {
			err = sandbox.InvalidField("", "cwd '%s' does not exist", sandbox.OneLine(cmd.Cwd))
		}
		return nil, nil, err
	}
	s := &session{
		command: running, pid: uint32(running.Info().PID), config: config, tag: in.Tag, pty: in.Pty != nil, stdin: cmd.Stdin, started: true,
	}
	return p.open(sessionCtx, v.sb.ID, s, done)
}

// terminalID begins the ids of processes with a terminal, so that another server knows it.
const terminalID = "e2b-tty-"

// idOf returns a new id of a process.
func idOf(tty bool) string {
	if tty {
		return terminalID + rand.Text()
	}
	return "e2b-" + rand.Text()
}

// environment returns the variables of a command, with the variables by which programs know where
// they run.
func environment(v *visit, more map[string]string) map[string]string {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": e2b.SandboxID(v.sb.ID), "E2B_TEMPLATE_ID": e2b.TemplateOf(&v.sb)}
	maps.Copy(env, v.sb.Env)
	maps.Copy(env, more)
	return env
}

// terminal returns the size of a terminal.
func terminal(size *pb.PTY_Size) *agentapi.Size {
	bounded := func(n uint32, def uint16) uint16 {
		if n == 0 {
			return def
		}
		return uint16(min(n, 1<<16-1))
	}
	return &agentapi.Size{Rows: bounded(size.GetRows(), 24), Cols: bounded(size.GetCols(), 80)}
}

// Connect implements the service.
func (p *processes) Connect(ctx context.Context, req *connect.Request[pb.ConnectRequest], stream *connect.ServerStream[pb.ConnectResponse]) error {
	s, first, err := p.find(ctx, req.Msg.GetProcess())
	if err == nil && first == nil {
		first, err = s.subscribe()
	}
	if err != nil {
		return public(ctx, err)
	}
	return public(ctx, s.follow(ctx, first, keepaliveOf(req.Header()), func(e *pb.ProcessEvent) error {
		return stream.Send(&pb.ConnectResponse{Event: e})
	}))
}

// find returns the session of a running process. If there is none, because another server or an
// earlier life of the sandbox started the process, it connects to it and also returns the first
// reader, which the caller takes over.
func (p *processes) find(ctx context.Context, sel *pb.ProcessSelector) (*session, *reader, error) {
	v := visitOf(ctx)
	p.mu.Lock()
	for pid, s := range p.sessions[v.sb.ID] {
		if t, ok := sel.GetSelector().(*pb.ProcessSelector_Tag); ok && s.tag != nil && *s.tag == t.Tag || !ok && pid == sel.GetPid() {
			p.mu.Unlock()
			return s, nil, nil
		}
	}
	p.mu.Unlock()
	if sel.GetPid() == 0 {
		return nil, nil, noProcess()
	}
	list, err := p.calls.Processes(ctx, v.caller, v.ref)
	if err != nil {
		return nil, nil, err
	}
	for _, info := range list {
		if info.Exit != nil || info.ID == agentapi.MainID || info.PID != int(sel.GetPid()) {
			continue
		}
		sessionCtx, done := p.detached(ctx)
		running, err := p.calls.Attach(sessionCtx, v.caller, v.ref, info)
		if err != nil {
			done()
			return nil, nil, err
		}
		s := &session{command: running, pid: sel.GetPid(), config: configOf(info), stdin: true, pty: strings.HasPrefix(info.ID, terminalID)}
		return p.open(sessionCtx, v.sb.ID, s, done)
	}
	return nil, nil, noProcess()
}

// configOf returns the known configuration of a process that another server started.
func configOf(info agentapi.ProcessInfo) *pb.ProcessConfig {
	c := &pb.ProcessConfig{}
	if len(info.Argv) > 0 {
		c.Cmd, c.Args = info.Argv[0], info.Argv[1:]
	}
	return c
}

// with calls do with the session of a process.
func (p *processes) with(ctx context.Context, sel *pb.ProcessSelector, do func(*session) error) error {
	s, first, err := p.find(ctx, sel)
	if err != nil {
		return public(ctx, err)
	}
	if first != nil {
		s.leave(first)
	}
	return public(ctx, do(s))
}

// List implements the service.
func (p *processes) List(ctx context.Context, _ *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	v := visitOf(ctx)
	list, err := p.calls.Processes(ctx, v.caller, v.ref)
	if err != nil {
		return nil, public(ctx, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &pb.ListResponse{}
	for _, info := range list {
		if info.Exit != nil || info.ID == agentapi.MainID || info.PID < 1 {
			continue
		}
		item := &pb.ProcessInfo{Pid: uint32(info.PID), Config: configOf(info)}
		if s := p.sessions[v.sb.ID][item.Pid]; s != nil {
			item.Config, item.Tag = s.config, s.tag
		}
		out.Processes = append(out.Processes, item)
	}
	return connect.NewResponse(out), nil
}

// Update implements the service: it sets the size of a terminal.
func (p *processes) Update(ctx context.Context, req *connect.Request[pb.UpdateRequest]) (*connect.Response[pb.UpdateResponse], error) {
	err := p.with(ctx, req.Msg.GetProcess(), func(s *session) error {
		if req.Msg.Pty == nil {
			return nil
		}
		return s.command.Resize(ctx, *terminal(req.Msg.GetPty().GetSize()))
	})
	return connect.NewResponse(&pb.UpdateResponse{}), err
}

// write sends input to a process. While the process does not read, write blocks until the process or
// ctx ends.
func (s *session) write(ctx context.Context, in *pb.ProcessInput) error {
	data := in.GetStdin()
	if _, ok := in.GetInput().(*pb.ProcessInput_Pty); ok {
		data = in.GetPty()
	}
	if !s.stdin {
		return sandbox.Errorf(sandbox.Conflict, "process %d takes no input: it was started without stdin", s.pid)
	}
	_, err := s.command.WriteContext(ctx, data)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return noProcess()
	}
}

// SendInput implements the service.
func (p *processes) SendInput(ctx context.Context, req *connect.Request[pb.SendInputRequest]) (*connect.Response[pb.SendInputResponse], error) {
	err := p.with(ctx, req.Msg.GetProcess(), func(s *session) error { return s.write(ctx, req.Msg.GetInput()) })
	return connect.NewResponse(&pb.SendInputResponse{}), err
}

// StreamInput implements the service.
func (p *processes) StreamInput(ctx context.Context, stream *connect.ClientStream[pb.StreamInputRequest]) (*connect.Response[pb.StreamInputResponse], error) {
	var sel *pb.ProcessSelector
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().(type) {
		case *pb.StreamInputRequest_Start:
			sel = e.Start.GetProcess()
		case *pb.StreamInputRequest_Data:
			if err := p.with(ctx, sel, func(s *session) error { return s.write(ctx, e.Data.GetInput()) }); err != nil {
				return nil, err
			}
		}
	}
	return connect.NewResponse(&pb.StreamInputResponse{}), public(ctx, stream.Err())
}

// SendSignal implements the service.
func (p *processes) SendSignal(ctx context.Context, req *connect.Request[pb.SendSignalRequest]) (*connect.Response[pb.SendSignalResponse], error) {
	signals := map[pb.Signal]syscall.Signal{pb.Signal_SIGNAL_SIGKILL: syscall.SIGKILL, pb.Signal_SIGNAL_SIGTERM: syscall.SIGTERM}
	signal, ok := signals[req.Msg.GetSignal()]
	if !ok {
		return nil, connect.NewError(connect.CodeUnimplemented, sandbox.Errorf(sandbox.Unsupported, "signal %s cannot be sent", req.Msg.GetSignal()))
	}
	err := p.with(ctx, req.Msg.GetProcess(), func(s *session) error { return s.command.Signal(ctx, int(signal)) })
	return connect.NewResponse(&pb.SendSignalResponse{}), err
}

// CloseStdin implements the service.
func (p *processes) CloseStdin(ctx context.Context, req *connect.Request[pb.CloseStdinRequest]) (*connect.Response[pb.CloseStdinResponse], error) {
	err := p.with(ctx, req.Msg.GetProcess(), func(s *session) error { return s.command.CloseStdin() })
	return connect.NewResponse(&pb.CloseStdinResponse{}), err
}

// endEvent returns how a process ended, in the words of Go's os.ProcessState.
func endEvent(exit *agentapi.Exit) *pb.ProcessEvent {
	e := &pb.ProcessEvent_EndEvent{ExitCode: int32(exit.Code), Exited: true, Status: fmt.Sprintf("exit status %d", exit.Code)}
	if exit.Signal != 0 {
		e.ExitCode, e.Exited, e.Status = -1, false, "signal: "+signalName(exit.Signal)
	}
	if exit.Code != 0 {
		e.Error = &e.Status
	}
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: e}}
}

// signalName returns a signal's name: "killed", "terminated".
func signalName(n int) string { return syscall.Signal(n).String() }
