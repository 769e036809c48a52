package agent_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/agent"
	"github.com/modbox/modbox/internal/agentapi"
)

// watch begins a watch and returns its events as they arrive, after the first.
func (e *env) watch(t *testing.T, path string, recursive bool) *agentapi.Watch {
	t.Helper()
	w, err := e.Watch(t.Context(), path, recursive)
	if err != nil {
		t.Fatalf("Watch(%s) = %v", path, err)
	}
	t.Cleanup(func() { w.Close() })
	if first, err := w.Next(); err != nil || first.Type != agentapi.WatchReady {
		t.Fatalf("the first event = %+v, %v", first, err)
	}
	return w
}

// until returns the events up to the first for a path.
func until(t *testing.T, w *agentapi.Watch, path string) []agentapi.FileEvent {
	t.Helper()
	var events []agentapi.FileEvent
	for {
		e, err := w.Next()
		if err != nil {
			t.Fatalf("after %+v: Next() = %v", events, err)
		}
		if events = append(events, e); e.Path == path {
			return events
		}
	}
}

func (e *env) host(path string) string { return filepath.Join(e.root, path) }

func mustDo(t *testing.T, steps ...error) {
	t.Helper()
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestWatchTellsWhatHappens(t *testing.T) {
	e := start(t)
	mustDo(t, os.MkdirAll(e.host("w/sub/deep"), 0o755), os.WriteFile(e.host("w/old"), []byte("1"), 0o644))
	w := e.watch(t, "/w", true)
	mustDo(t,
		os.WriteFile(e.host("w/old"), []byte("22"), 0o644),
		os.Chmod(e.host("w/old"), 0o600),
		os.Rename(e.host("w/old"), e.host("w/sub/new")),
		os.WriteFile(e.host("w/sub/deep/f"), nil, 0o644),
		os.Remove(e.host("w/sub/deep/f")),
		os.Mkdir(e.host("w/end"), 0o755),
	)
	want := []agentapi.FileEvent{
		{Type: agentapi.FileModified, Path: "/w/old"},
		{Type: agentapi.FileAttributes, Path: "/w/old"},
		{Type: agentapi.FileMovedFrom, Path: "/w/old"},
		{Type: agentapi.FileMovedTo, Path: "/w/sub/new"},
		{Type: agentapi.FileCreated, Path: "/w/sub/deep/f"},
		{Type: agentapi.FileRemoved, Path: "/w/sub/deep/f"},
		{Type: agentapi.FileCreated, Path: "/w/end", Dir: true},
	}
	if diff := cmp.Diff(want, slices.Compact(until(t, w, "/w/end"))); diff != "" {
		t.Error(diff)
	}
}

func TestWatchOfOneDirectory(t *testing.T) {
	e := start(t)
	mustDo(t, os.MkdirAll(e.host("w/sub"), 0o755))
	w := e.watch(t, "/w", false)
	mustDo(t,
		os.WriteFile(e.host("w/sub/not-told"), nil, 0o644),
		os.MkdirAll(e.host("w/later/not-told"), 0o755),
		os.Mkdir(e.host("w/end"), 0o755),
	)
	want := []agentapi.FileEvent{{Type: agentapi.FileCreated, Path: "/w/later", Dir: true}, {Type: agentapi.FileCreated, Path: "/w/end", Dir: true}}
	if diff := cmp.Diff(want, until(t, w, "/w/end")); diff != "" {
		t.Error(diff)
	}
}

func TestWatchOfAFileSurvivesItsReplacement(t *testing.T) {
	e := start(t)
	e.write(t, "/w/f", "1", agentapi.WriteOptions{Parents: true})
	w := e.watch(t, "/w/f", false)
	e.write(t, "/w/other", "not told", agentapi.WriteOptions{})
	e.write(t, "/w/f", "2", agentapi.WriteOptions{}) // by a rename
	got := until(t, w, "/w/f")
	mustDo(t, os.Remove(e.host("w/f")))
	got = append(got, until(t, w, "/w/f")...)
	want := []agentapi.FileEvent{{Type: agentapi.FileMovedTo, Path: "/w/f"}, {Type: agentapi.FileRemoved, Path: "/w/f"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWatchCoversNewDirectoriesWithoutLoss(t *testing.T) {
	e := start(t)
	mustDo(t, os.Mkdir(e.host("w"), 0o755))
	w := e.watch(t, "/w", true)
	want := map[string]bool{}
	made := make(chan error, 1)
	go func() {
		made <- func() error {
			for i := range 200 {
				dir := fmt.Sprintf("w/d%d/x/y", i)
				if err := os.MkdirAll(e.host(dir), 0o755); err != nil {
					return err
				}
				for j := range 10 {
					if err := os.WriteFile(e.host(fmt.Sprintf("%s/f%d", dir, j)), []byte("x"), 0o644); err != nil {
						return err
					}
				}
			}
			return os.Mkdir(e.host("w/end"), 0o755)
		}()
	}()
	for i := range 200 {
		for _, dir := range []string{"", "/x", "/x/y"} {
			want[fmt.Sprintf("/w/d%d%s", i, dir)] = true
		}
		for j := range 10 {
			want[fmt.Sprintf("/w/d%d/x/y/f%d", i, j)] = true
		}
	}
	events := until(t, w, "/w/end")
	mustDo(t, <-made)
	created := map[string]int{}
	for _, ev := range events[:len(events)-1] {
		switch ev.Type {
		case agentapi.FileCreated:
			created[ev.Path]++
		case agentapi.FileModified:
			if created[ev.Path] == 0 {
				t.Errorf("%s is told as modified before it is as created", ev.Path)
			}
		default:
			t.Errorf("event %+v", ev)
		}
	}
	for path, n := range created {
		if n != 1 || !want[path] {
			t.Errorf("%s is told as created %d times", path, n)
		}
	}
	for path := range want {
		if created[path] == 0 {
			t.Errorf("%s is not told", path)
		}
	}
}

func TestWatchFollowsMovedDirectories(t *testing.T) {
	e := start(t)
	mustDo(t, os.MkdirAll(e.host("w/a/in"), 0o755), os.MkdirAll(e.host("away/in"), 0o755), os.WriteFile(e.host("away/in/f"), nil, 0o644))
	w := e.watch(t, "/w", true)
	mustDo(t, os.Rename(e.host("w/a"), e.host("w/b")))
	got := until(t, w, "/w/b")
	mustDo(t, os.WriteFile(e.host("w/b/in/f"), nil, 0o644))
	got = append(got, until(t, w, "/w/b/in/f")...)
	mustDo(t, os.Rename(e.host("w/b"), e.host("gone")))
	got = append(got, until(t, w, "/w/b")...)
	// The watches of a directory that left are removed, whenever that is noticed.
	eventually(t, "a directory that was moved away is forgotten", func() bool {
		mustDo(t, os.WriteFile(e.host("gone/in/g"), nil, 0o644), os.Remove(e.host("gone/in/g")), os.Mkdir(e.host("w/mark"), 0o755))
		told := until(t, w, "/w/mark")
		mustDo(t, os.Remove(e.host("w/mark")))
		until(t, w, "/w/mark")
		return len(told) == 1
	})
	mustDo(t, os.Rename(e.host("away"), e.host("w/come")))
	got = append(got, until(t, w, "/w/come/in/f")...)
	want := []agentapi.FileEvent{
		{Type: agentapi.FileMovedFrom, Path: "/w/a", Dir: true},
		{Type: agentapi.FileMovedTo, Path: "/w/b", Dir: true},
		{Type: agentapi.FileCreated, Path: "/w/b/in/f"},
		{Type: agentapi.FileMovedFrom, Path: "/w/b", Dir: true},
		{Type: agentapi.FileMovedTo, Path: "/w/come", Dir: true},
		{Type: agentapi.FileCreated, Path: "/w/come/in", Dir: true},
		{Type: agentapi.FileCreated, Path: "/w/come/in/f"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWatchTellsWhatItLost(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.QueuedEvents = 100 })
	mustDo(t, os.Mkdir(e.host("w"), 0o755))
	w := e.watch(t, "/w", true)
	const made = agentapi.StreamWindow / 32 // more than is sent ahead
	for i := range made {                   // nobody reads them
		mustDo(t, os.Symlink("x", e.host(fmt.Sprintf("w/%d", i))))
	}
	n := 0
	for {
		ev, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == agentapi.WatchOverflow {
			break
		}
		n++
	}
	if n == 0 || n >= made {
		t.Errorf("%d events were told before the overflow", n)
	}
	// The watch goes on. The events that the kernel still holds may again be too many; then a new
	// event is lost with them.
	for i, seen := 0, false; !seen; i++ {
		name := fmt.Sprintf("/w/end-%d", i)
		mustDo(t, os.Mkdir(e.host(name), 0o755))
		for !seen {
			ev, err := w.Next()
			if err != nil {
				t.Fatal(err)
			}
			if ev.Type == agentapi.WatchOverflow {
				break
			}
			seen = ev.Path == name
		}
	}
}

func TestWatchEndsWithItsDirectory(t *testing.T) {
	e := start(t)
	mustDo(t, os.Mkdir(e.host("one"), 0o755), os.Mkdir(e.host("two"), 0o755))
	one, two := e.watch(t, "/one", true), e.watch(t, "/two", true)
	mustDo(t, os.Remove(e.host("one")), os.Rename(e.host("two"), e.host("three")))
	for w, want := range map[*agentapi.Watch]agentapi.FileEvent{
		one: {Type: agentapi.FileRemoved, Path: "/one", Dir: true},
		two: {Type: agentapi.FileMovedFrom, Path: "/two", Dir: true},
	} {
		if got := until(t, w, want.Path); !cmp.Equal(got, []agentapi.FileEvent{want}) {
			t.Errorf("events = %+v, want %+v", got, want)
		}
		if ev, err := w.Next(); err != io.EOF {
			t.Errorf("Next() = %+v, %v, want EOF", ev, err)
		}
	}
}

// A watch that is ended and immediately started again gets the place of the old watch, which the
// agent may not have released yet.
func TestWatchBegunAnewIsNotOneTooMany(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.WatchWait = time.Minute })
	mustDo(t, os.Mkdir(e.host("w"), 0o755))
	const most = 64
	var open [most]*agentapi.Watch
	for i := range most + 100 {
		if i >= most {
			open[i%most].Close()
		}
		w, err := e.Watch(t.Context(), "/w", false)
		if err != nil {
			t.Fatalf("watch %d, of which at most %d are open: %v", i, most, err)
		}
		open[i%most] = w
	}
}

func TestWatchesAreLimited(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.WatchWait = time.Millisecond })
	mustDo(t, os.Mkdir(e.host("w"), 0o755))
	var refused *agentapi.Error
	var open []*agentapi.Watch
	for len(open) < 1000 {
		w, err := e.Watch(t.Context(), "/w", false)
		if errors.As(err, &refused) {
			break
		}
		mustDo(t, err)
		open = append(open, w)
	}
	if refused == nil || refused.Code != agentapi.CodeTooMany {
		t.Fatalf("after %d watches: %v", len(open), refused)
	}
	for _, w := range open {
		w.Close()
	}
	eventually(t, "a watch is possible again", func() bool {
		w, err := e.Watch(t.Context(), "/w", false)
		if err == nil {
			w.Close()
		}
		return err == nil
	})
	// The watch before, and others of the loop, may still be ending.
	var err error
	eventually(t, "the watch of a missing directory is not one too many", func() bool {
		_, err = e.Watch(t.Context(), "/missing", false)
		return !errors.As(err, &refused) || refused.Code != agentapi.CodeTooMany
	})
	if !errors.As(err, &refused) || refused.Code != agentapi.CodeNoFile {
		t.Errorf("Watch(/missing) = %v, want %s", err, agentapi.CodeNoFile)
	}
}

func TestWatchTellsWhatItCannotCover(t *testing.T) {
	e := start(t, func(o *agent.Options) { o.WatchedDirs = 5 })
	mustDo(t, os.Mkdir(e.host("w"), 0o755))
	for i := range 10 {
		mustDo(t, os.Mkdir(e.host(fmt.Sprintf("w/%d", i)), 0o755))
	}
	w := e.watch(t, "/w", true)
	mustDo(t, os.Mkdir(e.host("w/end"), 0o755))
	events := until(t, w, "/w/end")
	limits := slices.DeleteFunc(events, func(ev agentapi.FileEvent) bool { return ev.Type != agentapi.WatchLimit })
	if len(limits) != 1 || filepath.Dir(limits[0].Path) != "/w" {
		t.Errorf("limits told = %+v, want one", limits)
	}
}
