package store_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/storetest"
)

// endSessions ends the sessions that write to a database, and returns their number.
func endSessions(t *testing.T, db *sql.DB) (ended int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) sessions`).Scan(&ended); err != nil {
		t.Fatal(err)
	}
	return ended
}

// makeWords makes a table for the writes of a test.
func makeWords(t *testing.T, at store.Location) *sql.DB {
	t.Helper()
	db := sqlOf(t, at)
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE words (word TEXT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return db
}

func insertWord(ctx context.Context, s *store.Store, word string) error {
	return s.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO words VALUES ($1)", word)
		return err
	})
}

func words(t *testing.T, db *sql.DB, condition string) map[string]bool {
	t.Helper()
	list, err := database.Column[string](t.Context(), db, "SELECT word FROM words WHERE "+condition)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, w := range list {
		if all[w] {
			t.Errorf("%q is there twice", w)
		}
		all[w] = true
	}
	return all
}

// owner opens a database as the owner of ranges.
func owner(t *testing.T, at store.Location, r sandbox.Ranges) (*store.Store, error) {
	t.Helper()
	at.Postgres.Ranges = r
	s, err := store.OpenAt(t.Context(), at)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() }) // some are closed before
	}
	return s, err
}

const (
	lowerHalf = sandbox.AllRanges >> 8
	upperHalf = sandbox.AllRanges &^ lowerHalf
)

// Servers with different ranges write at the same time. A server with a range of another does not start, nor does a server of a version
// without ranges, and none starts while such a server runs.
func TestRangesHaveOneOwner(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	alone := func() (got bool) {
		t.Helper()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.QueryRowContext(t.Context(), "SELECT pg_try_advisory_lock($1)", int64(serverKey)).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got {
			if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock($1)", int64(serverKey)); err != nil {
				t.Fatal(err)
			}
		}
		return got
	}
	if !alone() {
		t.Fatal("no server runs, and the lock is taken")
	}
	lower, err := owner(t, at, lowerHalf)
	if err != nil {
		t.Fatal(err)
	}
	upper, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for name, s := range map[string]*store.Store{"lower": lower, "upper": upper} {
		for i := range 20 {
			wg.Go(func() {
				if err := insertWord(t.Context(), s, fmt.Sprint(name, i)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if n := len(words(t, db, "true")); n != 40 {
		t.Errorf("there are %d words, want 40", n)
	}
	for what, r := range map[string]sandbox.Ranges{"all": sandbox.AllRanges, "a range of the first": sandbox.RangesFrom(3, 3), "ranges of both": sandbox.RangesFrom(7, 8)} {
		wg.Go(func() { // each waits for the others a while
			if s, err := owner(t, at, r); !errors.Is(err, database.ErrTaken) || !strings.Contains(err.Error(), "another server uses the database: modbox ") {
				t.Errorf("a server with %s: %v, %v, want an error that names another", what, s, err)
			}
		})
	}
	wg.Wait()
	for _, s := range []*store.Store{lower, upper} {
		if alone() {
			t.Errorf("a server of a version without ranges would start beside %s", s.Ranges().Digits())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute) // their sessions end in the background
	defer cancel()
	if _, err := conn.ExecContext(bounded, "SELECT pg_advisory_lock($1)", int64(serverKey)); err != nil {
		t.Fatalf("all servers ended, and one has the lock: %v", err)
	}
	if _, err := owner(t, at, sandbox.RangesFrom(3, 3)); !errors.Is(err, database.ErrTaken) {
		t.Errorf("a server beside a server of a version without ranges: %v, want that the other has the database", err)
	}
}

// A server whose session ended never writes again if another server has owned its ranges since, also if the other has ended as well.
func TestFormerOwnerDoesNotWrite(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	former, err := owner(t, at, sandbox.AllRanges)
	if err != nil {
		t.Fatal(err)
	}
	if err := insertWord(t.Context(), former, "first"); err != nil {
		t.Fatal(err)
	}
	if n := endSessions(t, db); n != 1 {
		t.Fatalf("ended %d sessions, want 1", n)
	}
	if err := insertWord(t.Context(), former, "second"); err != nil {
		t.Fatalf("no other server had the database, and a write fails: %v", err)
	}
	for endSessions(t, db) > 0 { // until it is over
	}
	other, err := owner(t, at, sandbox.RangesFrom(5, 5))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(insertWord(t.Context(), other, "third"), other.Close()); err != nil {
		t.Fatal(err)
	}
	if err := insertWord(t.Context(), former, "late"); !errors.Is(err, database.ErrTaken) || !strings.Contains(err.Error(), "another server has used the database: modbox ") {
		t.Errorf("a write of the former owner: %v, want an error that names the other server", err)
	}
	select {
	case <-former.Taken():
		if !errors.Is(former.TakenBy(), database.ErrTaken) {
			t.Errorf("taken by %v", former.TakenBy())
		}
	default:
		t.Error("the former owner does not know that it is one")
	}
	if have := words(t, db, "true"); len(have) != 3 || have["late"] {
		t.Errorf("there are %v", have)
	}
}

// A server does not go on with a copy of its database from before its start, such as a standby that was promoted too early.
func TestCopyFromBeforeTheStart(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	s, err := owner(t, at, sandbox.AllRanges)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "UPDATE shard_ranges SET epoch = epoch - 1 WHERE number = 15"); err != nil {
		t.Fatal(err)
	}
	for endSessions(t, db) > 0 {
	}
	if err := insertWord(t.Context(), s, "late"); sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "lacks the start of this server") || len(words(t, db, "true")) > 0 {
		t.Errorf("a write to a copy from before the start: %v, want that the database lacks it", err)
	}
	<-s.Taken()
}

// Servers race for a database while the session of the owner is ended again and again: what an owner has answered with success stays, and
// no write of a former owner follows the first write of the next.
func TestOwnersRaceForRanges(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	for _, statement := range []string{
		// The row of a word is made in its transaction, so numbers of words are in the order of the transactions, which wait for each other.
		"ALTER TABLE words ADD COLUMN number BIGINT GENERATED ALWAYS AS IDENTITY",
		"ALTER TABLE words ADD COLUMN epoch BIGINT",
		`CREATE FUNCTION set_epoch() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN SELECT epoch INTO NEW.epoch FROM shard_ranges WHERE number = 0; RETURN NEW; END $$`,
		"CREATE TRIGGER set_epoch BEFORE INSERT ON words FOR EACH ROW EXECUTE FUNCTION set_epoch()",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	var owners, lost, made atomic.Int64
	var acknowledged sync.Map
	var wg sync.WaitGroup
	var over atomic.Bool
	for range 3 {
		wg.Go(func() {
			for !over.Load() {
				s, err := store.OpenAt(t.Context(), at)
				if err != nil {
					continue // another has the database, or the session was ended
				}
				turn := owners.Add(1)
				for i := 0; !over.Load(); i++ {
					word := fmt.Sprintf("%d-%d", turn, i)
					err := insertWord(t.Context(), s, word)
					if err == nil {
						acknowledged.Store(word, true)
						made.Add(1)
					} else if errors.Is(err, database.ErrTaken) {
						lost.Add(1)
						break
					} // else it is not known whether it is there
				}
				_ = s.Close()
			}
		})
	}
	// After some words of an owner, its sessions are ended until another has its place.
	for range 6 {
		for enough := made.Load() + 10; made.Load() < enough; {
			runtime.Gosched()
		}
		var of string
		if err := db.QueryRowContext(t.Context(), "SELECT owner FROM shard_ranges WHERE number = 0").Scan(&of); err != nil {
			t.Fatal(err)
		}
		for same := true; same; {
			if err := db.QueryRowContext(t.Context(), "SELECT owner = $1 FROM shard_ranges, (SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1) ended WHERE number = 0", of).Scan(&same); err != nil {
				t.Fatal(err)
			}
		}
	}
	over.Store(true)
	wg.Wait()
	have := words(t, db, "true")
	acknowledged.Range(func(word, _ any) bool {
		if !have[word.(string)] {
			t.Errorf("%s was recorded and is lost", word)
		}
		return true
	})
	// The epoch of a word is of the owner that wrote it, for one owner in each epoch.
	mixed, err := database.Column[string](t.Context(), db, "SELECT split_part(word, '-', 1) FROM words GROUP BY 1 HAVING count(DISTINCT epoch) > 1 UNION ALL SELECT epoch::text FROM words GROUP BY epoch HAVING count(DISTINCT split_part(word, '-', 1)) > 1")
	if err != nil || len(mixed) > 0 {
		t.Errorf("owners wrote in the epochs of others: %v, %v", mixed, err)
	}
	if owners.Load() < 3 || lost.Load() < 2 {
		t.Errorf("there were %d owners, and %d lost the database", owners.Load(), lost.Load())
	}
	t.Logf("%d owners wrote %d words; %d owners lost the database", owners.Load(), len(have), lost.Load())
}

// ownerVariable makes the test process an owner of the database with this URL, which writes until it is killed.
const ownerVariable = "MODBOX_TEST_OWNER"

// TestOwnerProcess is the process of [TestKilledOwner].
func TestOwnerProcess(t *testing.T) {
	u := os.Getenv(ownerVariable)
	if u == "" {
		t.Skip("a process of TestKilledOwner")
	}
	s, err := store.OpenAt(t.Context(), store.Location{Postgres: database.Postgres{URL: u, MaxConnections: 4, ConnectTimeout: 5 * time.Second, StatementTimeout: 20 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if err := insertWord(t.Context(), s, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		fmt.Printf("word %d\n", i)
	}
}

// The owner is killed in the middle of its writes: the next owner has all words that were answered with success, and no word arrives later.
func TestKilledOwner(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwnerProcess$")
	process.Env = append(os.Environ(), ownerVariable+"="+at.Postgres.URL)
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	told := -1
	for lines := bufio.NewScanner(out); told < 50; {
		if !lines.Scan() {
			t.Fatalf("the owner ended after word %d: %v", told, lines.Err())
		}
		_, _ = fmt.Sscanf(lines.Text(), "word %d", &told) // other lines have no word
	}
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	next, err := store.OpenAt(t.Context(), at) // waits for the session of the killed process
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	at1 := words(t, db, "true")
	_ = process.Wait() // killed
	if err := insertWord(t.Context(), next, "next"); err != nil {
		t.Fatal(err)
	}
	if len(at1) <= told || len(words(t, db, "true")) != len(at1)+1 {
		t.Errorf("the next owner saw %d words, later there were %d, and word %d was answered with success", len(at1), len(words(t, db, "true")), told)
	}
}

// A server gains ranges that are free, and gives up ranges to others, while it writes.
func TestGainAndGiveUpRanges(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := makeWords(t, at)
	lower, err := owner(t, at, lowerHalf)
	if err != nil {
		t.Fatal(err)
	}
	upper, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	if err := lower.Gain(t.Context(), sandbox.RangesFrom(8, 8)); !errors.Is(err, database.ErrTaken) || lower.Ranges() != lowerHalf {
		t.Errorf("a range of another was gained: %v, it has %s", err, lower.Ranges().Digits())
	}
	if err := upper.GiveUp(t.Context(), sandbox.RangesFrom(8, 9)); err != nil || upper.Ranges() != sandbox.RangesFrom(10, 15) {
		t.Errorf("GiveUp = %v, it has %s", err, upper.Ranges().Digits())
	}
	if err := lower.Gain(t.Context(), sandbox.RangesFrom(8, 10)); !errors.Is(err, database.ErrTaken) || lower.Ranges() != lowerHalf {
		t.Errorf("a server gained a range that another server owns: %v, that server owns %s", err, lower.Ranges().Digits())
	}
	if err := lower.Gain(t.Context(), sandbox.RangesFrom(7, 9)); err != nil || lower.Ranges() != sandbox.RangesFrom(0, 9) {
		t.Errorf("Gain = %v, it has %s", err, lower.Ranges().Digits())
	}
	if err := upper.GiveUp(t.Context(), sandbox.AllRanges); sandbox.CodeOf(err) != sandbox.Invalid || upper.Ranges() != sandbox.RangesFrom(10, 15) {
		t.Errorf("all ranges were given up: %v, it has %s", err, upper.Ranges().Digits())
	}
	// New sessions have the locks of the ranges of now.
	for endSessions(t, db) > 0 {
	}
	for what, s := range map[string]*store.Store{"lower": lower, "upper": upper} {
		if err := insertWord(t.Context(), s, what); err != nil {
			t.Errorf("the owner of the %s ranges: %v", what, err)
		}
	}
	if err := upper.Gain(t.Context(), sandbox.RangesFrom(9, 9)); !errors.Is(err, database.ErrTaken) {
		t.Errorf("a range of another was gained: %v", err)
	}
	// The former owner of a range goes on after another has had it, because it has given it up.
	if err := errors.Join(lower.GiveUp(t.Context(), sandbox.RangesFrom(0, 1)), upper.Gain(t.Context(), sandbox.RangesFrom(1, 1))); err != nil {
		t.Error(err)
	}
	for endSessions(t, db) > 0 {
	}
	if err := errors.Join(insertWord(t.Context(), lower, "lower again"), insertWord(t.Context(), upper, "upper again")); err != nil {
		t.Error(err)
	}
	// A range that another has gained while the session was lost makes it end.
	if err := upper.GiveUp(t.Context(), sandbox.RangesFrom(1, 1)); err != nil {
		t.Error(err)
	}
	for endSessions(t, db) > 0 {
	}
	third, err := owner(t, at, sandbox.RangesFrom(9, 9))
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
	if err := insertWord(t.Context(), lower, "late"); !errors.Is(err, database.ErrTaken) {
		t.Errorf("a write of the former owner of a range: %v", err)
	}
	if err := insertWord(t.Context(), upper, "upper at last"); err != nil {
		t.Error(err)
	}
}

// A server gives up the range of a sandbox while it writes to it and its executions and checkpoints: after another has gained the range, no write arrives.
func TestWritesWhileARangeIsGivenUp(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	first, err := owner(t, at, lowerHalf)
	if err != nil {
		t.Fatal(err)
	}
	second, err := owner(t, at, upperHalf)
	if err != nil {
		t.Fatal(err)
	}
	ws, _, err := first.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := creation(ws, "moves")
	c.Sandbox.ID, c.Sandbox.Env = c.Sandbox.ID[:34]+"30", nil
	sb := create(t, first, c)
	own := first.Sandboxes.Owned(first.Owner())
	third := sandbox.RangesFrom(3, 3)
	var n, kept, refused atomic.Int64
	writes := map[string]func() error{
		"change": func() error {
			ttl := time.Duration(n.Add(1))
			_, err := own.ChangeSandbox(t.Context(), sb.ID, sandbox.Change{TTL: &ttl}, sandbox.Event{Time: time.Now(), Type: sandbox.EventRunning})
			return err
		},
		"event": func() error {
			return own.AppendEvent(t.Context(), sandbox.Event{Sandbox: sb.ID, Time: time.Now(), Type: sandbox.EventRunning})
		},
		"execution": func() error {
			return first.Executions.CreateExecution(t.Context(), sandbox.Execution{ID: sandbox.NewExecutionID(), Sandbox: sb.ID, Workspace: ws, State: sandbox.ExecutionRunning, CreatedAt: time.Now()}, 1<<20)
		},
		"checkpoint": func() error {
			cp := &sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: sb.ID, Name: fmt.Sprint("c", n.Add(1)), CreatedAt: time.Now()}
			return first.Checkpoints.Create(t.Context(), cp, 1<<20, sandbox.Event{Time: time.Now(), Type: sandbox.EventRunning}, quota.Admission{})
		},
	}
	state := func() string {
		t.Helper()
		all, err := database.Column[string](t.Context(), second.Reader(), `SELECT concat_ws(' ', ttl, updated_at, (SELECT count(*) FROM events), (SELECT count(*) FROM executions), (SELECT count(*) FROM checkpoints)) FROM sandboxes`)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0]
	}
	for range 20 {
		// The writes and the end of the ownership wait for a transaction that runs, and follow it in any order.
		entered, leave := make(chan struct{}), make(chan struct{})
		var begun, done sync.WaitGroup
		done.Go(func() {
			if err := first.Write(t.Context(), func(context.Context, *sql.Tx) error {
				close(entered)
				<-leave
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		<-entered
		for what, write := range writes {
			begun.Add(1)
			done.Go(func() {
				begun.Done()
				switch err := write(); {
				case err == nil:
					kept.Add(1)
				case sandbox.CodeOf(err) == sandbox.Unavailable:
					refused.Add(1)
				default:
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		begun.Add(1)
		gone := make(chan error)
		go func() {
			begun.Done()
			gone <- first.GiveUp(t.Context(), third)
		}()
		begun.Wait()
		for range 100 {
			runtime.Gosched() // so that they wait
		}
		close(leave)
		if err := errors.Join(<-gone, second.Gain(t.Context(), third)); err != nil {
			t.Fatal(err)
		}
		before := state()
		done.Wait()
		if after := state(); after != before {
			t.Fatalf("the sandbox is %s, and was %s when its new owner had it", after, before)
		}
		if err := errors.Join(second.GiveUp(t.Context(), third), first.Gain(t.Context(), third)); err != nil {
			t.Fatal(err)
		}
	}
	for what, write := range writes {
		if err := write(); err != nil {
			t.Errorf("%s in the end: %v", what, err)
		}
	}
	if refused.Load() == 0 {
		t.Error("no write came after the end of the ownership")
	}
	t.Logf("the store kept %d writes and refused %d", kept.Load(), refused.Load())
}

// Of the executions that have ended, an owner is shown those in its own sandboxes to store their output.
func TestUnstoredOutputOfOwners(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	for i, r := range []sandbox.Ranges{lowerHalf, upperHalf} {
		s, err := owner(t, at, r)
		if err != nil {
			t.Fatal(err)
		}
		ws, _, err := s.Workspaces.EnsureDefaults(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := creation(ws, fmt.Sprint("s", i))
		c.Sandbox.ID, c.Sandbox.Env = s.Owner().NewID(), nil
		sb := create(t, s, c)
		now := time.Now()
		e := sandbox.Execution{ID: sandbox.NewExecutionID(), Sandbox: sb.ID, Workspace: ws, State: sandbox.ExecutionRunning, CreatedAt: now}
		if err := s.Executions.CreateExecution(t.Context(), e, 10); err != nil {
			t.Fatal(err)
		}
		ended := e
		ended.State, ended.EndedAt = sandbox.ExecutionCompleted, now
		if err := s.Executions.UpdateExecution(t.Context(), e, ended); err != nil {
			t.Fatal(err)
		}
		list, err := s.Executions.Outputs().Unstored(t.Context(), time.Time{}, 10)
		if err != nil || len(list) != 1 || list[0].ID != e.ID {
			t.Errorf("the owner of %s is shown %v, %v, want %s", r.Digits(), list, err, e.ID)
		}
	}
}

// Servers that start at the same time get different generations, which are their epochs.
func TestGenerationsOfServersDiffer(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	var mu sync.Mutex
	seen := map[int64]bool{} // guarded by mu
	var wg sync.WaitGroup
	for _, r := range []sandbox.Ranges{lowerHalf, upperHalf} {
		s, err := owner(t, at, r)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range 50 {
				id, err := s.Advance(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[id.Generation] {
					t.Errorf("two servers have generation %d", id.Generation)
				}
				seen[id.Generation] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// A server that starts keeps the mark of a server that has run for long and has just written: that needs it if it loses its connection.
func TestMarkOfARunningServerStays(t *testing.T) {
	needPostgres(t)
	at := storetest.At(t, filepath.Join(t.TempDir(), "modbox.db"))
	db := sqlOf(t, at)
	lower, err := owner(t, at, lowerHalf)
	if err != nil {
		t.Fatal(err)
	}
	advance := func() {
		t.Helper()
		if _, err := lower.Advance(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	advance()
	if _, err := db.ExecContext(t.Context(), "UPDATE writers SET begun_at = 0"); err != nil {
		t.Fatal(err)
	}
	advance()
	if _, err := owner(t, at, upperHalf); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM writers WHERE mark > 0").Scan(&n); err != nil || n == 0 {
		t.Errorf("%d marks are left, %v", n, err)
	}
}
