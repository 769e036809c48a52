package store_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
	"github.com/modbox/modbox/internal/store/migrations"
	"github.com/modbox/modbox/internal/store/storetest"
)

// wantCounted fails the test unless the sums of quota_use are the sums of the rows.
func wantCounted(t *testing.T, db database.Querier, when string) {
	t.Helper()
	const runs = " FROM sandboxes s WHERE w.id IN ('', s.workspace_id) AND state NOT IN ('paused', 'destroying', 'destroyed', 'failed'))"
	want, err := database.Column[string](t.Context(), db, `SELECT w.id || ': ' || (SELECT count(*)`+runs+` || ' ' || (SELECT coalesce(sum(memory_bytes), 0)`+runs+
		` || ' ' || (SELECT coalesce(sum(cpu_milli), 0)`+runs+` || ' ' || (SELECT coalesce(sum(disk_bytes), 0)`+runs+
		` || ' ' || (SELECT coalesce(sum(CASE WHEN saved_bytes > 0 THEN saved_bytes ELSE disk_bytes END), 0) FROM sandboxes s WHERE w.id IN ('', s.workspace_id) AND state = 'paused')
		|| ' ' || (SELECT coalesce(sum(size_bytes), 0) FROM checkpoints c JOIN sandboxes s ON s.id = c.sandbox_id WHERE w.id IN ('', s.workspace_id) AND state NOT IN ('destroyed', 'failed'))
		FROM (SELECT id FROM workspaces UNION ALL SELECT '') w ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	have, err := database.Column[string](t.Context(), db, `SELECT workspace_id || ': ' || sandboxes || ' ' || memory_bytes || ' ' || cpu_milli || ' ' || disk_bytes || ' ' || paused_bytes
		|| ' ' || checkpoint_bytes FROM quota_use ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Fatalf("use of quotas %s (-rows +sums):\n%s", when, d)
	}
}

// The sums that admission reads are the sums of the rows, whatever happens to sandboxes and checkpoints, and after a migration.
func TestUseOfQuotasIsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modbox.db")
	s := reopen(t, path)
	ws, user, err := s.Workspaces.EnsureDefaults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := account.Workspace{ID: sandbox.WorkspaceID(sandbox.NewID()), Name: "second", Slug: "second", CreatedBy: user, CreatedAt: time.Now()}
	if err := s.Workspaces.CreateWorkspace(t.Context(), second, 0); err != nil {
		t.Fatal(err)
	}
	const seed = 17
	random := rand.New(rand.NewPCG(seed, seed))
	now := time.Now().UTC()
	live := map[sandbox.ID]sandbox.State{}
	pick := func() (sandbox.ID, sandbox.State) {
		ids := make([]sandbox.ID, 0, len(live))
		for id := range live {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		if len(ids) == 0 {
			return "", ""
		}
		id := ids[random.IntN(len(ids))]
		return id, live[id]
	}
	done := map[string]int{}
	for i := range 1500 {
		id, state := pick()
		ev := sandbox.Event{Sandbox: id, Time: now, Type: sandbox.EventCheckpointCreated}
		var err error
		what := "create"
		switch n := random.IntN(10); {
		case len(live) < 6 && n < 3 || id == "":
			c := creation([]sandbox.WorkspaceID{ws, second.ID}[i%2], string(sandbox.NewID()))
			c.Sandbox.Resources.MemoryBytes += int64(i)
			if _, err = s.Sandboxes.CreateSandbox(t.Context(), c, quota.Admission{}); err == nil {
				live[c.Sandbox.ID] = sandbox.Provisioning
			}
		case n < 8:
			to := sandbox.States[random.IntN(len(sandbox.States))]
			if sandbox.CheckTransition(state, to) != nil || to == sandbox.Destroying && random.IntN(3) > 0 {
				continue
			}
			what = "from " + string(state) + " to " + string(to)
			bytes := int64(random.IntN(3) * 1000)
			change := sandbox.Change{SavedBytes: &bytes}
			if to.Ended() {
				change.EndedAt = &now
			}
			if _, err = s.Sandboxes.Transition(t.Context(), id, state, to, change, ev); err == nil {
				live[id] = to
				if to.Ended() {
					delete(live, id)
				}
			}
		case n == 8:
			what = "checkpoint"
			err = s.Checkpoints.ReplaceAutomatic(t.Context(), sandbox.Checkpoint{ID: sandbox.NewCheckpointID(), Sandbox: id, SizeBytes: int64(random.IntN(1000)), CreatedAt: now}, quota.Admission{})
		default:
			what = "purge"
			_, err = s.Sandboxes.Purge(t.Context(), now, now.Add(time.Second), 5)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		done[what]++
		wantCounted(t, s.Reader(), "after "+what)
	}
	for _, what := range []string{"create", "checkpoint", "purge", "from pausing to paused", "from paused to resuming", "from paused to destroying", "from running to destroying", "from destroying to destroyed", "from destroying to failed"} {
		if done[what] == 0 {
			t.Errorf("%s did not happen; done: %v", what, done)
		}
	}

	// A write that fails changes no sum, also in a transaction with others.
	failing := errors.New("it fails")
	id, _ := pick()
	if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE sandboxes SET state = 'destroying' WHERE id = $1", id)
		return errors.Join(failing, err)
	}); !errors.Is(err, failing) {
		t.Fatal(err)
	}
	wantCounted(t, s.Reader(), "after a write that failed")
	third := account.Workspace{ID: sandbox.WorkspaceID(sandbox.NewID()), Name: "third", Slug: "third", CreatedBy: user, CreatedAt: time.Now()}
	if err := errors.Join(s.Workspaces.CreateWorkspace(t.Context(), third, 0), s.Workspaces.MarkWorkspaceDeleting(t.Context(), third.ID, now), s.Workspaces.DeleteWorkspace(t.Context(), third.ID)); err != nil {
		t.Fatal(err)
	}
	wantCounted(t, s.Reader(), "after a workspace")

	if differed, err := s.Quotas.RecountUse(t.Context()); err != nil || len(differed) > 0 {
		t.Errorf("recounted %q, %v, want that nothing differed", differed, err)
	}
	db := storetest.Raw(t, path)
	for _, statement := range []string{"UPDATE quota_use SET paused_bytes = paused_bytes - 1, sandboxes = 99 WHERE workspace_id = ''",
		"UPDATE quota_use SET checkpoint_bytes = checkpoint_bytes + 7, memory_bytes = 0 WHERE workspace_id = '" + string(ws) + "'", "DELETE FROM quota_use WHERE workspace_id = '" + string(second.ID) + "'"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	differed, err := s.Quotas.RecountUse(t.Context())
	slices.Sort(differed)
	want := []sandbox.WorkspaceID{"", ws, second.ID}
	slices.Sort(want)
	if err != nil || !slices.Equal(differed, want) {
		t.Errorf("recounted %q, %v, want %q", differed, err, want)
	}
	wantCounted(t, s.Reader(), "after a recount")

	dialect, migrated := goose.DialectSQLite3, migrations.SQLite
	if storetest.Postgres() {
		dialect, migrated = goose.DialectPostgres, migrations.Postgres
	}
	files, err := migrated()
	if err != nil {
		t.Fatal(err)
	}
	m, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.DownTo(t.Context(), 61); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCounted(t, db, "after a migration")
}
