package template_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/template"
)

// TestTemplatesOfOtherServers: a server removes its own templates, and the templates of servers that have ended.
func TestTemplatesOfOtherServers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0/one", "8/two", "c/three", "four"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		ranges sandbox.Ranges
		want   []string
	}{
		{sandbox.RangesFrom(8, 15), []string{"0", "0/one", "8", "four"}},
		{sandbox.RangesFrom(0, 7), []string{"0", "8"}},
		{sandbox.AllRanges, nil},
	} {
		template.New(template.Config{Dir: dir, MaxBytes: 1}, template.Deps{Owner: sandbox.Own(step.ranges), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		var got []string
		for _, pattern := range []string{"*", "*/*"} {
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				rel, err := filepath.Rel(dir, name)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rel)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, step.want) {
			t.Errorf("after the start of the server of %s: %q, want %q", step.ranges.Digits(), got, step.want)
		}
	}
}
