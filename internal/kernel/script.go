package kernel

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

//go:embed node.js
var nodeHarness []byte

// node is a Node.js that runs our harness, which reads requests from descriptor 3 and writes
// events to descriptor 4, as JSON, one a line.
type node struct {
	*process
	requests *os.File
	events   *bufio.Reader
}

// nodeReply is an event of the harness, or the end of an execution.
type nodeReply struct {
	kernelapi.Event
	Ready   bool `json:"ready"`
	Settled bool `json:"settled"`
	Done    bool `json:"done"`
	Failed  bool `json:"failed"`
	Count   int  `json:"count"`
}

func startNode(program, dir string, spec *kernelapi.ContextSpec) (*node, error) {
	harness := filepath.Join(dir, "node-"+randomText()[:12]+".js")
	if err := os.WriteFile(harness, nodeHarness, 0o600); err != nil {
		return nil, err
	}
	defer os.Remove(harness) // it is read when the harness is ready
	theirRequests, requests, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirRequests.Close()
	events, theirEvents, err := os.Pipe()
	if err != nil {
		requests.Close()
		return nil, err
	}
	defer theirEvents.Close()
	n := &node{requests: requests, events: bufio.NewReaderSize(events, 64<<10)}
	if n.process, err = startProcess([]string{program, harness, spec.Language}, spec, nil, nil, theirRequests, theirEvents); err != nil {
		requests.Close()
		events.Close()
		return nil, err
	}
	go func() {
		<-n.ended
		requests.Close()
		events.Close()
	}()
	slow := time.AfterFunc(kernelapi.StartTimeout, n.kill)
	defer slow.Stop()
	if r, err := n.next(); err != nil || !r.Ready {
		n.kill()
		return nil, errors.Join(err, n.how())
	}
	return n, nil
}

// next returns the harness's next event. One that is too large is read and left out.
func (n *node) next() (nodeReply, error) {
	var r nodeReply
	line, err := readLine(n.events, maxFrame)
	if err != nil {
		return r, n.how()
	}
	if line != nil && json.Unmarshal(line, &r) != nil {
		return r, fmt.Errorf("the harness of Node.js wrote a line that is not an event")
	}
	return r, nil
}

// readLine returns the next line, or nil for a line of more than most bytes.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	large := false
	for {
		part, err := r.ReadSlice('\n')
		if large = large || len(line)+len(part) > most; large {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// execute implements kernel.
func (n *node) execute(code string, emit func(kernelapi.Event)) (outcome, error) {
	request, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		return outcome{}, err
	}
	n.attach(emit)
	defer n.attach(nil)
	if _, err := n.requests.Write(append(request, '\n')); err != nil {
		return outcome{}, errors.Join(err, n.how())
	}
	for {
		r, err := n.next()
		switch {
		case err != nil:
			return outcome{}, err
		case r.Done:
			n.drain()
			return outcome{failed: r.Failed, count: r.Count}, nil
		case r.Type == kernelapi.Result, r.Type == kernelapi.Failure:
			n.drain() // output before it
			emit(r.Event)
		}
	}
}

// interrupt implements kernel.
func (n *node) interrupt(bool) { n.signalInterrupt() }

// settle implements kernel. Node.js handles a signal in its event loop, as the request to settle,
// and the harness answers that after the loop's next turn.
func (n *node) settle() {
	slow := time.AfterFunc(settleTries*settleTime, n.kill)
	defer slow.Stop()
	if _, err := n.requests.WriteString("{\"settle\":true}\n"); err != nil {
		return // it has ended
	}
	for {
		if r, err := n.next(); err != nil || r.Settled {
			return
		}
	}
}
