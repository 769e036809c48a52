package audit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/storetest"
)

// fixture is a log in a database of its own.
type fixture struct {
	*testing.T
	path  string
	store *store.Store
	log   *audit.Log
}

func newFixture(t *testing.T, cfg audit.Config) *fixture {
	t.Helper()
	f := &fixture{T: t, path: filepath.Join(t.TempDir(), "modbox.db")}
	f.store = storetest.Open(t, f.path)
	f.log = audit.Open(f.store.Audit, cfg, slog.New(slog.DiscardHandler))
	t.Cleanup(f.log.Close)
	return f
}

// add adds records of an action, one after the other.
func (f *fixture) add(action string, n int) {
	f.Helper()
	for range n {
		err := f.log.Do(f.Context(), audit.Record{Action: action}, func(context.Context) error { return nil })
		if err != nil {
			f.Fatal(err)
		}
	}
}

// sql changes the database without the log.
func (f *fixture) sql(statements ...string) {
	f.Helper()
	db := storetest.Raw(f, f.path)
	defer func() { _ = db.Close() }()
	for _, s := range statements {
		if _, err := db.ExecContext(f.Context(), s); err != nil {
			f.Fatalf("%s: %v", s, err)
		}
	}
}

func (f *fixture) verify() audit.Report {
	f.Helper()
	r, err := f.log.Verify(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	return r
}

// records returns all records, oldest first.
func (f *fixture) records(filter audit.Filter) []audit.Record {
	f.Helper()
	filter.Ascending, filter.Limit = true, 1000
	var list []audit.Record
	for {
		rows, err := f.log.Rows(f.Context(), filter)
		if err != nil {
			f.Fatal(err)
		}
		for _, row := range rows.Items {
			var r audit.Record
			if err := json.Unmarshal(row.Record, &r); err != nil {
				f.Fatal(err)
			}
			list = append(list, r)
		}
		if filter.Cursor = rows.Next; filter.Cursor == "" {
			return list
		}
	}
}

func TestVerifyFindsWhatWasChanged(t *testing.T) {
	for name, statements := range map[string][]string{
		"edited":          {"UPDATE audit_records SET record = replace(record, 'exec', 'exit') WHERE seq = 5"},
		"edited_newest":   {"UPDATE audit_records SET record = replace(record, 'exec', 'exit') WHERE seq = 10"},
		"hash_edited":     {"UPDATE audit_records SET hash = '" + strings.Repeat("00", 32) + "' WHERE seq = 5"},
		"hash_damaged":    {"UPDATE audit_records SET hash = 'x' WHERE seq = 5"},
		"deleted":         {"DELETE FROM audit_records WHERE seq = 5"},
		"oldest_deleted":  {"DELETE FROM audit_records WHERE seq = 1"},
		"newest_deleted":  {"DELETE FROM audit_records WHERE seq = 10"},
		"all_deleted":     {"DELETE FROM audit_records"},
		"renumbered":      {"DELETE FROM audit_records WHERE seq = 5", "UPDATE audit_records SET seq = seq - 1 WHERE seq > 5"},
		"swapped":         {"UPDATE audit_records SET seq = 99 WHERE seq = 4", "UPDATE audit_records SET seq = 4 WHERE seq = 5", "UPDATE audit_records SET seq = 5 WHERE seq = 99"},
		"inserted":        {"INSERT INTO audit_records (seq, record, hash) VALUES (0, '{}', 'ff')"},
		"anchor_moved":    {"DELETE FROM audit_records WHERE seq < 5", "UPDATE audit_chain SET anchor_seq = 4"},
		"head_moved_back": {"DELETE FROM audit_records WHERE seq > 8", "UPDATE audit_chain SET head_seq = 8"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, audit.Config{})
			f.add("exec", 10)
			if r := f.verify(); r.Problem != "" || r.Records != 10 || r.Head.Seq != 10 {
				t.Fatalf("before: %+v", r)
			}
			f.sql(statements...)
			if r := f.verify(); r.Problem == "" {
				t.Errorf("nothing was found: %+v", r)
			}
		})
	}
}

func TestVerifierOfRows(t *testing.T) {
	f := newFixture(t, audit.Config{})
	f.add("exec", 6)
	all, err := f.log.Rows(t.Context(), audit.Filter{Ascending: true})
	if err != nil {
		t.Fatal(err)
	}
	rows := all.Items
	check := func(v *audit.Verifier, rows ...audit.Row) error {
		for _, r := range rows {
			if err := v.Check(r); err != nil {
				return err
			}
		}
		return nil
	}
	if err := check(audit.FromFirst(), rows...); err != nil {
		t.Errorf("all: %v", err)
	}
	if err := check(audit.FromFirst(), rows[2:]...); err != nil {
		t.Errorf("a later part: %v", err)
	}
	if err := check(audit.From(audit.Point{Seq: 2, Hash: rows[1].Hash}), rows[2:]...); err != nil {
		t.Errorf("from a point: %v", err)
	}
	if err := check(audit.From(audit.Point{Seq: 2, Hash: rows[0].Hash}), rows[2:]...); err == nil {
		t.Error("from a point that is another")
	}
	first := rows[0]
	first.Prev[0]++ // a first record has nothing before it, whatever it claims
	first.Hash[0]++
	for name, part := range map[string][]audit.Row{
		"a gap": {rows[0], rows[2]}, "out of order": {rows[1], rows[0]}, "doubled": {rows[0], rows[0]}, "another first": {first},
	} {
		if err := check(audit.FromFirst(), part...); err == nil {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

func TestManyAtTheSameTime(t *testing.T) {
	f := newFixture(t, audit.Config{})
	const writers, each = 16, 40
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() { f.add("exec", each) })
	}
	wg.Wait()
	if r := f.verify(); r.Problem != "" || r.Records != writers*each {
		t.Errorf("%+v, want %d records", r, writers*each)
	}
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	f := newFixture(t, audit.Config{})
	var wg sync.WaitGroup
	var added atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 50 {
				f.handle("exec", func(e *audit.Entry) { _ = e.Command(f.Context(), []string{"true"}) }) // does not wait for its record
				added.Add(1)
			}
		})
	}
	wg.Wait()
	f.log.Close()
	f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	ok := len(f.records(audit.Filter{Outcome: audit.OK})) // the start of slow commands is recorded also
	if r := f.verify(); r.Problem != "" || ok != int(added.Load()) {
		t.Errorf("%+v, %d records of ends, want %d", r, ok, added.Load())
	}
}

// handle serves a recorded request, from an optional address.
func (f *fixture) handle(action string, do func(e *audit.Entry), address ...string) *httptest.ResponseRecorder {
	f.Helper()
	mux := http.NewServeMux()
	op := &audit.Operation{Action: action, Route: "POST /boxes/{ref}"}
	mux.Handle("POST /boxes/{ref}", f.log.Handler(op, f.log.IntentHandler(op, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do(audit.FromContext(r.Context()))
	}))))
	r := httptest.NewRequestWithContext(f.Context(), "POST", "/boxes/one", nil)
	if len(address) > 0 {
		r.RemoteAddr = address[0]
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestRetention(t *testing.T) {
	f := newFixture(t, audit.Config{})
	f.add("old", 20)
	f.log.Close()

	kept := audit.Open(f.store.Audit, audit.Config{Retention: time.Nanosecond}, slog.New(slog.DiscardHandler))
	r, err := kept.Verify(t.Context())
	kept.Close()
	if err != nil || r.Problem != "" || r.Anchor.Seq < 20 || r.Records == 0 {
		t.Errorf("by age: %+v, %v, want an anchor at 20 at least and the record of the cut", r, err)
	}

	const max = 64 << 10
	f.log = audit.Open(f.store.Audit, audit.Config{MaxBytes: max}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	f.add(strings.Repeat("x", 1000), 200)
	if r := f.verify(); r.Problem != "" || r.Records > 100 || r.Records < 40 || r.Anchor.Seq < 100 {
		t.Errorf("by size: %+v, want some 60 records, and those of the cuts", r)
	}
	chain, err := f.store.Audit.AuditChain(t.Context())
	if err != nil || chain.Bytes > max+2000 {
		t.Errorf("%d bytes are kept, %v", chain.Bytes, err)
	}
	if cuts := f.records(audit.Filter{Action: audit.ActionCut}); len(cuts) == 0 || cuts[0].Details["records"] == "" {
		t.Errorf("records of the cuts: %+v", cuts)
	}
	f.sql("UPDATE audit_chain SET anchor_hash = '" + strings.Repeat("00", 32) + "'")
	if r := f.verify(); r.Problem == "" {
		t.Error("another anchor was not found out")
	}
}

func TestRetentionKeepsUpWithABusyServer(t *testing.T) {
	f := newFixture(t, audit.Config{})
	const writers, each = 50, 50
	const old = writers * each
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				f.handle("exec", func(e *audit.Entry) { _ = e.Command(f.Context(), []string{"true"}) })
			}
		})
	}
	wg.Wait()
	f.log.Close()
	f.log = audit.Open(f.store.Audit, audit.Config{Retention: time.Nanosecond}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	for deadline := time.Now().Add(time.Minute); ; {
		chain, err := f.store.Audit.AuditChain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if chain.Anchor.Seq >= old {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d records that are too old %d were removed", old, chain.Anchor.Seq)
		}
		f.records(audit.Filter{Action: audit.ActionCut}) // waits for the writer
	}
	if r := f.verify(); r.Problem != "" {
		t.Error(r.Problem)
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	f := newFixture(t, audit.Config{})
	refuse := func(user string) func(e *audit.Entry) {
		return func(e *audit.Entry) {
			e.By(audit.Actor{User: sandbox.UserID(user)})
			e.Fail(sandbox.Forbidden)
		}
	}
	const times = 300
	for i := range times {
		f.handle("exec", refuse(""), "192.0.2.1:1")
		f.handle("exec", refuse(""), fmt.Sprintf("198.51.100.%d:1", i%250))
		f.handle("exec", refuse("ada"), "192.0.2.1:1")
		f.handle("exec", func(e *audit.Entry) { e.By(audit.Actor{User: "bob"}) }, "192.0.2.1:1")
	}
	f.log.Close()
	f.log = audit.Open(f.store.Audit, audit.Config{}, slog.New(slog.DiscardHandler))
	defer f.log.Close()
	recorded, counted := map[string]int{}, map[string]int{}
	for _, r := range f.records(audit.Filter{}) {
		if r.Action != audit.ActionRefused {
			recorded[r.User]++
			continue
		}
		n, err := strconv.Atoi(r.Details["requests"])
		if err != nil {
			t.Errorf("%+v: %v", r, err)
		}
		counted[r.User] += n
	}
	// A minute may have ended in the middle.
	if n := recorded[""]; n < 60 || n > 180 || n+counted[""] != 2*times {
		t.Errorf("of nobody %d are recorded and %d counted, of %d", n, counted[""], 2*times)
	}
	if n := recorded["ada"]; n < 120 || n >= times || n+counted["ada"] != times {
		t.Errorf("of ada %d are recorded and %d counted, of %d", n, counted["ada"], times)
	}
	if n := recorded["bob"]; n != times {
		t.Errorf("of bob, who was let in, %d are recorded, want %d", n, times)
	}
}

// A client whose refusals are only counted cannot thereby hide what it does next.
func TestWhatMayHaveBeenDoneIsRecorded(t *testing.T) {
	f := newFixture(t, audit.Config{})
	as := func(do func(e *audit.Entry)) func(e *audit.Entry) {
		return func(e *audit.Entry) {
			e.By(audit.Actor{User: "eve"})
			do(e)
		}
	}
	for range 200 {
		f.handle("exec", as(func(e *audit.Entry) { e.Fail(sandbox.NotFound) }))
	}
	f.handle("late", as(func(e *audit.Entry) {
		_ = e.Command(t.Context(), []string{"true"})
		e.Fail(sandbox.Timeout)
	}))
	f.handle("late", as(func(e *audit.Entry) {
		e.Detail("path", "/etc/passwd")
		e.Fail(sandbox.Invalid)
	}))
	gone, leave := context.WithCancel(t.Context())
	leave()
	serve := f.log.Handler(&audit.Operation{Action: "late"}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).By(audit.Actor{User: "eve"})
	}))
	serve.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(gone, "POST", "/", nil))
	var outcomes []string
	for _, r := range f.records(audit.Filter{Action: "late"}) {
		if r.Outcome != audit.Started { // slow commands have one
			outcomes = append(outcomes, r.Outcome)
		}
	}
	if got, want := strings.Join(outcomes, " "), "timeout invalid cancelled"; got != want {
		t.Errorf("recorded are %q, want %q", got, want)
	}
}

func TestRecordOfARequest(t *testing.T) {
	f := newFixture(t, audit.Config{})
	f.handle("exec", func(e *audit.Entry) {
		e.By(audit.Actor{User: "u", Workspace: "w", Token: "t", Role: account.RoleMember})
		e.Object("sandbox", "id-1", "one")
		e.Object("sandbox", "id-2", "two")
		e.Made("snapshot", "sn", "")
		e.Code("print(1)")
		_ = e.Command(t.Context(), []string{"python3", "-", "top-secret"}, map[string]string{"V": "top-secret"})
		e.Start()
		e.Detail("exit_code", "3")
		e.Detail("token", "mbx_abcdefghijkmnpqrstuvwxyz23456789")
	}, "[2001:db8::1]:99")
	list := f.records(audit.Filter{Workspace: "w", User: "u", Object: "one"})
	if len(list) != 2 || list[0].Outcome != audit.Started || list[1].Outcome != audit.OK {
		t.Fatalf("records %+v, want started and ok", list)
	}
	r := list[1]
	if r.ObjectKind != "sandbox" || r.ObjectID != "id-1" || r.ObjectName != "one" || r.Token != "t" || r.Role != "member" || r.Address != "2001:db8::1" || r.Route != "POST /boxes/{ref}" {
		t.Errorf("record %+v", r)
	}
	if got := strings.Join(r.Command, " "); got != "python3 - [redacted] print(1)" {
		t.Errorf("command %q", got)
	}
	if r.Details["exit_code"] != "3" || r.Details["snapshot"] != "sn" || r.Details["token"] != "[redacted]" {
		t.Errorf("details %v", r.Details)
	}
	f.handle("exec", func(*audit.Entry) {})
	if list := f.records(audit.Filter{Object: "one"}); len(list) != 3 || list[2].ObjectID != "one" || list[2].ObjectKind != "box" {
		t.Errorf("what the path says: %+v", list)
	}
	var none *audit.Entry
	_ = none.Command(t.Context(), []string{"x"})
	none.Made("x", "y", "z")
	func() {
		defer func() { _ = recover() }()
		f.handle("exec", func(*audit.Entry) { panic("oops") })
	}()
	if list := f.records(audit.Filter{Outcome: string(sandbox.Internal)}); len(list) != 1 {
		t.Errorf("of a panic there are %d records", len(list))
	}
}
