package kernel

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/kernelapi"
)

// announceTimeout bounds the call that announces an environment.
const announceTimeout = 20 * time.Second

// Announce gives the supervisor whose socket is in dir the environment of this process, and returns
// when its contexts have that environment.
func Announce(dir string) error { return announce(dir, "/environment") }

// AnnounceLater gives the supervisor whose socket is in dir the environment of this process, for
// interpreters that start later. Interpreters that run keep theirs.
func AnnounceLater(dir string) error { return announce(dir, "/environment/later") }

func announce(dir, path string) error {
	env := kernelapi.Environment{}
	for _, v := range os.Environ() {
		if name, value, ok := strings.Cut(v, "="); ok {
			env[name] = value
		}
	}
	body, err := json.Marshal(env)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("unix", filepath.Join(dir, kernelapi.Socket), announceTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(announceTimeout)); err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPut, "http://supervisor"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Close = true
	// Without a transport the program is smaller.
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a part of it helps as well
		return fmt.Errorf("the supervisor of kernels refuses the environment: %s", message)
	}
	return nil
}

// setEnvironment is the handler that makes an environment the environment of the supervisor and of
// its contexts. The host sends it once, before a sandbox that gets this box runs.
func (s *Supervisor) setEnvironment(_ http.ResponseWriter, r *http.Request) error {
	changes, err := takeEnvironment(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	var all []*interpreterContext
	for _, c := range s.contexts {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.adopt(changes)
	}
	return nil
}

// setLaterEnvironment is the handler that makes an environment the environment of the supervisor,
// and so of the interpreters that start later.
func setLaterEnvironment(_ http.ResponseWriter, r *http.Request) error {
	_, err := takeEnvironment(r)
	return err
}

// takeEnvironment makes the environment in a request the environment of this process, and returns
// the changes: nil for variables that it removed.
func takeEnvironment(r *http.Request) (map[string]*string, error) {
	var env kernelapi.Environment
	if err := decode(r, &env); err != nil {
		return nil, err
	}
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: fmt.Sprintf("%q is not a valid environment variable", name)}
		}
	}
	changes := changedFrom(os.Environ(), env)
	for name, value := range changes {
		var err error
		if value == nil {
			err = os.Unsetenv(name)
		} else {
			err = os.Setenv(name, *value)
		}
		if err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// changedFrom returns the variables of env that differ from now, and nil for variables that env lacks.
func changedFrom(now []string, env kernelapi.Environment) map[string]*string {
	changes := map[string]*string{}
	for name, value := range env {
		changes[name] = &value
	}
	for _, v := range now {
		name, value, _ := strings.Cut(v, "=")
		switch wanted, ok := env[name]; {
		case !ok:
			changes[name] = nil
		case wanted == value:
			delete(changes, name)
		}
	}
	return changes
}

// Variables that an interpreter, or a library that it may have loaded, reads only when it starts.
var (
	startVariables = []string{"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV"}
	startPrefixes  = []string{
		"PYTHON", "IPYTHON", "JUPYTER", "ZMQ_", "LD_", "LC_", "MALLOC_", "GLIBC_", "XDG_", "OPENSSL_",
		"OPENBLAS_", "GOTO_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "NPY_", "NUMPY_", "NUMEXPR_", "SCIPY_", "SKLEARN_", "JOBLIB_", "PANDAS_", "PYTZ_", "MPL", "MATPLOTLIB",
	}
)

// readAtStart reports whether an interpreter that runs does not notice a change of a variable.
func readAtStart(name string) bool {
	return slices.Contains(startVariables, name) ||
		slices.ContainsFunc(startPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// adopt gives the interpreter of a context that never executed code other variables, nil for variables
// to remove. An interpreter that cannot change them is replaced.
func (c *interpreterContext) adopt(changes map[string]*string) {
	if len(changes) > 0 {
		_ = c.between(func() error { // fails if the context ends
			c.changeEnvironment(changes)
			return nil
		})
	}
}

// between calls f between two runs of the context.
func (c *interpreterContext) between(f func() error) error {
	done := make(chan error, 1)
	select {
	case c.tasks <- func() { done <- f() }:
	case <-c.closing:
		return notFound(c.spec.ID)
	}
	select {
	case err := <-done:
		return err
	case <-c.closing:
		return notFound(c.spec.ID)
	}
}

// load has the interpreter of a context load modules, as their import would.
func (c *interpreterContext) load(modules kernelapi.Modules) error {
	return c.between(func() error {
		c.mu.Lock()
		k, ok := c.kernel.(*jupyter)
		c.mu.Unlock()
		if !ok {
			return &kernelapi.Error{Code: kernelapi.CodeInvalid, Message: fmt.Sprintf("context %q has no interpreter of Python", c.spec.ID)}
		}
		return k.change("import importlib\nfor name in data:\n    importlib.import_module(name)\n", modules)
	})
}

// changeEnvironment is adopt between two runs.
func (c *interpreterContext) changeEnvironment(changes map[string]*string) {
	c.mu.Lock()
	k := c.kernel
	c.mu.Unlock()
	if k == nil || k.hasEnded() {
		return // the next run starts it, with the variables of this process
	}
	restart := false
	for name := range changes {
		restart = restart || readAtStart(name)
	}
	if e, ok := k.(*jupyter); ok && !restart && e.setEnviron(changes) == nil {
		return
	}
	k.kill()
	c.mu.Lock()
	c.kernel, c.starts = nil, 0 // nobody has used it
	c.mu.Unlock()
	go func() { _, _ = c.start() }() // the first run tries again
}

// setEnviron sets environment variables of a Python kernel, and removes variables whose value is nil. The interpreter may be
// a copy: so the generators of random numbers get another seed, and modules forget the host name and what they have drawn.
func (k *jupyter) setEnviron(changes map[string]*string) error {
	return k.change(`import os, random, sys
for name, value in data.items():
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
random.seed()
loaded = sys.modules.get
if m := loaded('platform'):
    m._uname_cache = None
if m := loaded('multiprocessing.process'):
    m.current_process().authkey = os.urandom(32)
if m := loaded('tempfile'):
    m._name_sequence = None
if m := loaded('uuid'):
    m._node = None
if 'numpy.random' in sys.modules:
    sys.modules['numpy.random'].seed()
`, changes)
}

// change executes code of the supervisor in a Python kernel, with a value that it finds in the variable data.
func (k *jupyter) change(code string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	text, err := json.Marshal(fmt.Sprintf("import json\ndata = json.loads(%q)\n%s", data, code))
	if err != nil {
		return err
	}
	// Code in a scope of its own leaves no names.
	var reason string
	out, err := k.run("exec("+string(text)+", {})", true, func(ev kernelapi.Event) {
		if ev.Type == kernelapi.Failure {
			reason = ev.Name + ": " + ev.Value
		}
	})
	if err == nil && out.failed {
		err = fmt.Errorf("the interpreter did not do what the supervisor asked for: %s", shorten(reason, 1<<10))
	}
	return err
}
