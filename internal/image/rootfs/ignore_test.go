package rootfs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moby/patternmatcher"

	"github.com/modbox/modbox/internal/sandbox"
)

// emptyFiles returns n files of one directory.
func emptyFiles(t *testing.T, n int) *Files {
	t.Helper()
	f := &Files{tree: newTree(), closed: func() {}}
	for i := range n {
		if err := f.tree.put(fmt.Sprint("f", i), &node{mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestIgnoreBounds: patterns are matched with each file.
func TestIgnoreBounds(t *testing.T) {
	for name, patterns := range map[string][]string{
		"Many":         strings.Split(strings.Repeat("a,", ignorePatternsMax+1), ","),
		"Long":         {strings.Repeat("*", ignorePatternMax+1)},
		"LongTogether": strings.Split(strings.Repeat(strings.Repeat("*a", 100)+",", 400), ","),
	} {
		if err := emptyFiles(t, 1).Ignore(t.Context(), patterns); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: Ignore = %v, want %s", name, err, sandbox.Invalid)
		}
	}
}

// TestIgnoreTakesTooLong: matching ends when it has used its processor time, and with its
// build.
func TestIgnoreTakesTooLong(t *testing.T) {
	pm, err := patternmatcher.New([]string{"*a*b*"})
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	i := ignorer{patterns: pm, until: 10, clock: func() time.Duration { looked++; return time.Duration(looked) }}
	files := emptyFiles(t, 1000)
	if _, err := i.dir(t.Context(), files.tree.root, "", patternmatcher.MatchInfo{}); sandbox.CodeOf(err) != sandbox.Invalid || looked != 11 {
		t.Errorf("after %d files: %v, want %s after 11", looked, err, sandbox.Invalid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := files.Ignore(ctx, []string{"*a*b*"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Ignore = %v, want %v", err, context.Canceled)
	}
	if before := threadTime(); before <= 0 {
		t.Errorf("threadTime() = %v, want more", before)
	}
}

// TestCopyBounds: sources are found in so many files at most, and for as long as their
// build lasts.
func TestCopyBounds(t *testing.T) {
	files := emptyFiles(t, 1000)
	many := CopyRequest{From: files, To: "/x/", Sources: strings.Split(strings.Repeat("f*,", matchMax/1000+1)+"f1", ",")}
	if _, err := NewCopy(t.Context(), many); sandbox.CodeOf(err) != sandbox.TooLarge {
		t.Errorf("NewCopy of many names = %v, want %s", err, sandbox.TooLarge)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewCopy(ctx, many); !errors.Is(err, context.Canceled) {
		t.Errorf("NewCopy = %v, want %v", err, context.Canceled)
	}
}
