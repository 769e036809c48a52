package kernel

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

// bash is a bash that reads commands from its stdin. It is interactive, because SIGINT then ends
// the command and not the shell, but has no prompt, history or job control.
type bash struct {
	*process
	commands *os.File      // its stdin
	status   *bufio.Reader // has a line with the exit status after each command
	statuses *os.File      // the pipe that status reads
	code     string        // the name of the file with the code to execute
}

// bashSetup moves the descriptor for statuses to where scripts do not use it.
const bashSetup = `PS1= PS2= PROMPT_COMMAND=; unset HISTFILE; set +o history +H +m; exec 250>&3 3>&-; builtin printf '0\n' >&250
`

func startBash(argv []string, dir string, spec *kernelapi.ContextSpec) (*bash, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	stdin, commands, err := os.Pipe()
	if err != nil {
		read.Close()
		return nil, err
	}
	defer stdin.Close()
	b := &bash{commands: commands, status: bufio.NewReader(read), statuses: read, code: filepath.Join(dir, "bash-"+randomText()[:12])}
	if b.process, err = startProcess(argv, spec, []string{"PS1="}, stdin, write); err != nil {
		read.Close()
		commands.Close()
		return nil, err
	}
	go func() {
		<-b.ended
		read.Close()
		commands.Close()
		os.Remove(b.code)
	}()
	if _, err := b.command(bashSetup); err != nil {
		return nil, err
	}
	b.drain() // complaints about the missing terminal
	return b, nil
}

// command has lines executed, the last of which reports a status, and returns that.
func (b *bash) command(lines string) (int, error) {
	if _, err := b.commands.WriteString(lines); err != nil {
		return 0, errors.Join(err, b.how())
	}
	line, err := b.status.ReadString('\n')
	if err != nil {
		return 0, b.how()
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

// execute implements kernel. A status other than 0 is an error.
func (b *bash) execute(code string, emit func(kernelapi.Event)) (outcome, error) {
	if err := os.WriteFile(b.code, []byte(code), 0o600); err != nil {
		return outcome{}, err
	}
	b.attach(emit)
	defer b.attach(nil)
	// A command that SIGINT interrupts ends its line, and the next line is executed nevertheless.
	status, err := b.command("\\builtin eval \"$(<" + b.code + ")\" </dev/null\n\\builtin echo $? >&250\n")
	if err != nil {
		return outcome{}, err
	}
	b.drain()
	if status != 0 {
		emit(kernelapi.Event{Type: kernelapi.Failure, Name: "ExitStatus", Value: strconv.Itoa(status)})
	}
	return outcome{failed: status != 0}, nil
}

// interrupt implements kernel.
func (b *bash) interrupt(bool) { b.signalInterrupt() }

const (
	settleTries = 20
	settleTime  = 250 * time.Millisecond // of each try
)

// settle implements kernel. An interrupt makes bash drop what it has read of a line, so it gets a
// line until it has executed one. The line has no quotes, because the rest of one would open them.
// An interrupt at the end of a command can also leave bash in the next command of the same code,
// which another interrupt ends.
func (b *bash) settle() {
	defer b.statuses.SetReadDeadline(time.Time{})
	for try := range settleTries {
		if try > 0 {
			b.signalInterrupt()
		}
		mark := "settled-" + strconv.Itoa(try)
		if _, err := b.commands.WriteString("\n\\builtin echo " + mark + " >&250\n"); err != nil {
			return // it has ended
		}
		if err := b.statuses.SetReadDeadline(time.Now().Add(settleTime)); err != nil {
			return
		}
		for {
			line, err := b.status.ReadString('\n')
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return
			}
			if strings.TrimSpace(line) == mark {
				b.drain() // complaints about the rest of a line
				return
			}
		}
	}
	b.kill()
}
