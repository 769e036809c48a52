package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	executionColumns = `id, sandbox_id, workspace_id, kind, argv, state, exit_code, error, tty, one_shot, cancel, stdin,
		stdout, stdout_off, stdout_bytes, stdout_truncated, stderr, stderr_off, stderr_bytes, stderr_truncated,
		created_by, created_at, started_at, ended_at, duration, limit_exceeded, stored_by`
	// executionLive repeats the condition of the index executions_live word for word, so that SQLite uses the index.
	executionLive = "state IN ('queued', 'running')"
)

// Executions are the commands that outlive their requests.
type Executions struct{ db *database.DB }

// CreateExecution records an execution. Errors: QuotaExceeded when limit
// executions of its sandbox, without its main command, have not ended.
func (s *Executions) CreateExecution(ctx context.Context, e sandbox.Execution, limit int) error {
	argv, err := json.Marshal(e.Argv)
	if err != nil {
		return err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.db.Owner().Check(e.Sandbox); err != nil {
			return err
		}
		var live int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM executions WHERE sandbox_id = $1 AND kind <> 'main' AND "+executionLive, e.Sandbox).Scan(&live); err != nil {
			return err
		}
		if live >= limit {
			return sandbox.Errorf(sandbox.QuotaExceeded, "%d executions of the sandbox have not ended, and more are not allowed at a time", live)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO executions ("+executionColumns+`) VALUES
			($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27)`,
			e.ID, e.Sandbox, e.Workspace, e.Kind, string(argv), e.State, e.ExitCode, e.Error, database.Number(e.TTY), database.Number(e.OneShot), e.Cancel, e.Stdin,
			e.Stdout.ID, database.Number(e.Stdout.Off), e.Stdout.Bytes, database.Number(e.Stdout.Truncated),
			e.Stderr.ID, database.Number(e.Stderr.Off), e.Stderr.Bytes, database.Number(e.Stderr.Truncated),
			e.CreatedBy, database.Nanos(e.CreatedAt), database.Nanos(e.StartedAt), database.Nanos(e.EndedAt), int64(e.Duration), e.LimitExceeded, e.StoredBy)
		return err
	})
	if err != nil {
		return fmt.Errorf("record execution %s: %w", e.ID, err)
	}
	return nil
}

// UpdateExecution replaces prev, the record of an execution that has not ended, by next: its State, ExitCode,
// LimitExceeded, Error, Cancel, times and numbers of bytes.
//
// Errors, with nothing written: NotFound; Ended; Conflict if the record is not prev any more.
func (s *Executions) UpdateExecution(ctx context.Context, prev, next sandbox.Execution) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.db.Owner().Check(prev.Sandbox); err != nil {
			return err
		}
		// Before an execution ends, nothing but its state, its start and its cancel changes.
		n, err := database.Changed(tx.ExecContext(ctx, `UPDATE executions SET state = $1, exit_code = $2, error = $3, cancel = $4,
				stdout_bytes = $5, stdout_truncated = $6, stderr_bytes = $7, stderr_truncated = $8,
				started_at = $9, ended_at = $10, duration = $11, limit_exceeded = $12
			WHERE id = $13 AND state = $14 AND cancel = $15 AND started_at = $16 AND `+executionLive,
			next.State, next.ExitCode, next.Error, next.Cancel, next.Stdout.Bytes, database.Number(next.Stdout.Truncated), next.Stderr.Bytes, database.Number(next.Stderr.Truncated),
			database.Nanos(next.StartedAt), database.Nanos(next.EndedAt), int64(next.Duration), next.LimitExceeded,
			prev.ID, prev.State, prev.Cancel, database.Nanos(prev.StartedAt)))
		if err != nil || n == 1 {
			return err
		}
		now, err := executionByID(ctx, tx, prev.ID)
		switch {
		case err != nil:
			return err
		case now.State.Ended():
			return sandbox.Errorf(sandbox.Ended, "the execution has ended")
		}
		return sandbox.Errorf(sandbox.Conflict, "another request changes the execution at this moment; try again")
	})
	if err != nil {
		return fmt.Errorf("update execution %s: %w", prev.ID, err)
	}
	return nil
}

// Execution returns an execution. Errors: NotFound.
func (s *Executions) Execution(ctx context.Context, id sandbox.ExecutionID) (sandbox.Execution, error) {
	return executionByID(ctx, s.db.Reader(), id)
}

func executionByID(ctx context.Context, q database.Querier, id sandbox.ExecutionID) (sandbox.Execution, error) {
	return scanExecution(q.QueryRowContext(ctx, "SELECT "+executionColumns+" FROM executions WHERE id = $1", id))
}

// Executions returns the executions of a sandbox, of one kind unless that is
// empty, newest first. Errors: Invalid, naming limit or cursor.
func (s *Executions) Executions(ctx context.Context, id sandbox.ID, kind sandbox.ExecutionKind, r page.Request) (page.Page[sandbox.Execution], error) {
	var q database.Query
	q.Where("sandbox_id = ", id)
	if kind != "" {
		q.Where("kind = ", kind)
	}
	list := database.Listing[sandbox.Execution]{
		Order: "created_at desc", Columns: []string{"created_at", "id"}, Descending: true,
		Key:  func(e sandbox.Execution) []any { return []any{database.Nanos(e.CreatedAt), string(e.ID)} },
		Read: database.Collector(s.db.Reader(), scanExecution),
	}
	return list.Page(ctx, r, "SELECT "+executionColumns+" FROM executions", q)
}

// LiveExecutions returns all executions that have not ended.
func (s *Executions) LiveExecutions(ctx context.Context) ([]sandbox.Execution, error) {
	return s.executions(ctx, executionLive)
}

// EndedExecutions returns at most limit executions that may be deleted: they ended before a
// time, or keep later executions of their sandbox have ended. The oldest end comes first.
func (s *Executions) EndedExecutions(ctx context.Context, before time.Time, keep, limit int) ([]sandbox.Execution, error) {
	return s.executions(ctx, `ended_at > 0 AND (ended_at < $1 OR id IN (
			SELECT id FROM (
				SELECT id, row_number() OVER (PARTITION BY sandbox_id ORDER BY ended_at DESC, id DESC) AS place FROM executions WHERE ended_at > 0
			) AS ranked WHERE place > $2))
		ORDER BY ended_at, id LIMIT `+strconv.Itoa(limit), database.Nanos(before), keep)
}

// StreamOwners returns the streams of all executions, with their workspaces.
func (s *Executions) StreamOwners(ctx context.Context) (map[sandbox.StreamID]sandbox.WorkspaceID, error) {
	rows, err := s.db.Reader().QueryContext(ctx, "SELECT workspace_id, stdin, stdout, stderr FROM executions")
	if err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	defer func() { _ = rows.Close() }()
	owners := map[sandbox.StreamID]sandbox.WorkspaceID{}
	for rows.Next() {
		var ws sandbox.WorkspaceID
		var ids [3]sandbox.StreamID
		if err := rows.Scan(&ws, &ids[0], &ids[1], &ids[2]); err != nil {
			return nil, fmt.Errorf("list streams: %w", err)
		}
		for _, id := range ids {
			owners[id] = ws
		}
	}
	return owners, rows.Err()
}

// FinishedOneShots returns the live sandboxes whose one-shot execution has ended.
func (s *Executions) FinishedOneShots(ctx context.Context) ([]sandbox.ID, error) {
	rows, err := s.db.Reader().QueryContext(ctx, `SELECT sandbox_id FROM executions WHERE one_shot = 1 AND ended_at > 0
		AND sandbox_id IN (SELECT id FROM sandboxes WHERE `+isLive+")")
	if err != nil {
		return nil, fmt.Errorf("list finished one-shots: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var ids []sandbox.ID
	for rows.Next() {
		var id sandbox.ID
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("list finished one-shots: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// DeleteExecution deletes the record of an execution. Idempotent.
func (s *Executions) DeleteExecution(ctx context.Context, id sandbox.ExecutionID) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM executions WHERE id = $1", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget execution %s: %w", id, err)
	}
	return nil
}

func (s *Executions) executions(ctx context.Context, where string, args ...any) ([]sandbox.Execution, error) {
	return database.Collect(ctx, s.db.Reader(), scanExecution, "SELECT "+executionColumns+" FROM executions WHERE "+where, args...)
}

func scanExecution(row database.Scanner) (sandbox.Execution, error) {
	var e sandbox.Execution
	var argv string
	var code sql.NullInt64
	var created, started, ended, duration int64
	err := row.Scan(&e.ID, &e.Sandbox, &e.Workspace, &e.Kind, &argv, &e.State, &code, &e.Error, &e.TTY, &e.OneShot, &e.Cancel, &e.Stdin,
		&e.Stdout.ID, &e.Stdout.Off, &e.Stdout.Bytes, &e.Stdout.Truncated, &e.Stderr.ID, &e.Stderr.Off, &e.Stderr.Bytes, &e.Stderr.Truncated,
		&e.CreatedBy, &created, &started, &ended, &duration, &e.LimitExceeded, &e.StoredBy)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Execution{}, sandbox.Errorf(sandbox.NotFound, "there is no such execution")
	}
	if err != nil {
		return sandbox.Execution{}, fmt.Errorf("read execution: %w", err)
	}
	if err := json.NewDecoder(strings.NewReader(argv)).Decode(&e.Argv); err != nil {
		return sandbox.Execution{}, fmt.Errorf("read execution %s: %w", e.ID, err)
	}
	if code.Valid {
		n := int(code.Int64)
		e.ExitCode = &n
	}
	e.CreatedAt, e.StartedAt, e.EndedAt = database.FromNanos(created), database.FromNanos(started), database.FromNanos(ended)
	e.Duration = time.Duration(duration)
	return e, nil
}
