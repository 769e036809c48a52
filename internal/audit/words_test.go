package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestSearch(t *testing.T) {
	f := newFixture(t, audit.Config{})
	for _, r := range []audit.Record{
		{Action: "exec", Workspace: "w", ObjectName: "builder", Command: []string{"pip", "install", "NumPy==2.1"}, Address: "10.1.2.3"},
		{Action: "exec", Workspace: "w", ObjectName: "Größe-7", Command: []string{"sh", "-c", "pip download x"}},
		{Action: "write-file", Workspace: "w", ObjectName: "builder", Details: map[string]string{"path": "/srv/numpy/notes.txt"}},
		{Action: "exec", Workspace: "v", Command: []string{"true"}, Stdout: "numpy is there", Stderr: strings.Repeat("y", 300)},
	} {
		if err := f.log.Do(t.Context(), r, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for search, want := range map[string][]int64{
		"numpy":                  {1, 3, 4},
		"NUMPY":                  {1, 3, 4},
		"num":                    {1, 3, 4}, // the beginning of a word
		"nu":                     nil,       // too short for that
		"umpy":                   nil,       // not the beginning
		"numpy pip":              {1},       // all words
		"install -- pip":         {1},       // in any order, without punctuation
		"numpy==2.1":             {1},       //
		"10.1.2.3":               {1},       //
		"/srv/numpy":             {3},       // a path
		"größe":                  {2},       //
		"GRÖSSE":                 nil,       // no other letters
		"c":                      {2},       // a whole short word
		"builder write-file":     {3},       //
		"exec ok":                {1, 2, 4}, //
		strings.Repeat("y", 200): {4},       // the index has 64 bytes of it
		"' OR 1=1 --":            nil,       //
		"object_name":            nil,       // the name of a field
		"%":                      {-1}, "": {1, 2, 3, 4},
		"a b c d e f g h i": {-1}, // too many
	} {
		rows, err := f.log.Rows(t.Context(), audit.Filter{Search: search, Ascending: true})
		if len(want) == 1 && want[0] < 0 {
			if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "search") {
				t.Errorf("search %q: %v, want it refused by its name", search, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range rows.Items {
			got = append(got, r.Seq)
		}
		if !cmp.Equal(got, want) {
			t.Errorf("search %.20q finds %v, want %v", search, got, want)
		}
	}
	if got := f.records(audit.Filter{Search: "numpy", Workspace: "v"}); len(got) != 1 || got[0].Seq != 4 {
		t.Errorf("in a workspace: %v", got)
	}
}

// A record is found by a bounded number of words, and leaves none when it is cut.
func TestWordsAreBoundedAndRemoved(t *testing.T) {
	const maxBytes = 400 << 10
	f := newFixture(t, audit.Config{MaxBytes: maxBytes})
	var long strings.Builder
	for i := range 500 {
		fmt.Fprintf(&long, "w%d ", i)
	}
	r := audit.Record{Action: "exec", Command: []string{long.String()}}
	for i := range 100 {
		if err := f.log.Do(t.Context(), r, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // two records from before the index, whose removal must subtract no words
			f.log.Close() // writes them
			f.log = audit.Open(f.store.Audit, audit.Config{MaxBytes: maxBytes}, slog.New(slog.DiscardHandler))
			f.sql("UPDATE audit_chain SET bytes = bytes - 80 * (SELECT count(*) FROM audit_words)", "DELETE FROM audit_words")
		}
	}
	f.log.Close() // also ends a cut
	db := storetest.Raw(t, f.path)
	defer func() { _ = db.Close() }()
	number := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	records, most := number("SELECT count(*) FROM audit_records"), number("SELECT max(n) FROM (SELECT count(*) n FROM audit_words GROUP BY seq) numbers")
	if records >= 95 || records == 0 {
		t.Errorf("the log still has %d of 100 records, want fewer: the cut removes the oldest", records)
	}
	chain, err := f.store.Audit.AuditChain(t.Context())
	want := number("SELECT sum(length(record)) FROM audit_records") + 80*number("SELECT count(*) FROM audit_words")
	if err != nil || chain.Bytes != int64(want) || want > maxBytes {
		t.Errorf("the log takes %d bytes, %v, want %d with the words, and at most %d", chain.Bytes, err, want, maxBytes)
	}
	if most != 100 {
		t.Errorf("a record has %d words, want 100", most)
	}
	if n := number("SELECT count(*) FROM audit_words WHERE seq NOT IN (SELECT seq FROM audit_records)"); n != 0 {
		t.Errorf("%d words of records that are gone", n)
	}
}

// fill adds records with the most words that the index has of each.
func (f *fixture) fill(records int) {
	f.Helper()
	var long strings.Builder
	for i := range 200 {
		fmt.Fprintf(&long, "w%d ", i)
	}
	var wg sync.WaitGroup
	for range records / 10 {
		wg.Go(func() {
			for range 10 {
				if err := f.log.Do(f.Context(), audit.Record{Action: "exec", Command: []string{long.String()}}, func(context.Context) error { return nil }); err != nil {
					f.Error(err)
				}
			}
		})
	}
	wg.Wait()
	f.records(audit.Filter{Action: "none"}) // waits for the writer
}

// waitCut waits until the log takes at most so many bytes, without further operations.
func (f *fixture) waitCut(most int64) {
	f.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		chain, err := f.store.Audit.AuditChain(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		if chain.Bytes <= most {
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("the log takes %d bytes, want at most %d", chain.Bytes, most)
		}
	}
}

// A log that is much too large is cut in small transactions.
func TestCutsAreSmall(t *testing.T) {
	const records, maxBytes = 400, 200 << 10
	f := newFixture(t, audit.Config{})
	f.fill(records)
	f.log.Close()
	f.log = audit.Open(f.store.Audit, audit.Config{MaxBytes: maxBytes}, slog.New(slog.DiscardHandler))
	f.waitCut(maxBytes)
	f.log.Close() // also ends a cut
	f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	cuts := f.records(audit.Filter{Action: audit.ActionCut})
	if len(cuts) < 7 {
		t.Errorf("%d cuts, want at least 7", len(cuts))
	}
	for _, r := range cuts {
		if n, err := strconv.Atoi(r.Details["records"]); err != nil || n > 50 {
			t.Errorf("a cut of %s records, %v, want at most 50 of 100 words", r.Details["records"], err)
		}
	}
	if r := f.verify(); r.Problem != "" {
		t.Error(r.Problem)
	}
}

// The cut of a full log goes on although no batch follows, down to the size from which on not every batch needs a cut.
func TestCutOfFullLogGoesOn(t *testing.T) {
	const records, maxBytes = 200, 4 << 20
	f := newFixture(t, audit.Config{MaxBytes: maxBytes})
	f.fill(records)
	chain, err := f.store.Audit.AuditChain(t.Context())
	if err != nil || chain.Anchor.Seq != 0 {
		t.Fatalf("%+v, %v, want no cut", chain, err)
	}
	f.sql(fmt.Sprintf("UPDATE audit_chain SET bytes = %d", maxBytes+100*chain.Bytes/records)) // 100 records too many
	f.add("last", 1)
	f.waitCut(maxBytes - maxBytes/64 + 4000) // and the records of the cuts
}
