package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

// jupyter is a Jupyter kernel: https://jupyter-client.readthedocs.io/en/stable/messaging.html
type jupyter struct {
	*process
	signer  signer
	session string
	shell   *socket
	iopub   *socket
	files   string // the beginning of the names of its files
	raw     bool   // the output of its process counts; other kernels repeat there what they send as messages

	mu      sync.Mutex
	current *execution // guarded by mu; nil while nothing executes
}

// execution is a request to execute code that has not ended.
type execution struct {
	id      string
	emit    func(kernelapi.Event)
	reply   chan struct{} // closed when the request was answered
	idle    chan struct{} // closed when all its output has arrived
	replied bool
	idled   bool
	outcome outcome
}

// connection is a Jupyter connection file.
type connection struct {
	Transport string `json:"transport"`
	IP        string `json:"ip"`
	Shell     int    `json:"shell_port"`
	IOPub     int    `json:"iopub_port"`
	Stdin     int    `json:"stdin_port"`
	Control   int    `json:"control_port"`
	Heartbeat int    `json:"hb_port"`
	Key       string `json:"key"`
	Scheme    string `json:"signature_scheme"`
	Name      string `json:"kernel_name"`
}

func (c connection) dial(port int) (net.Conn, error) {
	if c.Transport == "ipc" {
		return net.Dial("unix", c.IP+"-"+strconv.Itoa(port))
	}
	return net.Dial("tcp", net.JoinHostPort(c.IP, strconv.Itoa(port)))
}

// tcpConnection returns a connection over ports of the loopback that are free now.
func tcpConnection() (connection, error) {
	c := connection{Transport: "tcp", IP: "127.0.0.1"}
	for _, port := range []*int{&c.Shell, &c.IOPub, &c.Stdin, &c.Control, &c.Heartbeat} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return c, err
		}
		defer l.Close() // after the last is chosen, so that all differ
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return c, nil
}

// startJupyter starts a kernel whose argv has "{connection_file}" for the name of its connection
// file. It uses Unix sockets, or ports if tcp is set.
func startJupyter(argv []string, tcp bool, dir string, spec *kernelapi.ContextSpec) (*jupyter, error) {
	k := &jupyter{signer: signer{[]byte(randomText())}, session: randomText(), files: filepath.Join(dir, "k-"+randomText()[:12])}
	c := connection{Transport: "ipc", IP: k.files, Shell: 1, IOPub: 2, Stdin: 3, Control: 4, Heartbeat: 5}
	if tcp {
		var err error
		if c, err = tcpConnection(); err != nil {
			return nil, err
		}
	}
	c.Key, c.Scheme = string(k.signer.key), "hmac-sha256"
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	file := k.files + ".json"
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	argv = slices.Clone(argv)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "{connection_file}", file)
	}
	// A kernel ends by itself when this process has ended.
	env := []string{"JPY_PARENT_PID=" + strconv.Itoa(os.Getpid())}
	if k.process, err = startProcess(argv, spec, env, nil); err != nil {
		k.removeFiles()
		return nil, err
	}
	go func() {
		<-k.ended
		k.removeFiles()
	}()
	if err := k.connect(c); err != nil {
		k.kill()
		<-k.ended
		return nil, err
	}
	return k, nil
}

func (k *jupyter) removeFiles() {
	names, _ := filepath.Glob(k.files + "*") // the pattern is well-formed
	for _, name := range names {
		os.Remove(name)
	}
}

// connect connects to the kernel's sockets once it listens, and waits until it answers.
func (k *jupyter) connect(c connection) error {
	deadline := time.NewTimer(kernelapi.StartTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for _, s := range []struct {
		to   **socket
		port int
		kind string
	}{{&k.shell, c.Shell, "DEALER"}, {&k.iopub, c.IOPub, "SUB"}} {
		for *s.to == nil {
			if conn, err := c.dial(s.port); err == nil {
				if *s.to, err = newSocket(conn, s.kind); err != nil {
					conn.Close()
					return err
				}
				continue
			}
			select {
			case <-ticker.C:
			case <-k.ended:
				return k.how()
			case <-deadline.C:
				return errSlow
			}
		}
	}
	go k.receive(k.shell)
	go k.receive(k.iopub)
	return k.greet(deadline.C)
}

var errSlow = fmt.Errorf("the interpreter did not start within %s", kernelapi.StartTimeout)

// greet asks the kernel for its name until both sockets answer: a subscription takes effect at some
// time after it was sent.
func (k *jupyter) greet(deadline <-chan time.Time) error {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		e, err := k.request("kernel_info_request", struct{}{}, func(kernelapi.Event) {})
		if err != nil {
			return errors.Join(err, k.how())
		}
		for both := 0; both < 2; {
			select {
			case <-e.reply:
				e.reply = nil
				both++
				continue
			case <-e.idle:
				e.idle = nil
				both++
				continue
			case <-again.C:
			case <-k.ended:
				return k.how()
			case <-deadline:
				return errSlow
			}
			break
		}
		if e.reply == nil && e.idle == nil {
			return nil
		}
	}
}

// request sends a request on the shell's socket and makes it the current one.
func (k *jupyter) request(kind string, content any, emit func(kernelapi.Event)) (*execution, error) {
	id, frames, err := k.signer.request(k.session, kind, content)
	if err != nil {
		return nil, err
	}
	state := &execution{id: id, emit: emit, reply: make(chan struct{}), idle: make(chan struct{})}
	e := *state // the caller may forget its channels
	k.mu.Lock()
	k.current = state
	k.mu.Unlock()
	return &e, k.shell.send(frames...)
}

// idleGrace is how long the output of a request that was answered may take to arrive. A kernel
// drops output that its subscribers do not read quickly enough.
const idleGrace = 5 * time.Second

// execute implements kernel.
func (k *jupyter) execute(code string, emit func(kernelapi.Event)) (outcome, error) {
	return k.run(code, false, emit)
}

func (k *jupyter) run(code string, silent bool, emit func(kernelapi.Event)) (outcome, error) {
	if k.raw {
		k.attach(emit)
		defer k.attach(nil)
	}
	e, err := k.request("execute_request", map[string]any{
		"code": code, "silent": silent, "store_history": !silent, "user_expressions": struct{}{}, "allow_stdin": false, "stop_on_error": false,
	}, emit)
	if err != nil {
		return outcome{}, errors.Join(err, k.how())
	}
	defer k.forget()
	select {
	case <-e.reply:
	case <-k.ended:
		return outcome{}, k.how()
	}
	timer := time.NewTimer(idleGrace)
	defer timer.Stop()
	select {
	case <-e.idle:
	case <-timer.C:
	case <-k.ended:
	}
	if k.raw {
		k.drain()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current.outcome, nil
}

// interrupt implements kernel. A second interrupt could reach the kernel while it reports the first.
func (k *jupyter) interrupt(again bool) {
	if !again {
		k.signalInterrupt()
	}
}

// settle implements kernel. A kernel ignores interrupts while nothing executes.
func (k *jupyter) settle() {}

// forget drops what arrives from now on.
func (k *jupyter) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
}

// receive handles the messages of a socket until it is closed.
func (k *jupyter) receive(s *socket) {
	defer s.close()
	for {
		frames, err := s.receive()
		if err != nil {
			return
		}
		m, err := k.signer.parse(frames)
		if err != nil {
			continue // from a program that does not know the key, or too large
		}
		k.handle(m)
	}
}

func (k *jupyter) handle(m message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.current
	if e == nil || m.parent != e.id {
		return
	}
	switch m.header.Type {
	case "status":
		var c struct {
			State string `json:"execution_state"`
		}
		if json.Unmarshal(m.content, &c) == nil && c.State == "idle" && !e.idled {
			e.idled = true
			close(e.idle)
		}
	case "execute_reply", "kernel_info_reply":
		var c struct {
			Status string `json:"status"`
			Count  int    `json:"execution_count"`
		}
		if json.Unmarshal(m.content, &c) == nil && !e.replied {
			e.replied = true
			e.outcome = outcome{failed: c.Status != "ok", count: c.Count}
			close(e.reply)
		}
	default:
		if ev, ok := event(m); ok {
			e.emit(ev)
		}
	}
}

// event translates a message with output.
func event(m message) (kernelapi.Event, bool) {
	switch m.header.Type {
	case "stream":
		var c struct{ Name, Text string }
		if json.Unmarshal(m.content, &c) != nil || c.Text == "" {
			return kernelapi.Event{}, false
		}
		kind := kernelapi.Stdout
		if c.Name == "stderr" {
			kind = kernelapi.Stderr
		}
		return kernelapi.Event{Type: kind, Text: c.Text}, true
	case "execute_result", "display_data", "update_display_data":
		var c struct {
			Data      map[string]json.RawMessage `json:"data"`
			Transient struct {
				ID string `json:"display_id"`
			} `json:"transient"`
		}
		if json.Unmarshal(m.content, &c) != nil || len(c.Data) == 0 {
			return kernelapi.Event{}, false
		}
		return kernelapi.Event{
			Type: kernelapi.Result, Data: c.Data, Main: m.header.Type == "execute_result",
			DisplayID: c.Transient.ID, Update: m.header.Type == "update_display_data",
		}, true
	case "error":
		var c struct {
			Name      string   `json:"ename"`
			Value     string   `json:"evalue"`
			Traceback []string `json:"traceback"`
		}
		if json.Unmarshal(m.content, &c) != nil {
			return kernelapi.Event{}, false
		}
		return kernelapi.Event{Type: kernelapi.Failure, Name: c.Name, Value: c.Value, Traceback: c.Traceback}, true
	default:
		return kernelapi.Event{}, false
	}
}
