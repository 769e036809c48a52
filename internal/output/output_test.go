package output_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/object"
	"github.com/modbox/modbox/internal/object/objecttest"
	"github.com/modbox/modbox/internal/output"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
	"github.com/modbox/modbox/internal/stream"
)

// fixture is a service with its database, bucket and streams.
type fixture struct {
	*output.Service
	t       *testing.T
	url     string
	store   *store.Store
	streams *stream.Store
	taken   error // of Confirm
	home    string
}

func newFixture(t *testing.T, url string) *fixture {
	t.Helper()
	f := &fixture{t: t, url: url, home: "home", store: storetest.Open(t, filepath.Join(t.TempDir(), "m.db"))}
	f.next()
	return f
}

// next makes the service of another server with the database and the bucket, and without the streams.
func (f *fixture) next() {
	f.t.Helper()
	log := slog.New(slog.DiscardHandler)
	var err error
	if f.streams, err = stream.Open(f.t.TempDir(), nil, log); err != nil {
		f.t.Fatal(err)
	}
	f.Service = output.New(output.Config{URL: f.url, Store: true, Installation: f.home}, output.Deps{
		Records: f.store.Executions.Outputs(), Used: f.store.Sandboxes.Archives().Any, Confirm: f.confirm, Streams: f.streams, Logger: log,
	})
	f.t.Cleanup(func() { _ = f.Close() })
}

func (f *fixture) confirm(context.Context) error { return f.taken }

// run runs the service until ok is true.
func (f *fixture) run(what string, ok func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(ctx)
	}()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) { // polling a goroutine
		if time.Now().After(deadline) {
			f.t.Errorf("not within a minute: %s", what)
			break
		}
	}
	cancel()
	<-ended
}

// end makes an execution that has ended.
func (f *fixture) end(stdout, stderr string) sandbox.Execution {
	f.t.Helper()
	now := time.Now().UTC()
	e := sandbox.Execution{
		ID: sandbox.NewExecutionID(), Sandbox: "s", Workspace: "w", Argv: []string{"a"}, State: sandbox.ExecutionRunning, CreatedAt: now, StartedAt: now,
		Stdout: f.write(stdout), Stderr: f.write(stderr),
	}
	if err := f.store.Executions.CreateExecution(f.t.Context(), e, 1000); err != nil {
		f.t.Fatal(err)
	}
	ended := e
	ended.State, ended.EndedAt = sandbox.ExecutionCompleted, now
	if err := f.store.Executions.UpdateExecution(f.t.Context(), e, ended); err != nil {
		f.t.Fatal(err)
	}
	f.Wake()
	return ended
}

func (f *fixture) write(text string) sandbox.StreamRef {
	f.t.Helper()
	ref := sandbox.StreamRef{ID: sandbox.NewStreamID(), Bytes: int64(len(text))}
	err := f.streams.Create(ref.ID, 1<<30)
	if err == nil {
		var w *stream.Writer
		if w, err = f.streams.Writer(ref.ID); err == nil {
			_, err = io.WriteString(w, text)
			err = errors.Join(err, w.End())
		}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return ref
}

func (f *fixture) read(id sandbox.StreamID) string {
	f.t.Helper()
	r, info, err := f.streams.Reader(f.t.Context(), id, 0, true)
	if err != nil {
		f.t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil || !info.Ended {
		f.t.Errorf("stream %+v, %v", info, err)
	}
	return string(data)
}

func (f *fixture) storedBy(id sandbox.ExecutionID) string {
	f.t.Helper()
	e, err := f.store.Executions.Execution(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return e.StoredBy
}

// objects returns the names of the stored objects.
func (f *fixture) objects() (keys []string) {
	f.t.Helper()
	o := f.bucket()
	defer o.Close()
	if err := o.List(f.t.Context(), "output/", func(o object.Object) error {
		keys = append(keys, o.Key)
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
	return keys
}

// objectOf returns the name of a part of a stream.
func objectOf(installation string, id sandbox.StreamID, n int) string {
	return fmt.Sprintf("output/%s/%s/%s.%05d", installation, id[len(id)-2:], id, n)
}

func (f *fixture) bucket() *object.Store {
	f.t.Helper()
	o, err := object.Open(f.t.Context(), f.url, object.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func TestOutputComesBack(t *testing.T) { testOutputComesBack(t, "file://"+t.TempDir()) }

func TestOutputComesBackFromS3(t *testing.T) {
	bucket := objecttest.Start(t)
	testOutputComesBack(t, bucket.URL("archive"))
}

// testOutputComesBack stores output, reads it at another server without the streams, and deletes it.
func testOutputComesBack(t *testing.T, url string) {
	f := newFixture(t, url)
	long := strings.Repeat("0123456789abcde\n", 600_000) // three parts
	e := f.end(long, "")
	short := f.end("out\n", "err\n")
	f.run("all is stored", func() bool { return f.storedBy(e.ID) == "home" && f.storedBy(short.ID) == "home" })

	f.next()
	for id, want := range map[sandbox.StreamID]string{e.Stdout.ID: long, e.Stderr.ID: "", short.Stdout.ID: "out\n", short.Stderr.ID: "err\n"} {
		if err := f.Fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := f.read(id); got != want {
			t.Errorf("the output has %d bytes, want %d", len(got), len(want))
		}
	}
	if err := f.Fetch(t.Context(), sandbox.NewStreamID()); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Fetch of an unknown stream = %v, want not_found", err)
	}
	sizes, err := f.Sizes(t.Context())
	if err != nil || sizes[e.Stdout.ID] != int64(len(long)) || len(sizes) != 4 {
		t.Errorf("Sizes = %v, %v", sizes, err)
	}

	for _, e := range []sandbox.Execution{e, short} {
		if err := f.store.Executions.DeleteExecution(t.Context(), e.ID); err != nil {
			t.Fatal(err)
		}
		f.Remove(&e)
	}
	f.run("all is removed", func() bool { return len(f.objects()) == 0 })
	f.next()
	if err := f.Fetch(t.Context(), e.Stdout.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Fetch of a deleted stream = %v, want not_found", err)
	}
}

// TestRestoredServerHasItsOwnOutput starts a server with another installation, which has no streams. It copies what the earlier installation has stored,
// but for a stream that is damaged.
func TestRestoredServerHasItsOwnOutput(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	long := strings.Repeat("0123456789abcde\n", 600_000) // three parts
	e, short, damaged := f.end(long, ""), f.end("out\n", "err\n"), f.end("damaged", "")
	f.run("all is stored", func() bool {
		return f.storedBy(e.ID) == "home" && f.storedBy(short.ID) == "home" && f.storedBy(damaged.ID) == "home"
	})
	o := f.bucket()
	defer o.Close()
	if err := o.Put(t.Context(), objectOf("home", damaged.Stdout.ID, 0), []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	f.home = "other"
	f.next()
	f.run("the output is copied", func() bool { return f.storedBy(e.ID) == "other" && f.storedBy(short.ID) == "other" })
	if by := f.storedBy(damaged.ID); by != "home" {
		t.Errorf("damaged output is recorded as stored by %s", by)
	}
	for _, key := range f.objects() { // the earlier installation removes what it has stored
		if strings.HasPrefix(key, "output/home/") {
			if err := o.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	for id, want := range map[sandbox.StreamID]string{e.Stdout.ID: long, short.Stdout.ID: "out\n", short.Stderr.ID: "err\n"} {
		if err := f.Fetch(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if got := f.read(id); got != want {
			t.Errorf("the output has %d bytes, want %d", len(got), len(want))
		}
	}
	f.home = "third"
	f.Service = output.New(output.Config{URL: f.url, Store: true, Installation: f.home}, output.Deps{
		Records: f.store.Executions.Outputs(), Used: f.store.Sandboxes.Archives().Any, Confirm: f.confirm, Streams: f.streams, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = f.Close() })
	for _, key := range f.objects() {
		if err := o.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	f.run("the output is sent from the disk", func() bool { return f.storedBy(e.ID) == "third" && f.storedBy(short.ID) == "third" })
	if got := f.objects(); len(got) != 5 {
		t.Errorf("objects %v, want three parts and two streams", got)
	}
}

// with makes a service of the same server whose records call before Store, and fail with its error.
func (f *fixture) with(before func(sandbox.ExecutionID) error) {
	f.Service = output.New(output.Config{URL: f.url, Store: true, Installation: "home"}, output.Deps{
		Records: interrupted{f.store.Executions.Outputs(), before}, Used: f.store.Sandboxes.Archives().Any, Confirm: f.confirm, Streams: f.streams, Logger: slog.New(slog.DiscardHandler),
	})
	f.t.Cleanup(func() { _ = f.Close() })
}

type interrupted struct {
	output.Records
	before func(sandbox.ExecutionID) error
}

func (r interrupted) Store(ctx context.Context, id sandbox.ExecutionID, by string) (bool, error) {
	if err := r.before(id); err != nil {
		return false, err
	}
	return r.Records.Store(ctx, id, by)
}

// metric returns the sum of a metric.
func (f *fixture) metric(name string) (sum float64) {
	f.t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(f.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestOutputIsStoredBeforeItsRecord ends a server between: the next stores the output again.
func TestOutputIsStoredBeforeItsRecord(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	e := f.end("text", "")
	want := []string{objectOf("home", e.Stdout.ID, 0)}
	called := make(chan struct{}, 1)
	f.with(func(sandbox.ExecutionID) error {
		if got := f.objects(); !slices.Equal(got, want) {
			t.Errorf("the output is recorded with the objects %v, want %v", got, want)
		}
		select {
		case called <- struct{}{}:
		default:
		}
		return errors.New("the server ends")
	})
	f.run("the first part is there", func() bool { return len(called) > 0 })
	if f.storedBy(e.ID) != "" {
		t.Error("the output is recorded")
	}
	if sent, failures := f.metric("modbox_output_moved_bytes_total"), f.metric("modbox_output_failures_total"); sent < 36 || failures == 0 {
		t.Errorf("the metrics have %v bytes and %v failures, want 36 and 1 at least", sent, failures)
	}
	f.with(func(sandbox.ExecutionID) error { return nil })
	f.run("the output is stored", func() bool { return f.storedBy(e.ID) == "home" && slices.Equal(f.objects(), want) })
}

// TestOutputOfADeletedExecution stores output whose execution is deleted meanwhile.
func TestOutputOfADeletedExecution(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	kept, e := f.end("kept", ""), f.end("gone", "")
	var deleted atomic.Bool
	f.with(func(id sandbox.ExecutionID) error {
		if id == e.ID {
			defer deleted.Store(true)
			return f.store.Executions.DeleteExecution(t.Context(), id)
		}
		return nil
	})
	f.run("one output is stored", func() bool {
		return deleted.Load() && f.storedBy(kept.ID) == "home" && slices.Equal(f.objects(), []string{objectOf("home", kept.Stdout.ID, 0)})
	})
}

// TestFetchOfADeletedExecution deletes an execution while its output is fetched.
func TestFetchOfADeletedExecution(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	e := f.end("secret", "")
	f.run("the output is stored", func() bool { return f.storedBy(e.ID) == "home" })
	f.next()
	f.Service = output.New(output.Config{URL: f.url, Store: true, Installation: "home"}, output.Deps{
		Records: &deleting{Records: f.store.Executions.Outputs(), delete: func() error { return f.store.Executions.DeleteExecution(t.Context(), e.ID) }},
		Used:    f.store.Sandboxes.Archives().Any, Streams: f.streams, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { _ = f.Close() })
	if err := f.Fetch(t.Context(), e.Stdout.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Fetch() = %v, want not_found", err)
	}
	if _, err := f.streams.Info(e.Stdout.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the output of the deleted execution is on the disk: %v", err)
	}
}

// deleting deletes an execution after its stream was looked up for the first time.
type deleting struct {
	output.Records
	delete func() error
}

func (d *deleting) Stored(ctx context.Context, id sandbox.StreamID) (sandbox.StoredStream, error) {
	st, err := d.Records.Stored(ctx, id)
	if d.delete != nil {
		err = errors.Join(err, d.delete())
		d.delete = nil
	}
	return st, err
}

// TestSweepWithoutRecords removes the output of the last execution, which was deleted by a server that ended at once.
func TestSweepWithoutRecords(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	if err := f.Sweep(t.Context(), time.Now()); err != nil {
		t.Errorf("Sweep() of a bucket that was never used = %v", err)
	}
	e := f.end("kept", "")
	f.run("the output is stored", func() bool { return f.storedBy(e.ID) == "home" })
	if err := f.store.Executions.DeleteExecution(t.Context(), e.ID); err != nil {
		t.Fatal(err)
	}
	f.next()
	if err := f.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil || len(f.objects()) > 0 {
		t.Errorf("Sweep() = %v, the objects are %v", err, f.objects())
	}
}

// TestSweep removes what a killed server has left: objects whose execution was deleted, parts without the first part.
func TestSweep(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	e := f.end("kept", "")
	f.run("the output is stored", func() bool { return f.storedBy(e.ID) == "home" })
	want := f.objects()
	o := f.bucket()
	defer o.Close()
	other := objectOf("other", sandbox.NewStreamID(), 0)
	for _, key := range []string{objectOf("home", sandbox.NewStreamID(), 0), objectOf("home", sandbox.NewStreamID(), 3), other} {
		if err := o.Put(t.Context(), key, []byte("left")); err != nil {
			t.Fatal(err)
		}
	}
	all := f.objects()
	if err := f.Sweep(t.Context(), time.Now().Add(-time.Hour)); err != nil || !slices.Equal(f.objects(), all) {
		t.Errorf("a sweep removes young objects: %v, %v", f.objects(), err)
	}
	f.taken = errors.New("another server has taken over")
	if err := f.Sweep(t.Context(), time.Now().Add(time.Hour)); !errors.Is(err, f.taken) || !slices.Equal(f.objects(), all) {
		t.Errorf("a sweep of a server that was replaced = %v, and leaves %v", err, f.objects())
	}
	f.taken = nil
	if err := f.Sweep(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := f.objects(); !slices.Equal(got, slices.Sorted(slices.Values(append(want, other)))) {
		t.Errorf("objects %v, want those of the execution and of the other installation", got)
	}
}

// TestUnusableBucket fetches output that is damaged, missing, or in a bucket that is not there.
func TestUnusableBucket(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bucket")
	f := newFixture(t, "file://"+dir)
	e := f.end("text", "")
	f.run("the output is stored", func() bool { return f.storedBy(e.ID) == "home" })
	f.next()
	file := filepath.Join(dir, filepath.FromSlash(f.objects()[0]))
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(what string, want sandbox.Code) {
		t.Helper()
		if err := f.Fetch(t.Context(), e.Stdout.ID); sandbox.CodeOf(err) != want {
			t.Errorf("%s: Fetch = %v, want %s", what, err, want)
		}
		if left, _ := os.ReadDir(f.streams.Dir()); len(left) > 0 {
			t.Errorf("%s: left on the disk: %v", what, left)
		}
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	fetch("damaged", sandbox.Unsupported)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	fetch("missing", sandbox.Unsupported)
	if err := os.WriteFile(file, right, 0o600); err != nil {
		t.Fatal(err)
	}
	f.next()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	fetch("away", sandbox.Unavailable)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bucket was made: %v", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Fetch(t.Context(), e.Stdout.ID); err != nil || f.read(e.Stdout.ID) != "text" {
		t.Errorf("Fetch of the right object = %v", err)
	}
}

// TestDamagedStreamsDoNotWait stores the output of an execution after others whose streams are damaged.
func TestDamagedStreamsDoNotWait(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	short, other := f.end("short", ""), f.end("other", "")
	if err := errors.Join(
		os.WriteFile(filepath.Join(f.streams.Dir(), string(short.Stdout.ID)), []byte("mb"), 0o600),
		os.WriteFile(filepath.Join(f.streams.Dir(), string(other.Stdout.ID)), bytes.Repeat([]byte("x"), 100), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	e := f.end("text", "")
	f.run("all are settled", func() bool {
		return f.storedBy(e.ID) == "home" && f.storedBy(short.ID) != "" && f.storedBy(other.ID) != ""
	})
	for _, damaged := range []sandbox.Execution{short, other} {
		if _, _, err := f.streams.Reader(t.Context(), damaged.Stdout.ID, 0, false); sandbox.CodeOf(err) != sandbox.Unsupported {
			t.Errorf("read of a damaged stream = %v, want unsupported", err)
		}
	}
}

// TestLostStreamsDoNotWait stores the output of an execution after another whose streams are gone.
func TestLostStreamsDoNotWait(t *testing.T) {
	f := newFixture(t, "file://"+t.TempDir())
	lost := f.end("lost", "lost")
	if err := errors.Join(f.streams.Remove(lost.Stdout.ID), f.streams.Remove(lost.Stderr.ID)); err != nil {
		t.Fatal(err)
	}
	e := f.end("text", "")
	f.run("the other is stored", func() bool { return f.storedBy(e.ID) == "home" && f.storedBy(lost.ID) == sandbox.NothingStored })
	if err := f.Fetch(t.Context(), lost.Stdout.ID); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Fetch of a lost stream = %v, want not_found", err)
	}
}
