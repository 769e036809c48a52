package kernel

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

// harness is an interpreter that runs a program of ours, a harness. A thread of the program reads requests from
// descriptor 3 and writes events to descriptor 4, as JSON, one a line.
type harness struct {
	*process
	requests *os.File
	events   *bufio.Reader

	mu        sync.Mutex
	executing bool // guarded by mu; the harness has code that has not ended
	early     bool // guarded by mu; an interrupt came before the code
}

// reply is an event of the harness, or the end of an execution.
type reply struct {
	kernelapi.Event
	Ready   bool `json:"ready"`
	Settled bool `json:"settled"`
	Done    bool `json:"done"`
	Failed  bool `json:"failed"`
	Count   int  `json:"count"`
}

func startNode(program, dir string, spec *kernelapi.ContextSpec) (*harness, error) {
	name := filepath.Join(dir, "node-"+randomText()[:12])
	// Code that is ended in a callback leaves Node.js's stack of asynchronous calls as it is; the check
	// would end the process.
	argv := []string{program, "--no-force-async-hooks-checks", name + ".js", spec.Language}
	return startHarness(argv, map[string]string{name + ".js": "node.js", name + ".control.js": "nodecontrol.js"}, spec)
}

// startJava starts the Java in a directory. Of its collectors of garbage, the serial one has the fewest threads.
func startJava(bin, dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	name := filepath.Join(dir, "java-"+randomText()[:12]+".java")
	k, err := startHarness([]string{filepath.Join(bin, "java"), "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8", name}, map[string]string{name: "kernel.java"}, spec)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// startHarness starts an interpreter with files, which have the programs with the names that are given.
func startHarness(argv []string, names map[string]string, spec *kernelapi.ContextSpec) (*harness, error) {
	files, err := scripts()
	if err != nil {
		return nil, err
	}
	// They are read when the harness is ready.
	for file, name := range names {
		if err := os.WriteFile(file, []byte(files[name]), 0o600); err != nil {
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
	h := &harness{requests: requests, events: bufio.NewReaderSize(events, 64<<10)}
	if h.process, err = startProcess(argv, spec, nil, nil, theirRequests, theirEvents); err != nil {
		requests.Close()
		events.Close()
		return nil, err
	}
	go func() {
		<-h.ended
		requests.Close()
		events.Close()
	}()
	slow := time.AfterFunc(kernelapi.StartTimeout, h.kill)
	defer slow.Stop()
	if r, err := h.next(); err != nil || !r.Ready {
		h.kill()
		return nil, errors.Join(err, h.how())
	}
	return h, nil
}

// next returns the harness's next event. One that is too large is read and left out.
func (h *harness) next() (reply, error) {
	var r reply
	line, err := readLine(h.events, maxFrame)
	if err != nil {
		return r, h.how()
	}
	if line != nil && json.Unmarshal(line, &r) != nil {
		return r, errors.New("the harness wrote a line that is not an event")
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
func (h *harness) execute(code string, emit func(kernelapi.Event)) (outcome, error) {
	request, err := json.Marshal(map[string]string{"code": code})
	if err != nil {
		return outcome{}, err
	}
	h.attach(emit)
	defer h.attach(nil)
	begun, err := h.begin(request)
	if err != nil {
		return outcome{}, errors.Join(err, h.how())
	}
	if !begun {
		emit(kernelapi.Event{Type: kernelapi.Failure, Name: "Interrupted", Value: "the execution was interrupted"})
		return outcome{failed: true}, nil
	}
	defer func() {
		h.mu.Lock()
		h.executing = false
		h.mu.Unlock()
	}()
	for {
		r, err := h.next()
		switch {
		case err != nil:
			return outcome{}, err
		case r.Done:
			h.drain()
			return outcome{failed: r.Failed, count: r.Count}, nil
		case r.Type == kernelapi.Result, r.Type == kernelapi.Failure:
			h.drain() // output before it
			emit(r.Event)
		}
	}
}

// begin sends code to the harness, unless an interrupt came before.
func (h *harness) begin(request []byte) (begun bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.early {
		return false, nil
	}
	h.executing = true
	_, err = h.requests.Write(append(request, '\n'))
	return err == nil, err
}

// interrupt implements kernel. The signal is for programs that the code has started.
func (h *harness) interrupt(bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.executing {
		h.early = true
		return
	}
	h.signalInterrupt()
	_, _ = h.requests.WriteString("{\"interrupt\":true}\n") // fails if it has ended
}

// settle implements kernel. The harness answers when no termination of code is under way.
func (h *harness) settle() {
	h.mu.Lock()
	h.early = false
	h.mu.Unlock()
	slow := time.AfterFunc(settleTries*settleTime, h.kill)
	defer slow.Stop()
	if _, err := h.requests.WriteString("{\"settle\":true}\n"); err != nil {
		return // it has ended
	}
	for {
		if r, err := h.next(); err != nil || r.Settled {
			return
		}
	}
}
