package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/agent/answer"
	"github.com/modbox/modbox/internal/agent/rootdir"
	"github.com/modbox/modbox/internal/agentapi"
)

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultLang = "C.UTF-8"
	defaultTerm = "xterm-256color"
)

// launch is a command with all defaults resolved.
type launch struct {
	program string // host path
	argv    []string
	env     []string
	dir     string // host path
	account rootdir.Account
	tty     bool
}

// prepare resolves how a command runs: user, environment, directory, program.
func (a *Agent) prepare(cmd agentapi.Command) (*launch, error) {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return nil, answer.Invalid("the command does not name a program")
	}
	for _, arg := range cmd.Argv {
		if strings.ContainsRune(arg, 0) {
			return nil, answer.Invalid("the command has an argument with a zero byte")
		}
	}
	def := a.defaults()
	user := cmd.User
	if user == "" {
		user = def.User
	}
	acc, err := a.root.Account(user)
	if err != nil {
		return nil, err
	}
	env, err := environment(acc, cmd, def.Env)
	if err != nil {
		return nil, err
	}
	dir, err := a.workingDir(acc, cmd.Cwd, def.WorkingDir)
	if err != nil {
		return nil, err
	}
	program, err := lookProgram(cmd.Argv[0], env["PATH"], dir)
	if err != nil {
		return nil, err
	}
	l := &launch{program: program, argv: cmd.Argv, dir: dir, account: acc, tty: cmd.TTY != nil}
	for name, value := range env {
		l.env = append(l.env, name+"="+value)
	}
	slices.Sort(l.env)
	return l, l.limit(cmd.Limits)
}

// environment returns the defaults of the account, overridden by the host's configuration,
// overridden by the command.
func environment(acc rootdir.Account, cmd agentapi.Command, configured map[string]string) (map[string]string, error) {
	env := map[string]string{"PATH": defaultPath, "HOME": acc.Home, "LANG": defaultLang}
	if acc.Name != "" {
		env["USER"], env["LOGNAME"] = acc.Name, acc.Name
	}
	if acc.Shell != "" {
		env["SHELL"] = acc.Shell
	}
	if cmd.TTY != nil {
		env["TERM"] = defaultTerm
	}
	for _, more := range []map[string]string{configured, cmd.Env} {
		for name, value := range more {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
				return nil, answer.Invalid("the environment variable %q has an invalid name or value", name)
			}
			env[name] = value
		}
	}
	return env, nil
}

// workingDir returns the host path of the directory that a command runs in; it must exist.
func (a *Agent) workingDir(acc rootdir.Account, wanted, configured string) (string, error) {
	if wanted == "" {
		wanted = a.root.StartDir(acc, configured)
	}
	if !filepath.IsAbs(wanted) {
		return "", answer.Invalid("the working directory %q is not absolute", wanted)
	}
	dir := a.root.Path(wanted)
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return "", answer.Errorf(agentapi.CodeNoCwd, "the sandbox has no directory %q", wanted)
	case err != nil || !info.IsDir():
		return "", answer.Invalid("the working directory %q is not a directory in the sandbox", wanted)
	}
	return dir, nil
}

// lookProgram finds a program as a shell does: in PATH, or, when the name contains a slash,
// relative to the working directory.
func lookProgram(name, path, dir string) (string, error) {
	candidates := []string{name}
	if strings.ContainsRune(name, '/') {
		if !filepath.IsAbs(name) {
			candidates[0] = filepath.Join(dir, name)
		}
	} else {
		candidates = candidates[:0]
		for _, entry := range filepath.SplitList(path) {
			if !filepath.IsAbs(entry) { // "" and relative entries mean the working directory
				entry = filepath.Join(dir, entry)
			}
			candidates = append(candidates, filepath.Join(entry, name))
		}
	}
	var denied error
	for _, c := range candidates {
		info, err := os.Stat(c)
		switch {
		case err != nil:
		case info.IsDir() || info.Mode()&0o111 == 0:
			denied = answer.Errorf(agentapi.CodeDenied, "%s is not an executable file", c)
		default:
			return c, nil
		}
	}
	if denied != nil {
		return "", denied
	}
	hint := ""
	if strings.ContainsAny(name, " \t\n|&;<>") {
		hint = `; a command line needs a shell: ["sh", "-c", "COMMAND LINE"]`
	}
	return "", answer.Errorf(agentapi.CodeNoProgram, "the sandbox has no program %q%s", name, hint)
}

// pipes are the process's ends of its input and output, and the agent's ends.
type pipes struct {
	stdin          *os.File // the agent's end; nil when the process has none; the terminal with a TTY
	stdout, stderr *os.File // the agent's ends; stderr is nil with a TTY
	theirs         []int    // descriptors: an [os.File] costs a system call
}

// closeTheirs closes the process's ends.
func (p *pipes) closeTheirs() {
	for i, fd := range p.theirs {
		if slices.Index(p.theirs, fd) == i {
			_ = unix.Close(fd) // nothing was written to it here
		}
	}
}

func (p *pipes) closeOurs() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// openPipes opens the input and output of a new process.
func openPipes(cmd agentapi.Command) (*pipes, error) {
	if cmd.TTY != nil {
		return openTerminal(*cmd.TTY)
	}
	p := new(pipes)
	err := func() error {
		in, err := p.openStdin(cmd.Stdin)
		if err != nil {
			return err
		}
		p.theirs = append(p.theirs, in)
		for _, ours := range []**os.File{&p.stdout, &p.stderr} {
			r, w, err := makePipe()
			if err != nil {
				return err
			}
			if *ours, err = pollable(r); err != nil {
				return errors.Join(err, unix.Close(r), unix.Close(w))
			}
			p.theirs = append(p.theirs, w)
		}
		return nil
	}()
	if err != nil {
		p.closeTheirs()
		p.closeOurs()
		return nil, err
	}
	return p, nil
}

func (p *pipes) openStdin(wanted bool) (int, error) {
	if !wanted {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
		}
		return fd, nil
	}
	r, w, err := makePipe()
	if err != nil {
		return 0, err
	}
	if p.stdin, err = pollable(w); err != nil {
		return 0, errors.Join(err, unix.Close(r), unix.Close(w))
	}
	return r, nil
}

// pollable returns the file of an end of a new pipe, and makes its reads or writes interruptible.
func pollable(fd int) (*os.File, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil { // it has no other flags
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), "pipe"), nil
}

// makePipe returns a pipe in blocking mode. os.Pipe would register both ends with the runtime's
// poller, although one end is only for the process; that costs a wake-up and a dozen system calls
// for each command.
func makePipe() (r, w int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, 0, os.NewSyscallError("pipe2", err)
	}
	return ends[0], ends[1], nil
}

// openTerminal opens a pseudo-terminal of a size. Package pty leaves the master in blocking mode;
// the agent needs a master whose reads can be interrupted.
func openTerminal(size agentapi.Size) (*pipes, error) {
	blocking, terminal, err := pty.Open()
	if err != nil {
		return nil, err
	}
	defer blocking.Close()
	defer terminal.Close()
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	slave, err := unix.FcntlInt(terminal.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		master.Close()
		return nil, err
	}
	p := &pipes{stdin: master, stdout: master, theirs: []int{slave, slave, slave}}
	if err := setSize(master, size); err != nil {
		p.closeTheirs()
		p.closeOurs()
		return nil, err
	}
	return p, nil
}

func setSize(terminal *os.File, size agentapi.Size) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
	})
	return errors.Join(err, failed)
}

// spawn starts the process in a session of its own and returns its pid.
func (l *launch) spawn(fds []int) (int, error) {
	attr := &syscall.ProcAttr{
		Dir: l.dir,
		Env: l.env,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: l.tty},
	}
	for _, fd := range fds {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	if !l.account.Current() || len(l.account.Groups) > 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: l.account.UID, Gid: l.account.GID, Groups: l.account.Groups}
	}
	pid, err := forkExec(l.program, l.argv, attr)
	switch {
	case err == nil:
		return pid, nil
	case errors.Is(err, fs.ErrPermission):
		return 0, answer.Errorf(agentapi.CodeDenied, "start %s in %s as uid %d: %v", l.program, l.dir, l.account.UID, err)
	case errors.Is(err, unix.ENOENT): // the program was found: its interpreter is missing, or it was just removed
		return 0, answer.Errorf(agentapi.CodeNoProgram, "start %s: it or its interpreter does not exist", l.program)
	case errors.Is(err, unix.ENOEXEC):
		return 0, answer.Errorf(agentapi.CodeDenied, "start %s: this machine cannot run it", l.program)
	case errors.Is(err, unix.E2BIG):
		return 0, answer.Invalid("start %s: arguments and environment are too long", l.program)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		return 0, answer.Errorf(agentapi.CodeTooMany, "start %s: the sandbox is out of processes or memory: %v", l.program, err)
	default:
		return 0, answer.Errorf(agentapi.CodeInternal, "start %s: %v", l.program, err)
	}
}
