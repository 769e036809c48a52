package diskfull_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
	"github.com/modbox/modbox/test/loopfs"
	"github.com/modbox/modbox/test/testserver"
)

// timeLimit bounds what must not take for ever.
const timeLimit = 5 * time.Minute

// tenant is a workspace with a user of its own.
type tenant struct {
	*client.Client
	t    testing.TB
	name string
}

const password = "a-long-passw0rd"

// newTenant makes a user; its workspace comes with it.
func newTenant(t testing.TB, s *testserver.Server, name string) *tenant {
	t.Helper()
	if _, err := s.Users.Create(t.Context(), client.UserOptions{Name: name, Password: password}); err != nil {
		t.Fatal(err)
	}
	v := &tenant{t: t, name: name}
	v.signIn(s)
	return v
}

// signIn signs in, and uses the new session from then on.
func (v *tenant) signIn(s *testserver.Server) {
	v.t.Helper()
	session, err := s.Account.Login(v.t.Context(), v.name, password)
	if err == nil {
		v.Client, err = client.New(s.URL, session.AccessToken, client.WithAttempts(1))
	}
	if err != nil {
		v.t.Fatalf("sign in as %s: %v", v.name, err)
	}
}

func (v *tenant) create(o client.CreateOptions) *client.Sandbox {
	v.t.Helper()
	o.Image, o.WaitUpTo = "modbox/base", timeLimit
	sb, err := v.Sandboxes.Create(v.t.Context(), o)
	if err != nil || sb.State != client.Running {
		v.t.Fatalf("create: %+v, %v", sb, err)
	}
	return sb
}

// tally counts operations and keeps what went wrong and what took longest.
type tally struct {
	mu     sync.Mutex
	done   int
	failed []string
	worst  time.Duration
}

func (c *tally) try(what string, do func() error) {
	begin := time.Now()
	err := do()
	took := time.Since(begin)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done++
	c.worst = max(c.worst, took)
	if err != nil {
		c.failed = append(c.failed, what+": "+err.Error())
	}
}

// use does everything that must work on a full disk: it runs a command, signs in, and
// destroys a sandbox.
func (c *tally) use(ctx context.Context, s *testserver.Server, v *tenant, sb string, doomed ...string) {
	c.try("exec", func() error {
		res, err := v.Sandboxes.Exec(ctx, sb, client.Command{Argv: []string{"cat", "/dev/shm/marker"}})
		if err == nil && string(res.Stdout) != "mine\n" {
			err = errors.New("it printed " + string(res.Stdout))
		}
		return err
	})
	c.try("sign in", func() error {
		_, err := s.Account.Login(ctx, v.name, password)
		return err
	})
	for _, id := range doomed {
		c.try("destroy", func() error {
			_, err := v.Sandboxes.Delete(ctx, id)
			return err
		})
	}
}

func (c *tally) report(t *testing.T) {
	t.Helper()
	t.Logf("%d operations, %d failed, the longest took %s", c.done, len(c.failed), c.worst.Round(time.Millisecond))
	for _, f := range c.failed {
		t.Errorf("on a full disk: %s", f)
	}
}

// small has its files in memory, so that what it does needs no disk.
var small = client.Resources{Memory: "128Mi", Disk: "16Mi", CPU: "500m"}

const fillDisk = "while :; do dd if=/dev/zero of=/var/tmp/f$RANDOM bs=1M count=512; done"

// TestSandboxesThatFillTheDisk is two sandboxes of one tenant, within their limits, that
// together write more than there is.
func TestSandboxesThatFillTheDisk(t *testing.T) {
	fs := loopfs.New(t, 2600<<20)
	s := testserver.StartIn(t, fs.Dir)
	quiet, hostile := newTenant(t, s, "quiet"), newTenant(t, s, "hostile")
	bystander := quiet.create(client.CreateOptions{Resources: small})
	mark(t, quiet, bystander.ID)
	var doomed []string
	for range 3 {
		doomed = append(doomed, quiet.create(client.CreateOptions{Resources: small}).ID)
	}
	mortal := quiet.create(client.CreateOptions{Resources: small, TTL: time.Minute})
	var attackers []string
	for range 2 {
		sb := hostile.create(client.CreateOptions{})
		attackers = append(attackers, sb.ID)
	}
	free := fs.Free()
	for _, id := range attackers {
		if _, err := hostile.Executions.Start(t.Context(), id, client.Command{Shell: fillDisk, User: "root"}, client.ExecutionOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	var c tally
	least := free
	for evicted := false; !evicted || len(doomed) > 0; {
		least = min(least, fs.Free())
		var gone []string
		if evicted = len(ended(t, hostile, attackers)) > 0; evicted && len(doomed) > 0 {
			gone, doomed = doomed[:1], doomed[1:]
		}
		c.use(ctx, s, quiet, bystander.ID, gone...)
	}
	if got, err := quiet.Sandboxes.Wait(ctx, mortal.ID, client.Destroyed); err != nil || got.Cause == nil || got.Cause.Code != "ttl" {
		t.Errorf("the sandbox with a ttl: %+v, %v", got, err)
	}
	for _, sb := range ended(t, hostile, attackers) {
		if sb.Cause == nil || sb.Cause.Code != "disk_full" || sb.Cause.Message == "" {
			t.Errorf("a sandbox that filled the disk ended with %+v, want cause disk_full", sb.Cause)
		}
		events, err := hostile.Sandboxes.Events(sb.ID, client.EventsOptions{}).Collect(ctx)
		if err != nil || !slices.ContainsFunc(events, func(e client.Event) bool { return e.Data["cause"] == "disk_full" }) {
			t.Errorf("its events: %+v, %v", events, err)
		}
		t.Logf("ended: %s", sb.Cause.Message)
	}
	for _, id := range attackers {
		c.try("destroy", func() error { _, err := hostile.Sandboxes.Delete(ctx, id); return err })
	}
	c.use(ctx, s, quiet, bystander.ID)
	c.report(t)
	recovered(t, fs, s, free)
	t.Logf("free: %d MiB before, %d MiB at the least, %d MiB afterwards", free>>20, least>>20, fs.Free()>>20)
	quiet.create(client.CreateOptions{Resources: small})
}

// TestDiskFilledByOthers is a disk that something else on the host fills, so that no
// sandbox can be ended to free it. The server is killed and started again meanwhile.
func TestDiskFilledByOthers(t *testing.T) {
	fs := loopfs.New(t, 2600<<20)
	s := testserver.StartIn(t, fs.Dir)
	quiet := newTenant(t, s, "quiet")
	bystander := quiet.create(client.CreateOptions{Resources: small})
	mark(t, quiet, bystander.ID)
	var doomed []string
	for range 6 {
		doomed = append(doomed, quiet.create(client.CreateOptions{Resources: small}).ID)
	}
	mortal := quiet.create(client.CreateOptions{Resources: small, TTL: time.Minute})
	free := fs.Free()
	var removes []func()
	fill := func(name string) { removes = append(removes, fs.Fill(name, 0)) }
	fill("f1")
	ctx, cancel := context.WithTimeout(t.Context(), timeLimit)
	defer cancel()
	var c tally
	for i := range 3 {
		c.use(ctx, s, quiet, bystander.ID, doomed[i])
	}
	if _, err := quiet.Sandboxes.Create(ctx, client.CreateOptions{Image: "modbox/base", Resources: small}); !client.IsCode(err, client.Unavailable) {
		t.Errorf("create on a full disk: %v, want code unavailable", err)
	}
	s.Kill()
	fill("f2")
	s.Launch()
	quiet.signIn(s)
	fill("f3") // the part of the ballast that the start has released
	for i := range 2 {
		c.use(ctx, s, quiet, bystander.ID, doomed[3+i])
	}
	if got, err := quiet.Sandboxes.Wait(ctx, mortal.ID, client.Destroyed); err != nil || got.Cause == nil || got.Cause.Code != "ttl" {
		t.Errorf("the sandbox with a ttl: %+v, %v", got, err)
	}
	s.Stop() // which gives back the space of the log
	s.Launch()
	quiet.signIn(s)
	c.use(ctx, s, quiet, bystander.ID, doomed[5])
	c.report(t)
	for _, remove := range removes {
		remove()
	}
	recovered(t, fs, s, free)
	quiet.create(client.CreateOptions{Resources: small})
}

// TestOutputGoesOnAfterTheDiskWasFull: only the output of the time in which the disk was
// full is missing, and the stream says where.
func TestOutputGoesOnAfterTheDiskWasFull(t *testing.T) {
	fs := loopfs.New(t, 64<<20)
	streams, err := stream.Open(filepath.Join(fs.Dir, "streams"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.NewStreamID()
	if err := streams.Create(id, 1<<20); err != nil {
		t.Fatal(err)
	}
	w, err := streams.Writer(id)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 4095) + "\n"
	written := int64(0)
	write := func(text string) {
		t.Helper()
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if written += int64(len(text)); w.Offset() != written {
			t.Fatalf("offset %d after %d bytes were written", w.Offset(), written)
		}
	}
	write("before\n")
	remove := fs.Fill("filler", 0)
	for range 16 {
		write(line) // the first may have space in the last block
	}
	if !w.Lossy() {
		t.Fatal("64 KiB were written to a full disk")
	}
	remove()
	write("after\n")
	write("more\n")
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	r, info, err := streams.Reader(t.Context(), id, 0, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !strings.HasPrefix(string(got), "before\n") || !strings.HasSuffix(string(got), "disk was full]\nafter\nmore\n") {
		t.Errorf("the stream has %d bytes that end with %q, %v", len(got), got[max(0, len(got)-200):], err)
	}
	if !info.Truncated {
		t.Errorf("%+v, want truncated", info)
	}
}

// TestDestroyWithoutAnySpace runs on a disk on which another program also takes the server's
// reserve: only a destroy succeeds, and frees space for the rest.
func TestDestroyWithoutAnySpace(t *testing.T) {
	fs := loopfs.New(t, 2600<<20)
	s := testserver.StartIn(t, fs.Dir, "--disk-evict-below", "0", "--disk-ballast", "0") // it would take long to use them up
	quiet := newTenant(t, s, "quiet")
	sb := quiet.create(client.CreateOptions{})
	if res, err := quiet.Sandboxes.Exec(t.Context(), sb.ID, client.Command{Shell: "dd if=/dev/urandom of=/var/tmp/f bs=1M count=200", User: "root"}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	const most = 5000
	refused := false
	for i := 0; i < most && !refused; i++ {
		if i%100 == 0 {
			fs.Fill("f"+strconv.Itoa(i), 0)
		}
		made, err := quiet.Tokens.Create(t.Context(), "full", client.TokenOptions{})
		if err == nil {
			err = quiet.Tokens.Revoke(t.Context(), made.ID)
		}
		if refused = client.IsCode(err, client.Unavailable); err != nil && !refused {
			t.Fatal(err)
		}
	}
	if !refused {
		t.Fatalf("the server still has space after %d tokens on a full disk", most)
	}
	if got, err := quiet.Sandboxes.Delete(t.Context(), sb.ID); err != nil || got.State != client.Destroyed {
		t.Errorf("destroy: %+v, %v", got, err)
	}
	quiet.signIn(s)
}

// TestDiskWithoutInodes runs on a disk that has bytes but no inodes: the server creates no sandbox,
// and existing sandboxes go on and can be destroyed.
func TestDiskWithoutInodes(t *testing.T) {
	const inodes = 20_000 // worth more than 1 GiB to the server; mkfs rounds their number up
	fs := loopfs.New(t, 2600<<20, "-N", strconv.Itoa(inodes))
	s := testserver.StartIn(t, fs.Dir)
	quiet := newTenant(t, s, "quiet")
	bystander := quiet.create(client.CreateOptions{Resources: small})
	mark(t, quiet, bystander.ID)
	doomed := quiet.create(client.CreateOptions{Resources: small}).ID
	files := filepath.Join(fs.Dir, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	made := 0
	for ; made <= 2*inodes; made++ {
		err := os.WriteFile(filepath.Join(files, strconv.Itoa(made)), nil, 0o600)
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if free := fs.Free(); made > 2*inodes || free < 1<<30 {
		t.Fatalf("%d files, %d bytes are free: want all inodes taken, and space left", made, free)
	}
	var c tally
	c.use(t.Context(), s, quiet, bystander.ID, doomed)
	c.report(t)
	if _, err := quiet.Sandboxes.Create(t.Context(), client.CreateOptions{Image: "modbox/base", Resources: small}); !client.IsCode(err, client.Unavailable) {
		t.Errorf("create without inodes: %v, want code unavailable", err)
	}
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	quiet.create(client.CreateOptions{Resources: small})
}

// mark writes what [tally.use] reads.
func mark(t *testing.T, v *tenant, id string) {
	t.Helper()
	if res, err := v.Sandboxes.Exec(t.Context(), id, client.Command{Shell: "echo mine >/dev/shm/marker"}); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
}

// ended returns the sandboxes that have ended.
func ended(t *testing.T, v *tenant, ids []string) (list []client.Sandbox) {
	t.Helper()
	for _, id := range ids {
		sb, err := v.Sandboxes.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if sb.State == client.Failed || sb.State == client.Destroyed {
			list = append(list, *sb)
		}
	}
	return list
}

// recovered waits until the space is free again and the ballast is whole.
func recovered(t *testing.T, fs *loopfs.FS, s *testserver.Server, free int64) {
	t.Helper()
	const slack, ballast = 128 << 20, 8
	for deadline := time.Now().Add(timeLimit); ; time.Sleep(50 * time.Millisecond) { // polling another process
		files, err := os.ReadDir(filepath.Join(s.StateDir, "ballast"))
		if err == nil && len(files) == ballast && fs.Free() > free-slack {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("long afterwards %d MiB are free, of %d before, and the ballast has %d files, %v", fs.Free()>>20, free>>20, len(files), err)
		}
	}
}
