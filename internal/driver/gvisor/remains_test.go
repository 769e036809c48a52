package gvisor

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modbox/modbox/internal/driver/gvisor/launch"
	"github.com/modbox/modbox/internal/sandbox"
)

// TestStraySearch checks when a list of boxes searches for processes without other files: at the first call, at each call until none is found, and once a minute after that.
func TestStraySearch(t *testing.T) {
	cfg := Config{RunDir: t.TempDir(), StateDir: t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		h := newHost(cfg)
		listed, stray := sandbox.NewID(), sandbox.NewID()
		if err := os.MkdirAll(h.paths.box(listed), 0o700); err != nil {
			t.Fatal(err)
		}
		searches, strays := 0, []launch.Stray{{ID: stray}, {ID: listed}}
		h.strays.list = func(string) ([]launch.Stray, error) {
			searches++
			return strays, nil
		}
		check := func(wantSearches int, want ...sandbox.ID) {
			t.Helper()
			got, err := h.found(nil)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) || searches != wantSearches {
				t.Fatalf("found %v after %d searches, want %v after %d", got, searches, want, wantSearches)
			}
		}
		check(1, stray, listed)
		check(2, stray, listed)
		strays = []launch.Stray{{ID: listed}}
		check(3, listed)
		strays = append(strays, launch.Stray{ID: stray})
		check(3, listed)
		time.Sleep(searchEvery)
		check(4, stray, listed)
	})
}
