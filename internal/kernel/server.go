package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

// Handler answers the requests that package kernelapi describes.
func (s *Supervisor) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, kernelapi.MaxRequest)
			if err := f(w, r); err != nil {
				refuse(w, asError(err))
			}
		})
	}
	handle("POST /contexts", s.createContext)
	handle("GET /contexts", func(w http.ResponseWriter, _ *http.Request) error { return answer(w, s.list()) })
	handle("DELETE /contexts/{id}", s.withContext(func(_ http.ResponseWriter, _ *http.Request, c *interpreterContext) error {
		s.remove(c)
		return nil
	}))
	handle("POST /contexts/{id}/interrupt", s.withContext(func(_ http.ResponseWriter, _ *http.Request, c *interpreterContext) error {
		c.interrupt()
		return nil
	}))
	handle("POST /contexts/{id}/restart", s.withContext(func(w http.ResponseWriter, _ *http.Request, c *interpreterContext) error {
		if err := c.restart(); err != nil {
			return err
		}
		return answer(w, c.view())
	}))
	handle("POST /contexts/{id}/modules", s.withContext(func(_ http.ResponseWriter, r *http.Request, c *interpreterContext) error {
		var modules kernelapi.Modules
		if err := decode(r, &modules); err != nil {
			return err
		}
		return c.load(modules)
	}))
	handle("PUT /environment", s.setEnvironment)
	handle("PUT /environment/later", setLaterEnvironment)
	handle("POST /runs/{id}", s.readRun)
	handle("DELETE /runs/{id}", func(_ http.ResponseWriter, r *http.Request) error {
		if run := s.run(r.PathValue("id")); run != nil {
			run.interrupt(kernelapi.Interrupted)
		}
		return nil
	})
	return mux
}

func (s *Supervisor) createContext(w http.ResponseWriter, r *http.Request) error {
	var spec kernelapi.ContextSpec
	if err := decode(r, &spec); err != nil {
		return err
	}
	c, err := s.open(spec)
	if err != nil {
		return err
	}
	return answer(w, c.view())
}

func (s *Supervisor) withContext(f func(w http.ResponseWriter, r *http.Request, c *interpreterContext) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		c, err := s.find(r.PathValue("id"))
		if err != nil {
			return err
		}
		return f(w, r, c)
	}
}

// readRun starts a run unless it exists, and answers its events.
func (s *Supervisor) readRun(w http.ResponseWriter, r *http.Request) error {
	var spec kernelapi.Run
	if err := decode(r, &spec); err != nil {
		return err
	}
	n, err := strconv.Atoi("0" + r.URL.Query().Get("after"))
	if err != nil {
		return &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: "after is not a number"}
	}
	run, err := s.begin(r.PathValue("id"), &spec)
	if err != nil {
		return err
	}
	defer run.open()()
	w.Header().Set("Content-Type", "application/x-ndjson")
	for {
		events, ended, more := run.next(n)
		for _, ev := range events {
			if _, err := w.Write(ev); err != nil {
				return nil // the reader is gone
			}
		}
		if n += len(events); ended {
			return nil
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return nil
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return nil
		}
	}
}

func decode(r *http.Request, v any) error {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		return &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: "the body is not valid: " + err.Error()}
	}
	return nil
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails if the caller is gone
	return nil
}

func refuse(w http.ResponseWriter, e *kernelapi.Error) {
	status := http.StatusInternalServerError
	switch e.Code {
	case kernelapi.CodeInvalid:
		status = http.StatusBadRequest
	case kernelapi.CodeNotFound:
		status = http.StatusNotFound
	case kernelapi.CodeTooMany:
		status = http.StatusTooManyRequests
	case kernelapi.CodeNotInstalled:
		status = http.StatusNotImplemented
	}
	w.WriteHeader(status)
	_ = answer(w, e)
}

// Serve answers on the socket in dir until it fails, and opens the default contexts of languages.
// It returns nil if another supervisor does so already. ready is called when the socket answers.
func Serve(dir string, ready func(), languages ...string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; !info.IsDir() || int(owner) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a directory that belongs to this user (%d) alone", dir, os.Geteuid())
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return waitFor(dir, ready)
		}
		return err
	}
	path := filepath.Join(dir, kernelapi.Socket)
	os.Remove(path) // of a supervisor that has ended
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	s := New(dir)
	defer s.Close()
	ready()
	for _, name := range languages {
		go func() { _, _ = s.open(kernelapi.ContextSpec{Language: name}) }() // the first run in it tries again
	}
	return http.Serve(l, s.Handler())
}

// readyTimeout bounds the start of a supervisor.
const readyTimeout = 20 * time.Second

// waitFor waits until the supervisor that has the lock answers.
func waitFor(dir string, ready func()) error {
	for end := time.Now().Add(readyTimeout); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(dir, kernelapi.Socket))
		if err == nil {
			conn.Close()
			ready()
			return nil
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// Start starts this program with args as a supervisor that outlives this process, and returns
// when it answers.
func Start(args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	cmd := exec.Command(self, args...)
	cmd.Stdout = write
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	write.Close()
	if err != nil {
		return err
	}
	if err := read.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	// It closes its stdout when it answers, and writes its error there.
	message, err := io.ReadAll(io.LimitReader(read, 4<<10))
	switch {
	case err != nil:
		return fmt.Errorf("the supervisor of kernels did not start: %w", err)
	case len(message) > 0:
		return errors.New(string(message))
	default:
		return cmd.Process.Release()
	}
}
