package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
)

// small are resources that leave the cluster space for many sandboxes.
var small = client.Resources{Memory: "128Mi", Disk: "64Mi", CPU: "100m"}

// leastCalls is how often each kind of client has succeeded after a step of an update, before the next.
const leastCalls = 5

// clients call a server through its Service, each kind in a loop of its own.
type clients struct {
	*client.Client
	t    *testing.T
	ctx  context.Context // ends when they are to end
	stop context.CancelFunc
	work sync.WaitGroup
	// the successful calls of each kind
	creates, gets, execs, echoes, lines atomic.Int64
	broken                              atomic.Int64 // WebSockets that broke
	unknown                             atomic.Int64 // commands of which it is not known whether they ran

	id      string // the sandbox that they use
	counter *stormCaller
	stream  *client.Execution
	output  bytes.Buffer // of the execution, without gaps

	mu   sync.Mutex
	left []string // guarded by mu; sandboxes that exist
}

// startClients makes a sandbox and starts the clients.
func startClients(t *testing.T, c *client.Client) *clients {
	t.Helper()
	k := &clients{Client: c, t: t, counter: &stormCaller{c: c, done: new(atomic.Int64), counts: map[string]*count{}}}
	k.ctx, k.stop = context.WithCancel(t.Context())
	k.counter.create(t.Context())
	for id := range k.counter.counts {
		k.id = id
	}
	if k.id == "" {
		t.Fatal("there is no sandbox that counts")
	}
	k.left = []string{k.id}
	var err error
	k.stream, err = c.Executions.Start(t.Context(), k.id, client.Command{Argv: []string{"/bin/bash", "-c", "n=0; until [ -e /tmp/stop ]; do n=$((n+1)); echo line $n; sleep 0.05; done"}}, client.ExecutionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []func(context.Context) error{k.create, k.create, k.get, k.exec, k.echo} {
		k.work.Go(func() {
			for k.ctx.Err() == nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), callTime)
				err := f(ctx)
				cancel()
				if err != nil {
					t.Errorf("a call that may be repeated fails during an update: %v", err)
					return
				}
			}
		})
	}
	k.work.Go(k.follow)
	return k
}

// create makes a sandbox and destroys the sandbox before.
func (k *clients) create(ctx context.Context) error {
	sb, err := k.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/base", Resources: small})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	k.mu.Lock()
	k.left = append(k.left, sb.ID)
	k.mu.Unlock()
	if sb, err = k.Sandboxes.Wait(ctx, sb.ID, client.Running); err != nil || sb.State != client.Running {
		return fmt.Errorf("a new sandbox is %+v: %w", sb, err)
	}
	if _, err := k.Sandboxes.Delete(ctx, sb.ID); err != nil && !client.IsCode(err, client.NotFound) { // of an attempt before
		return fmt.Errorf("delete: %w", err)
	}
	k.mu.Lock()
	k.left = slices.DeleteFunc(k.left, func(id string) bool { return id == sb.ID })
	k.mu.Unlock()
	k.creates.Add(1)
	return nil
}

func (k *clients) get(ctx context.Context) error {
	if _, err := k.Sandboxes.Get(ctx, k.id); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	k.gets.Add(1)
	return nil
}

// exec runs a command that must not run twice. If it fails, the counter shows whether it ran.
func (k *clients) exec(ctx context.Context) error {
	if _, err := k.counter.increment(ctx, k.id); err != nil {
		k.unknown.Add(1)
		k.t.Logf("a command of which it is not known whether it ran: %v", err)
		return nil
	}
	k.execs.Add(1)
	return nil
}

// echo sends lines over a WebSocket and reads them back, until the WebSocket breaks or the clients end.
func (k *clients) echo(ctx context.Context) error {
	session, err := k.Sandboxes.Attach(context.WithoutCancel(ctx), k.id, client.Command{Argv: []string{"/bin/cat"}}, client.AttachOptions{Stdin: true})
	if err != nil {
		k.t.Logf("a WebSocket that does not open: %v", err)
		k.broken.Add(1)
		return nil // its opening is not repeated
	}
	out, in := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		_, err := session.Copy(in, io.Discard)
		in.CloseWithError(io.ErrUnexpectedEOF)
		copied <- err
	}()
	defer func() { <-copied }()
	defer session.Close()
	for n := 0; k.ctx.Err() == nil; n++ {
		line := fmt.Sprintf("line %d\n", n)
		if _, err := session.Write([]byte(line)); err != nil {
			k.broken.Add(1)
			return nil
		}
		got := make([]byte, len(line))
		if _, err := io.ReadFull(out, got); err != nil {
			k.broken.Add(1)
			return nil
		}
		if string(got) != line {
			return fmt.Errorf("the WebSocket answers %q to %q", got, line)
		}
		k.echoes.Add(1)
	}
	return nil
}

// follow reads the output of the execution to its end, from where it was after each break.
func (k *clients) follow() {
	for {
		r, err := k.Streams.Read(k.t.Context(), k.stream.Stdout.StreamID, client.StreamOptions{Follow: true, Offset: int64(k.output.Len())})
		if err != nil {
			k.t.Errorf("the output of the execution cannot be read on: %v", err)
			return
		}
		_, err = io.Copy(io.MultiWriter(&k.output, counted{&k.lines}), r)
		_ = r.Close()
		if err == nil {
			return
		}
	}
}

// counted counts writes.
type counted struct{ n *atomic.Int64 }

// Write implements [io.Writer].
func (c counted) Write(p []byte) (int, error) {
	c.n.Add(1)
	return len(p), nil
}

// goOn waits until all kinds of clients have succeeded again.
func (k *clients) goOn() {
	k.t.Helper()
	kinds := map[string]*atomic.Int64{"creates": &k.creates, "gets": &k.gets, "execs": &k.execs, "WebSockets": &k.echoes, "lines of a stream": &k.lines}
	before := map[string]int64{}
	for kind, n := range kinds {
		before[kind] = n.Load()
	}
	for kind, n := range kinds {
		until(k.t, kind+" succeed again", func() bool { return n.Load() >= before[kind]+leastCalls || k.t.Failed() })
	}
}

// end ends the clients, and checks that nothing is lost and that there is no sandbox of which no client knows.
func (k *clients) end() {
	k.t.Helper()
	k.stop()
	out, err := k.Sandboxes.Exec(k.t.Context(), k.id, client.Command{Argv: []string{"/bin/touch", "/tmp/stop"}})
	if err != nil {
		k.t.Fatalf("end the execution: %+v, %v", out, err)
	}
	k.work.Wait()
	want := strings.Builder{}
	for n := range strings.Count(k.output.String(), "\n") {
		fmt.Fprintf(&want, "line %d\n", n+1)
	}
	if got := k.output.String(); got != want.String() {
		k.t.Errorf("the output, read on at each break, is not complete: %q", got)
	}
	if e, err := k.Executions.Get(k.t.Context(), k.stream.ID, timeLimit); err != nil || e.Stdout.SizeBytes != int64(k.output.Len()) {
		k.t.Errorf("%d bytes of output were read: %+v, %v", k.output.Len(), e, err)
	}
	k.counter.verify(k.t)
	for sb, err := range k.Sandboxes.List(client.ListOptions{}).All(k.t.Context()) {
		if err != nil {
			k.t.Fatal(err)
		}
		if !slices.Contains(k.left, sb.ID) {
			k.t.Errorf("there is a sandbox of which no client knows: %+v", sb)
		}
	}
	for _, id := range k.left {
		if _, err := k.Sandboxes.Delete(k.t.Context(), id); err != nil {
			k.t.Errorf("lost: sandbox %s: %v", id, err)
		}
	}
}

// update updates the servers again and again while clients call them.
func (s standbys) update(t *testing.T) {
	k := startClients(t, s.Client)
	k.goOn()
	pods := func() []string {
		t.Helper()
		return strings.Fields(s.in(t, "get", "pods", "-l", "app.kubernetes.io/component=server", "-o", "jsonpath={.items[*].metadata.name}"))
	}
	for n, change := range [][]string{
		{"rollout", "restart", "deployment/modbox"},
		{"patch", "deployment", "modbox", "--patch", `{"spec": {"template": {"metadata": {"annotations": {"test/changed": "true"}}}}}`},
	} {
		before := pods()
		began := time.Now()
		s.in(t, change...)
		s.in(t, "rollout", "status", "--timeout", timeLimit.String(), "deployment/modbox")
		rolled := time.Since(began)
		until(t, "the Pods before are gone", func() bool {
			now := pods()
			return len(now) == s.replicas && !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) })
		})
		t.Logf("update %d: the new servers were ready after %v, the old gone after %v", n+1, rolled, time.Since(began))
		k.goOn()
	}
	k.end()
	t.Logf("%d creates, %d gets, %d commands and %d without an answer, %d lines over WebSockets, of which %d broke, %d bytes of a stream", k.creates.Load(), k.gets.Load(), k.execs.Load(), k.unknown.Load(), k.echoes.Load(), k.broken.Load(), k.output.Len())
	if k.broken.Load() == 0 {
		t.Error("no WebSocket broke: the updates have replaced no server")
	}
}
