package environment

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestAgent(t *testing.T) {
	s := New(Config{
		SandboxURL: func(label string) string { return "http://" + label },
		Nameserver: "10.0.0.1", NetworkCA: []byte("ca"),
	}, nil, nil, nil)
	img := spec.Image{}
	img.Config.Env = []string{"A=image", "B=image", "MODBOX_SANDBOX_NAME=image", "=x", "broken"}
	img.Config.Entrypoint, img.Config.Cmd = []string{"sh"}, []string{"-c", "true"}
	sb := sandbox.Sandbox{ID: "id", Name: "name", HostLabel: "job-1-abc", Env: map[string]string{"B": "caller", "MODBOX_SANDBOX_URL": "caller"}}
	want := agentapi.Config{
		Hostname: "job-1", Main: []string{"sh", "-c", "true"},
		Env: map[string]string{
			"A": "image", "B": "caller", "MODBOX_SANDBOX_ID": "id", "MODBOX_SANDBOX_NAME": "name", "MODBOX_SANDBOX_URL": "caller",
			"PIP_RETRIES": "0", "NPM_CONFIG_FETCH_RETRIES": "0", "PIP_EXTRA_INDEX_URL": noNetworkIndex,
		},
	}
	if diff := cmp.Diff(want, s.Agent(&sb, &img)); diff != "" {
		t.Errorf("Agent() (-want +got):\n%s", diff)
	}
	sb.Network.Enabled = true
	delete(want.Env, "PIP_RETRIES")
	delete(want.Env, "NPM_CONFIG_FETCH_RETRIES")
	delete(want.Env, "PIP_EXTRA_INDEX_URL")
	want.Network = &agentapi.Network{Nameserver: "10.0.0.1", CA: "ca"}
	if diff := cmp.Diff(want, s.Agent(&sb, &img)); diff != "" {
		t.Errorf("Agent() with a network (-want +got):\n%s", diff)
	}
	s.cfg.Nameserver = ""
	if got := s.Agent(&sb, &img); got.Network != nil {
		t.Errorf("Agent() of a server without networks has the network %+v", got.Network)
	}
}

func TestPrestarts(t *testing.T) {
	for _, test := range []struct {
		main    string
		builtin bool
		want    bool
	}{
		{"/.modbox/agent kernels serve python", true, true},
		{"/.modbox/agent kernels serve python", false, false},
		{"/.modbox/agent kernels serve", true, false},
		{"/usr/local/bin/programs serve", true, true},
		{"/usr/local/bin/programs serve", false, false},
		{"supervisord -c /etc/supervisor/browser.conf", true, false},
		{"", true, false},
	} {
		img := spec.Image{Builtin: test.builtin}
		main := strings.Fields(test.main)
		img.Config.Entrypoint, img.Config.Cmd = main[:min(1, len(main))], main[min(1, len(main)):]
		if got := Prestarts(&img); got != test.want {
			t.Errorf("Prestarts() of %q, built in: %v, = %v", test.main, test.builtin, got)
		}
	}
}

func TestHostname(t *testing.T) {
	for label, want := range map[string]string{"job-1-abc": "job-1", "abc": "sandbox", "-abc": "sandbox", "": "sandbox"} {
		if got := Hostname(&sandbox.Sandbox{HostLabel: label}); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", label, got, want)
		}
	}
}

// agentOf returns a client of an agent that answers with a handler.
func agentOf(t *testing.T, h http.HandlerFunc) *agentapi.Client {
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: agentapi.MaxFrame}
	server.Start()
	c := agentapi.NewClient(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	t.Cleanup(func() { c.Close(); server.Close() })
	return c
}

// records are the environments of sandboxes, and their images.
type records struct{}

func (records) SetEnv(context.Context, sandbox.ID, map[string]string) error { return nil }

func (records) Lookup(context.Context, string) (spec.Image, error) { return spec.Image{}, nil }

// calls resumes a box when it is paused, after entered.
type calls struct {
	box     *box.Box
	entered func()
}

func (c calls) Use(context.Context, sandbox.Caller, string) (*box.Box, error) {
	c.entered()
	return c.box, nil
}

// TestUpdateConfiguresAsAnOperation pauses a sandbox between the two steps of an update. The agent that a resume starts takes no files after its
// configuration.
func TestUpdateConfiguresAsAnOperation(t *testing.T) {
	group := background.New()
	group.Start()
	var b *box.Box
	var configured atomic.Int32
	b = box.New(group, "s", agentOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/configure" { // no supervisor of interpreters runs
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(agentapi.Error{Code: agentapi.CodePortClosed})
			return
		}
		if sb := b.Sandbox(); !b.Busy() || sb.State != sandbox.Running {
			t.Errorf("the agent of a sandbox that is %s is configured beside operations", sb.State)
		}
		configured.Add(1)
	}))
	t.Cleanup(b.Cancel)
	become := func(state sandbox.State) {
		b.Lock()
		defer b.Unlock()
		sb := sandbox.Sandbox{ID: b.ID, State: state, Env: map[string]string{"OLD": "1"}}
		b.Set(sb)
	}
	become(sandbox.Running)
	uses := 0
	s := New(Config{}, records{}, records{}, calls{b, func() {
		if uses++; uses == 1 {
			become(sandbox.Paused) // after Use found it running
		} else {
			become(sandbox.Running)
		}
	}})
	value := "2"
	env, err := s.Update(t.Context(), sandbox.Caller{}, "s", map[string]*string{"NEW": &value})
	if diff := cmp.Diff(map[string]string{"OLD": "1", "NEW": "2"}, env); err != nil || diff != "" {
		t.Errorf("Update = %v, %s", err, diff)
	}
	if uses != 2 || configured.Load() != 1 {
		t.Errorf("%d uses and %d configurations, want 2 and 1", uses, configured.Load())
	}
	group.Stop()
	if err := group.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// envs records environments.
type envs struct {
	records
	env map[string]string
}

func (e *envs) SetEnv(ctx context.Context, _ sandbox.ID, env map[string]string) error {
	if ctx.Err() == nil {
		e.env = env
	}
	return ctx.Err()
}

// TestUpdateOutlivesItsCaller ends the request when the agent has the variables: the row also has them.
func TestUpdateOutlivesItsCaller(t *testing.T) {
	group := background.New()
	group.Start()
	ctx, cancel := context.WithCancel(t.Context())
	b := box.New(group, "s", agentOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/configure" { // no supervisor of interpreters runs
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(agentapi.Error{Code: agentapi.CodePortClosed})
			return
		}
		cancel()
	}))
	t.Cleanup(b.Cancel)
	b.Lock()
	b.Set(sandbox.Sandbox{ID: b.ID, State: sandbox.Running})
	b.Unlock()
	rows := &envs{}
	s := New(Config{}, rows, rows, calls{b, func() {}})
	value := "1"
	if _, err := s.Update(ctx, sandbox.Caller{}, "s", map[string]*string{"NEW": &value}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Update = %v, want Canceled, or nothing if it was done before", err)
	}
	group.Stop()
	if err := group.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"NEW": "1"}, rows.env); diff != "" {
		t.Errorf("the row: %s", diff)
	}
}

// TestUpdateEndsWithItsSandbox ends a sandbox whose agent does not answer.
func TestUpdateEndsWithItsSandbox(t *testing.T) {
	group := background.New()
	group.Start()
	called := make(chan struct{})
	b := box.New(group, "s", agentOf(t, func(w http.ResponseWriter, r *http.Request) {
		close(called)
		<-r.Context().Done()
	}))
	b.Lock()
	b.Set(sandbox.Sandbox{ID: b.ID, State: sandbox.Running})
	b.Unlock()
	s := New(Config{}, records{}, records{}, calls{b, func() {}})
	ended := make(chan struct{})
	go func() {
		<-called
		b.Cancel()
		b.Work.Wait()
		close(ended)
	}()
	value := "1"
	_, err := s.Update(t.Context(), sandbox.Caller{}, "s", map[string]*string{"NEW": &value})
	<-ended
	if errors.Is(err, context.DeadlineExceeded) || err == nil {
		t.Errorf("Update = %v, want the end of the sandbox", err)
	}
	group.Stop()
	if err := group.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// A layer of many files may take longer than the limit, which an agent that takes nothing may not.
func TestRestoreFiles(t *testing.T) {
	const limit, pause, size = 500 * time.Millisecond, 20 * time.Millisecond, 60
	var got atomic.Int64
	c := agentOf(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Store(n)
	})
	slow := progress{iotest.OneByteReader(strings.NewReader(strings.Repeat("x", size))), func() { time.Sleep(pause) }}
	if err := RestoreFiles(t.Context(), c, slow, limit); err != nil || got.Load() != size {
		t.Errorf("RestoreFiles() of a slow layer = %v, and the agent has %d bytes, want %d", err, got.Load(), size)
	}
	c = agentOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	if err := RestoreFiles(t.Context(), c, strings.NewReader("layer"), limit/10); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("RestoreFiles() of a mute agent = %v, want DeadlineExceeded", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := RestoreFiles(ctx, c, strings.NewReader("layer"), limit); !errors.Is(err, context.Canceled) {
		t.Errorf("RestoreFiles() = %v, want Canceled", err)
	}
}
