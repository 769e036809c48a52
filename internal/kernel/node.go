package kernel

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

// node is a Node.js that runs our harness. A thread of the harness reads requests from descriptor 3 and writes
// events to descriptor 4, as JSON, one a line.
type node struct {
	*process
	requests *os.File
	events   *bufio.Reader

	mu        sync.Mutex
	executing bool // guarded by mu; the harness has code that has not ended
	early     bool // guarded by mu; an interrupt came before the code
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
	files, err := scripts()
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "node-"+randomText()[:12])
	// They are read when the harness is ready.
	for file, content := range map[string]string{name + ".js": files["node.js"], name + ".control.js": files["nodecontrol.js"]} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return nil, err
		}
		defer os.Remove(file)
	}
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
	// Code that is ended in a callback leaves Node.js's stack of asynchronous calls as it is; the check
	// would end the process.
	argv := []string{program, "--no-force-async-hooks-checks", name + ".js", spec.Language}
	if n.process, err = startProcess(argv, spec, nil, nil, theirRequests, theirEvents); err != nil {
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
	begun, err := n.begin(request)
	if err != nil {
		return outcome{}, errors.Join(err, n.how())
	}
	if !begun {
		emit(kernelapi.Event{Type: kernelapi.Failure, Name: "Interrupted", Value: "the execution was interrupted"})
		return outcome{failed: true}, nil
	}
	defer func() {
		n.mu.Lock()
		n.executing = false
		n.mu.Unlock()
	}()
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

// begin sends code to the harness, unless an interrupt came before.
func (n *node) begin(request []byte) (begun bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.early {
		return false, nil
	}
	n.executing = true
	_, err = n.requests.Write(append(request, '\n'))
	return err == nil, err
}

// interrupt implements kernel. The signal is for programs that the code has started.
func (n *node) interrupt(bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.executing {
		n.early = true
		return
	}
	n.signalInterrupt()
	_, _ = n.requests.WriteString("{\"interrupt\":true}\n") // fails if it has ended
}

// settle implements kernel. The harness answers when no termination of code is under way.
func (n *node) settle() {
	n.mu.Lock()
	n.early = false
	n.mu.Unlock()
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
