package lifecycle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
)

// used returns what the quota of the caller's workspace limits.
func (s *server) used() quota.Use {
	s.t.Helper()
	q, err := s.Quotas().Report(s.t.Context(), s.caller.Workspace)
	if err != nil {
		s.t.Fatal(err)
	}
	return q.Used
}

func (s *server) setQuota(q quota.Limits) {
	s.t.Helper()
	if _, err := s.Quotas().Set(s.t.Context(), s.caller.Workspace, q); err != nil {
		s.t.Fatal(err)
	}
}

// wantRefused checks that err is a refusal for that limit, which says when to try again.
func wantRefused(t *testing.T, what string, err error, limit quota.Limit) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.QuotaExceeded || e.RetryAfter <= 0 || !strings.Contains(e.Message, "quota of "+string(limit)+" is ") {
		t.Errorf("%s: %v, want it refused for the quota of %s with a time to try again", what, err, limit)
	}
}

// TestNoMoreThanTheQuotaIsLetIn has many come at once by every way there is.
func TestNoMoreThanTheQuotaIsLetIn(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	const most = 7
	s.run(lifecycle.CreateRequest{Name: "parent"})
	for i := range 4 {
		name := fmt.Sprint("paused-", i)
		s.run(lifecycle.CreateRequest{Name: name})
		s.pause(name)
	}
	s.setQuota(quota.Limits{quota.LimitSandboxes: most, quota.LimitMemory: (most + 1) * 512 << 20})
	var g sync.WaitGroup
	var mu sync.Mutex
	got, refused := 1, 0
	count := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			got++
			return
		}
		refused++
		wantRefused(t, "one too many", err, quota.LimitSandboxes)
	}
	for i := range 12 {
		g.Go(func() {
			_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: fmt.Sprint("new-", i)})
			count(err)
		})
	}
	for i := range 4 {
		g.Go(func() {
			_, err := s.Resume(t.Context(), s.caller, fmt.Sprint("paused-", i), lifecycle.ResumeRequest{})
			count(err)
		})
	}
	for range 5 {
		g.Go(func() {
			children, err := s.Fork(t.Context(), s.caller, "parent", lifecycle.ForkRequest{})
			for _, c := range children {
				err = errors.Join(err, c.Err)
			}
			count(err)
		})
	}
	g.Wait()
	if used := s.used(); got != most || used.Sandboxes != most || used.MemoryBytes != most*512<<20 || refused != 21-(most-1) {
		t.Errorf("%d were let in and %d refused, used %+v, want %d and %d", got, refused, used, most, 21-(most-1))
	}

	// A server that was killed counts the same when it is back.
	before := s.used()
	s.kill()
	s = e.start()
	if used := s.used(); used.Disk.Paused != before.Disk.Paused || used.Sandboxes > most {
		t.Errorf("after a restart: %+v, before %+v", used, before)
	}
	for used := s.used(); used.Sandboxes < most; used = s.used() { // the sandboxes that were being made have ended
		s.create(lifecycle.CreateRequest{})
	}
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
	wantRefused(t, "one too many after a restart", err, quota.LimitSandboxes)
}

func TestQuotaOfResources(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	half := lifecycle.CreateRequest{Resources: sandbox.Resources{MemoryBytes: 600 << 20, CPUMilli: 1500, DiskBytes: 3 << 30}}
	s.create(half)
	for limit, most := range map[quota.Limit]int64{quota.LimitMemory: 1 << 30, quota.LimitCPU: 2900, quota.LimitDisk: 5 << 30} {
		s.setQuota(quota.Limits{limit: most})
		_, _, err := s.Create(t.Context(), s.caller, half)
		wantRefused(t, "beyond "+string(limit), err, limit)
	}
	s.setQuota(quota.Limits{quota.LimitSandboxMemory: 256 << 20, quota.LimitSandboxCPU: 500})
	if _, _, err := s.Create(t.Context(), s.caller, half); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "resources.memory") {
		t.Errorf("beyond the maximum of one sandbox: %v, want code invalid about resources.memory", err)
	}
	asked := sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 1500}
	if _, _, err := s.builds.AcquireSlot(t.Context(), s.caller, asked, 0, nil); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "resources.cpu") {
		t.Errorf("a build beyond the maximum of one sandbox: %v, want code invalid about resources.cpu", err)
	}
	// Default resources are cut to the quota.
	have, release, err := s.builds.AcquireSlot(t.Context(), s.caller, sandbox.Resources{MemoryBytes: 128 << 20}, 0, nil)
	if err != nil || have.MemoryBytes != 128<<20 || have.CPUMilli != 500 || have.DiskBytes == 0 {
		t.Errorf("a build within the maximum of one sandbox has %+v, %v", have, err)
	}
	release()
	sb := s.create(lifecycle.CreateRequest{})
	if want := (sandbox.Resources{MemoryBytes: 256 << 20, CPUMilli: 500, DiskBytes: 2 << 30}); sb.Resources != want {
		t.Errorf("default resources are %+v, want %+v", sb.Resources, want)
	}
	// The workspace has no more because the server would allow it.
	s.run(lifecycle.CreateRequest{Name: "small"})
	s.setQuota(quota.Limits{quota.LimitSandboxMemory: 128 << 20})
	if _, err := s.Fork(t.Context(), s.caller, "small", lifecycle.ForkRequest{}); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("fork of a sandbox beyond the maximum: %v, want code invalid", err)
	}
}

// TestDiskOfAWorkspace follows what counts, and what is refused when there is no more.
func TestDiskOfAWorkspace(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.write("a", "/f", strings.Repeat("x", 5000))
	if d := s.used().Disk; d.Sandboxes != 2<<30 || d.Total() != d.Sandboxes {
		t.Errorf("disk of a running sandbox: %+v", d)
	}
	cp, err := s.Checkpoints().Create(t.Context(), s.caller, "a", "")
	if err != nil {
		t.Fatal(err)
	}
	sn := s.snap("a", snapshot.Request{})
	s.pause("a")
	d := s.used().Disk
	if d.Sandboxes != 0 || d.Paused < 5000 || d.Checkpoints != cp.SizeBytes || d.Snapshots != sn.SizeBytes {
		t.Errorf("disk of a paused sandbox: %+v, checkpoint %d, snapshot %d", d, cp.SizeBytes, sn.SizeBytes)
	}
	s.kill()
	s = e.start()
	if again := s.used().Disk; again != d {
		t.Errorf("disk after a restart: %+v, before %+v", again, d)
	}
	s.setQuota(quota.Limits{quota.LimitDisk: d.Total()})
	_, err = s.Snapshots().Create(t.Context(), s.caller, "a", snapshot.Request{})
	wantRefused(t, "snapshot", err, quota.LimitDisk)
	_, err = s.Checkpoints().Create(t.Context(), s.caller, "a", "")
	wantRefused(t, "checkpoint", err, quota.LimitDisk)
	_, err = s.Resume(t.Context(), s.caller, "a", lifecycle.ResumeRequest{})
	wantRefused(t, "resume", err, quota.LimitDisk)
	_, err = s.Guest().Stat(t.Context(), s.caller, "a", "/f")
	wantRefused(t, "call that wakes it", err, quota.LimitDisk)
	if names := e.saved(string(cp.Sandbox)); len(names) != 2 {
		t.Errorf("kept of the sandbox: %v, want what it was paused with and its checkpoint", names)
	}
	s.setQuota(nil)
	if _, err := s.Resume(t.Context(), s.caller, "a", lifecycle.ResumeRequest{}); err != nil {
		t.Errorf("resume without a quota: %v", err)
	}
	if d := s.used().Disk; d.Paused != 0 || d.Sandboxes != 2<<30 {
		t.Errorf("disk of a resumed sandbox: %+v", d)
	}
}

func TestCreatesPerMinute(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitCreates: 3}
	s := e.start()
	for i := range 3 {
		s.run(lifecycle.CreateRequest{Name: fmt.Sprint("n", i)})
	}
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
	wantRefused(t, "a fourth create", err, quota.LimitCreates)
	// One that is there already needs none, and does not cost one.
	if _, created, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "n1"}); created || err != nil {
		t.Errorf("the same create again: created %v, %v", created, err)
	}
	_, err = s.Fork(t.Context(), s.caller, "n0", lifecycle.ForkRequest{})
	wantRefused(t, "a fork", err, quota.LimitCreates)
	// A create that is refused for another reason takes no token either.
	s.setQuota(quota.Limits{quota.LimitCreates: 4, quota.LimitSandboxes: 3})
	for range 5 {
		_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
		wantRefused(t, "too many", err, quota.LimitSandboxes)
	}
}

// TestReplaceEndsNothingForNothing: the old sandbox stays if the new sandbox would exceed the
// quota.
func TestReplaceEndsNothingForNothing(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 1, quota.LimitMemory: 512 << 20, quota.LimitCreates: 2}
	s := e.start()
	old := s.run(lifecycle.CreateRequest{Name: "a"})
	next := lifecycle.CreateRequest{Name: "a", Replace: true, Resources: sandbox.Resources{MemoryBytes: 600 << 20}}
	_, _, err := s.Create(t.Context(), s.caller, next)
	wantRefused(t, "one that is too large", err, quota.LimitMemory)
	next.Resources.MemoryBytes = 256 << 20
	if sb := s.run(next); sb.ID == old.ID || s.used().MemoryBytes != 256<<20 {
		t.Errorf("replaced by %+v, used %+v", sb, s.used())
	}
	_, _, err = s.Create(t.Context(), s.caller, next)
	wantRefused(t, "one too many in a minute", err, quota.LimitCreates)
	s.reach("a", sandbox.Running)
}

// TestReplaceOnAFullServer: a paused sandbox frees no capacity of the server, a running sandbox
// does.
func TestReplaceOnAFullServer(t *testing.T) {
	e := newEnv(t)
	e.cfg.MaxSandboxes = 2
	s := e.start()
	paused := s.run(lifecycle.CreateRequest{Name: "paused"})
	s.pause("paused")
	s.run(lifecycle.CreateRequest{Name: "a"})
	running := s.run(lifecycle.CreateRequest{Name: "b"})
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "paused", Replace: true})
	if sandbox.CodeOf(err) != sandbox.QuotaExceeded {
		t.Errorf("replacing a paused one: %v, want code quota_exceeded", err)
	}
	if sb := s.reach("paused", sandbox.Paused); sb.ID != paused.ID {
		t.Errorf("the paused one is now %s", sb.ID)
	}
	if sb := s.run(lifecycle.CreateRequest{Name: "b", Replace: true}); sb.ID == running.ID {
		t.Error("the one that runs was not replaced")
	}
}

// TestResumeWithinTheDisk: what a sandbox is paused with is no reason not to resume it.
func TestResumeWithinTheDisk(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitDisk: 2 << 30}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a", Resources: sandbox.Resources{DiskBytes: 2 << 30}})
	s.pause("a")
	if _, err := s.Resume(t.Context(), s.caller, "a", lifecycle.ResumeRequest{}); err != nil {
		t.Errorf("resume of the only sandbox: %v", err)
	}
	if d := s.used().Disk; d.Total() != 2<<30 {
		t.Errorf("disk of the resumed sandbox: %+v", d)
	}
}

// TestBuiltImagesCount: the built images of a workspace count for its disk, and its build cache is
// removed when the space is needed.
func TestBuiltImagesCount(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitDisk: 4 << 30}
	e.images.ownImages, e.images.ownLeft = 1<<30, 1<<30
	s := e.start()
	if d := s.used().Disk; d.Images != 1<<30 || d.BuildCache != 1<<30 || d.Total() != 2<<30 {
		t.Errorf("used %+v", d)
	}
	s.run(lifecycle.CreateRequest{Name: "a", Resources: sandbox.Resources{DiskBytes: 2 << 30}})
	if d := s.used().Disk; d.BuildCache != 1<<30 {
		t.Errorf("used %+v: something went for what there was room for", d)
	}
	s.run(lifecycle.CreateRequest{Name: "b", Resources: sandbox.Resources{DiskBytes: 1 << 29}})
	if d := s.used().Disk; d.BuildCache != 1<<29 {
		t.Errorf("used %+v, want half of what builds left", d)
	}
	if err := s.builds.CheckDisk(t.Context(), s.caller); err != nil {
		t.Errorf("a build for which something can go: %v", err)
	}
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "c", Resources: sandbox.Resources{DiskBytes: 1 << 30}})
	wantRefused(t, "a sandbox too large", err, quota.LimitDisk)
	if d := s.used().Disk; d.BuildCache == 0 {
		t.Errorf("used %+v: what was left went for what does not fit anyway", d)
	}
	wantRefused(t, "what was built", s.builds.CheckDiskFor(t.Context(), s.caller, sandbox.Resources{}, 1<<30), quota.LimitDisk)
}

// TestWaitingForQuota has several wait, who come in in the order they came.
func TestWaitingForQuota(t *testing.T) {
	e := newEnv(t)
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 1}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "first"})
	const waiting = 4
	var mu sync.Mutex
	var order []int
	var g sync.WaitGroup
	for i := range waiting {
		g.Go(func() {
			sb, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: fmt.Sprint("w", i), WaitForQuota: time.Minute})
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if _, err := s.Destroy(t.Context(), s.caller, string(sb.ID), ""); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "it waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == i+1 })
	}
	// Nobody who does not wait passes them, but who has one is answered.
	if _, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{}); sandbox.CodeOf(err) != sandbox.QuotaExceeded || !strings.Contains(err.Error(), "come first") {
		t.Errorf("one who does not wait: %v", err)
	}
	if _, created, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "first", WaitForQuota: time.Second}); created || err != nil {
		t.Errorf("one that is there: created %v, %v", created, err)
	}
	s.destroy("first")
	g.Wait()
	if !slices.Equal(order, []int{0, 1, 2, 3}) {
		t.Errorf("they came in in the order %v", order)
	}
	if n := s.Quotas().Waiting(s.caller.Workspace); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

func TestWaitingForQuotaEnds(t *testing.T) {
	env := newEnv(t)
	env.cfg.Quota = quota.Limits{quota.LimitSandboxes: 1}
	s := env.start()
	s.run(lifecycle.CreateRequest{Name: "first"})
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{WaitForQuota: 10 * time.Millisecond})
	wantRefused(t, "when its time is over", err, quota.LimitSandboxes)

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := s.Create(ctx, s.caller, lifecycle.CreateRequest{Name: "left", WaitForQuota: time.Minute})
		left <- err
	}()
	eventually(t, "it waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who went away got %v", err)
	}
	if _, err := s.Get(t.Context(), s.caller, "left"); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the sandbox of who went away: %v, want none", err)
	}
	go func() {
		_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{WaitForQuota: time.Minute})
		left <- err
	}()
	eventually(t, "it waits", func() bool { return s.Quotas().Waiting(s.caller.Workspace) == 1 })
	s.Quotas().StopWaiting() // the server still answers
	var e *sandbox.Error
	if err := <-left; !errors.As(err, &e) || e.Code != sandbox.Unavailable || e.RetryAfter <= 0 {
		t.Errorf("who waits when the server stops got %v", err)
	}
	if _, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{WaitForQuota: time.Minute}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("who would wait from then on got %v", err)
	}
	if _, created, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "first", WaitForQuota: time.Minute}); created || err != nil {
		t.Errorf("who need not wait: created %v, %v", created, err)
	}
}

// TestRefusedCreateKeepsThePool: no box is lost over a create that is refused.
func TestRefusedCreateKeepsThePool(t *testing.T) {
	e := newEnv(t)
	e.cfg.PoolSize = 1
	e.cfg.Quota = quota.Limits{quota.LimitSandboxes: 1}
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "first"})
	eventually(t, "a box is ready", func() bool { return len(s.Ready()) == 1 })
	before := e.host.ids()
	_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
	wantRefused(t, "one too many", err, quota.LimitSandboxes)
	if after := e.host.ids(); !slices.Equal(before, after) || len(s.Ready()) != 1 {
		t.Errorf("boxes %v, ready %d; before %v", after, len(s.Ready()), before)
	}
}

func TestLowDisk(t *testing.T) {
	e := newEnv(t)
	e.cfg.MinFreeDisk, e.cfg.SandboxFreeDisk = 1, 1
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	s.stop()
	e.cfg.MinFreeDisk, e.cfg.SandboxFreeDisk = 1<<60, 1<<60
	s = e.start()
	for what, do := range map[string]func() error{
		"create": func() error {
			_, _, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
			return err
		},
		"snapshot": func() error {
			_, err := s.Snapshots().Create(t.Context(), s.caller, "a", snapshot.Request{})
			return err
		},
		"checkpoint": func() error {
			_, err := s.Checkpoints().Create(t.Context(), s.caller, "a", "")
			return err
		},
		"pull": func() error {
			_, err := s.Prepare().Pull(t.Context(), s.caller, "modbox/base", nil)
			return err
		},
		"build": func() error {
			_, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
			return err
		},
		"fork": func() error {
			_, err := s.Fork(t.Context(), s.caller, "a", lifecycle.ForkRequest{})
			return err
		},
	} {
		if err := do(); sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "nearly full") {
			t.Errorf("%s on a full disk: %v, want code unavailable", what, err)
		}
	}
	if _, created, err := s.Create(t.Context(), s.caller, lifecycle.CreateRequest{Name: "a"}); created || err != nil {
		t.Errorf("the same create again on a full disk: created %v, %v", created, err)
	}
	s.pause("a") // frees memory; what it takes is looked at by itself
}

// TestOutputCountsForTheDisk: what executions wrote counts, and streams made for
// their input, once they are measured.
func TestOutputCountsForTheDisk(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.run(lifecycle.CreateRequest{Name: "a"})
	x := s.startExecution("a", execution.Request{Argv: []string{"head", "-c", "20000", "/dev/zero"}})
	s.ended(x.ID)
	id, err := s.Executions().CreateStream(t.Context(), s.caller)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Executions().WriteStdin(t.Context(), string(id), strings.NewReader(strings.Repeat("x", 30000))); err != nil {
		t.Fatal(err)
	}
	s.Purge()
	if d := s.used().Disk; d.Streams < 50000 || d.Streams > 60000 {
		t.Errorf("streams of 50000 bytes count %d", d.Streams)
	}
	s.setQuota(quota.Limits{quota.LimitDisk: 2<<30 + 50000})
	_, err = s.Checkpoints().Create(t.Context(), s.caller, "a", "")
	wantRefused(t, "checkpoint beside the streams", err, quota.LimitDisk)
}

// TestUploadsCountForTheDisk: the files of a build count while they wait, and are refused when the
// disk quota is used up.
// archiveOf returns an archive of a number of bytes, 100 KiB at least.
func archiveOf(t *testing.T, size int) []byte {
	t.Helper()
	write := func(content, extra int) []byte {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
		if err != nil {
			t.Fatal(err)
		}
		if extra > 0 {
			z.Extra = make([]byte, extra) // two bytes more in the header
		}
		w := tar.NewWriter(z)
		err = w.WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(content)})
		if err == nil {
			_, err = w.Write(make([]byte, content))
		}
		if err = errors.Join(err, w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	content := size - 32<<10
	data := write(content, size-len(write(content, 0))-2)
	if len(data) != size {
		t.Fatalf("the archive has %d bytes, want %d", len(data), size)
	}
	return data
}

func TestUploadsCountForTheDisk(t *testing.T) {
	e := newEnv(t)
	s := e.start()
	s.setQuota(quota.Limits{quota.LimitDisk: 1 << 20})
	begun, err := s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
	if err != nil {
		t.Fatal(err)
	}
	upload := func(n int) error {
		return s.Snapshots().Assemblies().Upload(t.Context(), s.caller, begun.ID, bytes.NewReader(archiveOf(t, n)))
	}
	for range 3 { // each in place of the one before
		if err := upload(1 << 19); err != nil {
			t.Fatal(err)
		}
		if d := s.used().Disk; d.Uploads != 1<<19 {
			t.Errorf("an upload counts %d", d.Uploads)
		}
	}
	if err := upload(1 << 20); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "upload in place of what filled the disk", upload(100<<10), quota.LimitDisk)
	_, err = s.Snapshots().Assemblies().Begin(t.Context(), s.caller, snapshot.AssemblyRequest{Runtime: "modbox/base"})
	wantRefused(t, "another build", err, quota.LimitDisk)
	_, _, err = s.Create(t.Context(), s.caller, lifecycle.CreateRequest{})
	wantRefused(t, "create", err, quota.LimitDisk)
	if d := s.used().Disk; d.Uploads != 1<<20 {
		t.Errorf("after what was refused an upload counts %d", d.Uploads)
	}
}
