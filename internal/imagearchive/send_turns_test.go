package imagearchive

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
)

// record returns a record without a name, of a workspace.
func record(digest string, ws sandbox.WorkspaceID, below ...string) index.Record {
	return index.Record{Digest: digest, Below: below, Users: map[sandbox.WorkspaceID]time.Time{ws: time.Unix(1, 0)}}
}

func TestWanted(t *testing.T) {
	cached, builtin, pulled, archived := record("cached", "a"), record("builtin", ""), record("pulled", "a"), record("archived", "")
	cached.CacheKey, builtin.RecipeHash, pulled.Pull, archived.Pull = "key", "hash", &index.Pull{}, &index.Pull{}
	built := record("built", "", "step", "builtin")
	built.Owner = "b"
	step := record("step", "a", "builtin")
	step.CacheKey = "step"
	ix := &index.Index{Images: []index.Record{built, cached, pulled, archived, builtin, record("snapshot", "a", "built", "step", "builtin"), step}}
	var got []string
	for _, img := range wanted(ix, []string{"archived", "none"}) {
		got = append(got, img.Digest+" "+string(img.workspace))
	}
	if want := []string{"builtin b", "step b", "built b", "archived ", "snapshot a"}; !slices.Equal(got, want) {
		t.Errorf("wanted() = %q, want %q", got, want)
	}
}

// TestTurns has a workspace with many images, one with few, and one with more released files than may be.
func TestTurns(t *testing.T) {
	s := &Service{stored: map[string]index.StoredFile{"f": {Digest: "f", Workspace: "full", SizeBytes: 2*releasedMost + 1, ReleasedAt: time.Unix(1, 0)}}, locked: map[string]int{}}
	d := &sender{s: s, sending: map[string]image{}, lastTurn: map[sandbox.WorkspaceID]int{}, later: map[string]time.Time{"failed": time.Now().Add(time.Hour)}}
	add := func(key string, ws sandbox.WorkspaceID, below ...string) {
		r := record(key, ws, below...)
		d.waiting = append(d.waiting, image{&r, key, ws})
	}
	for _, key := range []string{"a1", "a2", "a3", "failed"} {
		add(key, "a")
	}
	add("over", "b", "b1")
	add("b1", "b")
	add("b2", "b")
	add("full", "full")
	var got []string
	for {
		img, ok := d.next()
		if !ok {
			break
		}
		got = append(got, img.key)
		d.turn++
		d.lastTurn[img.workspace] = d.turn
		d.sending[img.key] = img
		if len(d.sending) == uploads { // the first ends
			first := got[len(got)-uploads]
			s.stored[first] = index.StoredFile{Digest: first}
			d.end(t.Context(), sent{image: d.sending[first]})
		}
	}
	if want := []string{"a1", "b1", "a2", "over", "a3", "b2"}; !slices.Equal(got, want) {
		t.Errorf("the images are sent in the order %q, want %q", got, want)
	}
}

func TestDue(t *testing.T) {
	s := &Service{stored: map[string]index.StoredFile{}}
	for i, f := range []index.StoredFile{
		{Workspace: "a", SizeBytes: releasedMost, ReleasedAt: time.Unix(200, 0)},
		{Workspace: "a", SizeBytes: 1, ReleasedAt: time.Unix(300, 0)},
		{Workspace: "b", SizeBytes: 1, ReleasedAt: time.Unix(50, 0)},
		{Workspace: "b", SizeBytes: 1, ReleasedAt: time.Unix(200, 0)},
		{Workspace: "b", SizeBytes: 2 * releasedMost},
	} {
		f.Digest = string(rune('0' + i))
		s.stored[f.Digest] = f
	}
	var got []string
	for _, f := range s.due(time.Unix(100, 0)) {
		got = append(got, f.Digest)
	}
	if want := []string{"2", "0"}; !slices.Equal(got, want) {
		t.Errorf("due() = %q, want %q: the earliest of b, and of a the one beyond the limit", got, want)
	}
}

// released are records that remember what was released, and taken back.
type released struct {
	Records
	at map[string]time.Time
}

func (r released) Release(_ context.Context, digests []string, at time.Time) error {
	for _, d := range digests {
		r.at[d] = at
	}
	return nil
}

// TestRemovalBesideAnUpload removes files that an image needs which is being sent.
func TestRemovalBesideAnUpload(t *testing.T) {
	rows := released{at: map[string]time.Time{}}
	old := index.StoredFile{Digest: "old", Content: "c", ReleasedAt: time.Unix(1, 0)}
	s := &Service{stored: map[string]index.StoredFile{"old": old}, locked: map[string]int{}, deps: Deps{Records: rows}}
	for range 2 { // two images need it
		release, ok := s.lock([]string{"new"}, []string{"c"})
		if !ok {
			t.Fatal("a stored file cannot be needed twice")
		}
		if _, ok := s.lock([]string{"c"}, nil); ok {
			t.Error("a file is removed that an upload needs")
		}
		if _, ok := s.lock([]string{"new"}, nil); ok {
			t.Error("a file is sent twice")
		}
		if _, ok := s.lock(nil, []string{"new"}); ok {
			t.Error("a file counts as stored while it is sent")
		}
		release()
	}
	if len(s.locked) > 0 {
		t.Errorf("locked %v after all releases", s.locked)
	}
	if err := s.takeBack(t.Context(), []index.StoredFile{old}); err != nil || !rows.at["old"].IsZero() || len(rows.at) != 1 || !s.stored["old"].ReleasedAt.IsZero() {
		t.Errorf("takeBack = %v, recorded %v, stored %v", err, rows.at, s.stored)
	}
	if err := s.remove(t.Context(), old); err != nil || !s.Has("old") { // it was due before
		t.Errorf("remove of a file that is needed again = %v", err)
	}
	delete(s.stored, "old")
	if err := s.takeBack(t.Context(), []index.StoredFile{old}); !errors.Is(err, errInUse) {
		t.Errorf("takeBack of a removed file = %v", err)
	}
}
