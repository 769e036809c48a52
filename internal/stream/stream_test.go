package stream_test

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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/stream"
)

func open(t *testing.T, dir string) *stream.Store {
	t.Helper()
	s, err := stream.Open(dir, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func create(t *testing.T, s *stream.Store, max int64) sandbox.StreamID {
	t.Helper()
	id := sandbox.NewStreamID()
	if err := s.Create(id, max); err != nil {
		t.Fatal(err)
	}
	return id
}

func writer(t *testing.T, s *stream.Store, id sandbox.StreamID) *stream.Writer {
	t.Helper()
	w, err := s.Writer(id)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t *testing.T, w *stream.Writer, text string) {
	t.Helper()
	if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("Write(%q) = %d, %v", text, n, err)
	}
}

func read(t *testing.T, s *stream.Store, id sandbox.StreamID, offset int64, follow bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, _, err := s.Reader(ctx, id, offset, follow)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("read after %q: %v", data, err)
	}
	return string(data)
}

func TestReadersFollowFromAnyByte(t *testing.T) {
	s := open(t, t.TempDir())
	id := create(t, s, 1<<20)
	w := writer(t, s, id)
	write(t, w, "0123")
	var wg sync.WaitGroup
	got := make([]string, 5)
	for offset := range got {
		wg.Go(func() { got[offset] = read(t, s, id, int64(offset), true) })
	}
	if now := read(t, s, id, 1, false); now != "123" {
		t.Errorf("without following: %q", now)
	}
	for _, c := range "456789" {
		write(t, w, string(c))
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for offset, text := range got {
		if want := "0123456789"[offset:]; text != want {
			t.Errorf("followed from %d: %q, want %q", offset, text, want)
		}
	}
}

func TestWriterGoesOnAfterARestart(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	id := create(t, first, 6)
	write(t, writer(t, first, id), "0123") // never closed, as after a kill

	second := open(t, dir)
	w := writer(t, second, id)
	if w.Offset() != 4 || w.Free() != 2 {
		t.Errorf("offset %d, free %d, want 4 and 2", w.Offset(), w.Free())
	}
	write(t, w, "4567")
	write(t, w, "8")

	third := open(t, dir)
	w = writer(t, third, id)
	if w.Offset() != 9 {
		t.Errorf("offset with dropped bytes %d, want 9", w.Offset())
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	info, err := open(t, dir).Info(id)
	if want := (sandbox.StreamInfo{ID: id, Bytes: 6, Truncated: true, Ended: true}); err != nil || info != want {
		t.Errorf("Info = %+v, %v, want %+v", info, err, want)
	}
	if text := read(t, third, id, 0, true); text != "012345" {
		t.Errorf("kept %q, want the first bytes", text)
	}
}

func TestOneWriter(t *testing.T) {
	s := open(t, t.TempDir())
	id := create(t, s, 10)
	w := writer(t, s, id)
	if _, err := s.Writer(id); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("second writer: %v, want conflict", err)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	again := writer(t, s, id)
	defer again.Close()
	if !again.Ended() {
		t.Error("a writer of an ended stream does not say so")
	}
	if _, err := again.Write([]byte("x")); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("write after the end: %v, want conflict", err)
	}
	if err := s.Create(id, 10); sandbox.CodeOf(err) != sandbox.Exists {
		t.Errorf("created twice: %v, want exists", err)
	}
}

func TestReaderThatWaitsEnds(t *testing.T) {
	s := open(t, t.TempDir())
	id := create(t, s, 10)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	ended := make(chan error, 3)
	follow := func(ctx context.Context) *stream.Reader {
		r, _, err := s.Reader(ctx, id, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := r.Read(make([]byte, 1))
			ended <- err
		}()
		return r
	}
	defer follow(ctx).Close()
	cancel(cause)
	if err := <-ended; !errors.Is(err, cause) {
		t.Errorf("after the context's end: %v", err)
	}
	follow(t.Context()).Close()
	if err := <-ended; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	defer follow(t.Context()).Close()
	if err := s.Remove(id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("after Remove: %v", err)
	}
}

func TestTimestamps(t *testing.T) {
	s := open(t, t.TempDir())
	id := create(t, s, 1<<20)
	w := writer(t, s, id)
	begin := time.Now()
	write(t, w, "one\ntw")
	write(t, w, "o\n\nlast")
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64][]string{0: {"one\n", "two\n", "\n", "last"}, 5: {"wo\n", "\n", "last"}} {
		r, _, err := s.Reader(t.Context(), id, offset, true)
		if err != nil {
			t.Fatal(err)
		}
		timed := s.Timestamped(r)
		data, err := io.ReadAll(timed)
		timed.Close()
		var got []string
		for line := range strings.Lines(string(data)) {
			at, text, _ := strings.Cut(line, " ")
			when, parseErr := time.Parse(time.RFC3339Nano, at)
			if parseErr != nil || when.Before(begin.Add(-time.Second)) || when.After(time.Now()) {
				t.Errorf("from %d: time of %q is %q", offset, text, at)
			}
			got = append(got, text)
		}
		if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("from %d: %q, %v, want %q", offset, got, err, want)
		}
	}
}

// A stream's ID is a file name: it must not lead to other files.
func TestIDsAreNoPaths(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "streams"))
	if err := os.WriteFile(filepath.Join(dir, "secret"), bytes.Repeat([]byte("mbstrm01"), 9), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, id := range []sandbox.StreamID{"", ".", "../secret", "str_../../secret", "str_" + sandbox.StreamID(strings.Repeat("/", 26))} {
		if _, _, err := s.Reader(t.Context(), id, 0, false); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Reader(%q): %v, want not_found", id, err)
		}
		if _, err := s.Writer(id); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("Writer(%q): %v, want not_found", id, err)
		}
		if err := s.Create(id, 1); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("Create(%q): %v, want invalid", id, err)
		}
	}
}

func TestUnusedStreams(t *testing.T) {
	s := open(t, t.TempDir())
	used, unused := create(t, s, 1), create(t, s, 1)
	w := writer(t, s, used)
	defer w.Close()
	if ids, err := s.Unused(time.Now().Add(-time.Hour)); len(ids) != 0 || err != nil {
		t.Errorf("of the last hour: %v, %v, want none", ids, err)
	}
	ids, err := s.Unused(time.Now().Add(time.Hour))
	if len(ids) != 1 || ids[0] != unused || err != nil {
		t.Errorf("unused: %v, %v, want %s", ids, err, unused)
	}
	before := time.Now().Add(-time.Hour)
	if err := s.Use(unused); err != nil { // since Unused
		t.Error(err)
	}
	if err := errors.Join(s.RemoveUnused(unused, before), s.RemoveUnused(used, before.Add(2*time.Hour))); err != nil {
		t.Error(err)
	}
	for _, id := range []sandbox.StreamID{unused, used} {
		if _, err := s.Info(id); err != nil {
			t.Errorf("a stream that was used since: %v", err)
		}
	}
	if err := s.RemoveUnused(unused, time.Now().Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if err := errors.Join(s.Remove(unused), s.Remove(unused)); err != nil {
		t.Error(err)
	}
	if err := s.Use(unused); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("Use() of a removed stream = %v, want not_found", err)
	}
	if _, err := s.Info(unused); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a removed stream: %v, want not_found", err)
	}
}

// TestCopy makes a stream of the copy of another, with its times.
func TestCopy(t *testing.T) {
	from, dir := open(t, t.TempDir()), t.TempDir()
	to := open(t, dir)
	id := create(t, from, 7)
	w, err := from.Writer(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("one\ntwo\nthree\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Export(id); sandbox.CodeOf(err) != sandbox.Conflict {
		t.Errorf("Export of a stream that has not ended = %v, want conflict", err)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	export := func() *stream.Copy {
		t.Helper()
		c, err := from.Export(id)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	timestamped := func(s *stream.Store) (string, sandbox.StreamInfo) {
		t.Helper()
		r, info, err := s.Reader(t.Context(), id, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		text := s.Timestamped(r)
		defer text.Close()
		data, err := io.ReadAll(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(data), info
	}
	c := export()
	for what, wrong := range map[string]struct{ size, times int64 }{"short": {c.Size, c.Times + 1}, "long": {c.Size, c.Times - 1}, "no header": {3, c.Size + c.Times - 3}} {
		if err := to.Import(id, export(), wrong.size, wrong.times); err == nil {
			t.Errorf("%s: it was imported", what)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: left %v", what, left)
		}
	}
	for range 2 { // the second does nothing
		c := export()
		if err := to.Import(id, c, c.Size, c.Times); err != nil {
			t.Fatal(err)
		}
	}
	want, wantInfo := timestamped(from)
	if got, info := timestamped(to); got != want || info != wantInfo || !info.Truncated || !info.Ended {
		t.Errorf("the copy is %q %+v, want %q %+v", got, info, want, wantInfo)
	}

	// A killed server leaves an import that is not complete.
	if err := os.Mkdir(filepath.Join(dir, "new-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Lstat(filepath.Join(dir, "new-1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the rest of an import stays: %v", err)
	}
}

// TestPartsOfOtherServers: a server removes what its own imports have left, and leaves the imports of other servers alone.
func TestPartsOfOtherServers(t *testing.T) {
	dir, parts := t.TempDir(), sandbox.Parts(2)
	open := func(r sandbox.Ranges) *stream.Store {
		t.Helper()
		s, err := stream.Open(dir, sandbox.Own(r), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	count := func(want int) {
		t.Helper()
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
			t.Fatalf("%d entries, %v, want %d", len(entries), err, want)
		}
	}
	s := open(parts[0])
	r, w := io.Pipe()
	imported := make(chan error, 1)
	id := sandbox.NewStreamID()
	content := stream.Empty(time.Now(), false)
	go func() { imported <- s.Import(id, r, int64(len(content)), 0) }()
	if _, err := w.Write(content[:1]); err != nil { // it has its directory
		t.Fatal(err)
	}
	open(parts[1])
	count(1)
	if _, err := w.Write(content[1:]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), <-imported); err != nil {
		t.Fatalf("import while another server starts: %v", err)
	}
	if _, err := s.Info(id); err != nil {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "new-8-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(parts[0])
	count(2)
	open(parts[1])
	count(1)
}

// TestStreamOfTwoServers: a server reads what another writes, until its end, and goes on writing after it, and never at the same time.
func TestStreamOfTwoServers(t *testing.T) {
	dir := t.TempDir()
	var servers []*stream.Store
	for _, part := range sandbox.Parts(2) {
		s, err := stream.Open(dir, sandbox.Own(part), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
	}
	id := sandbox.NewStreamID()
	if err := servers[0].Create(id, 1000); err != nil {
		t.Fatal(err)
	}
	r, _, err := servers[1].Reader(t.Context(), id, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	read := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	for _, n := range []int{0, 1, 0, 0, 1} { // by turns: each finds what the other has written
		text := fmt.Sprintf("of server %d ", n)
		w, err := servers[n].Writer(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, err := servers[1-n].Writer(id); sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("a second writer: %v, want conflict", err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		read(text)
	}
	w, err := servers[0].Writer(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	if info, err := servers[1].Info(id); err != nil || !info.Ended || info.Bytes != 60 {
		t.Errorf("the stream is %+v, %v, want 60 bytes and ended", info, err)
	}
	if _, _, err := servers[1].Reader(t.Context(), id, 61, false); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a reader beyond the end: %v, want invalid", err)
	}
}
