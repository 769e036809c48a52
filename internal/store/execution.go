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
)

const (
	executionColumns = `id, sandbox_id, workspace_id, kind, argv, state, exit_code, error, tty, one_shot, cancel, stdin,
		stdout, stdout_off, stdout_bytes, stdout_truncated, stderr, stderr_off, stderr_bytes, stderr_truncated,
		created_by, created_at, started_at, ended_at, duration, limit_exceeded`
	// executionLive repeats the condition of the index executions_live word for word, so that SQLite uses the index.
	executionLive = "state IN ('queued', 'running')"
)

// CreateExecution records an execution. Errors: QuotaExceeded when limit
// executions of its sandbox, without its main command, have not ended.
func (s *Store) CreateExecution(ctx context.Context, e sandbox.Execution, limit int) error {
	argv, err := json.Marshal(e.Argv)
	if err != nil {
		return err
	}
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var live int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM executions WHERE sandbox_id = $1 AND kind <> 'main' AND "+executionLive, e.Sandbox).Scan(&live); err != nil {
			return err
		}
		if live >= limit {
			return sandbox.Errorf(sandbox.QuotaExceeded, "%d executions of the sandbox have not ended, and more are not allowed at a time", live)
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO executions ("+executionColumns+`) VALUES
			($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)`,
			e.ID, e.Sandbox, e.Workspace, e.Kind, string(argv), e.State, e.ExitCode, e.Error, number(e.TTY), number(e.OneShot), e.Cancel, e.Stdin,
			e.Stdout.ID, number(e.Stdout.Off), e.Stdout.Bytes, number(e.Stdout.Truncated),
			e.Stderr.ID, number(e.Stderr.Off), e.Stderr.Bytes, number(e.Stderr.Truncated),
			e.CreatedBy, nanos(e.CreatedAt), nanos(e.StartedAt), nanos(e.EndedAt), int64(e.Duration), e.LimitExceeded)
		return err
	})
	if err != nil {
		return fmt.Errorf("record execution %s: %w", e.ID, err)
	}
	return nil
}

// UpdateExecution changes the State, ExitCode, LimitExceeded, Error, Cancel, times and output fields of an
// execution that has not ended. It returns the row as written.
//
// Errors: NotFound; Conflict, with nothing written, if the execution has ended.
func (s *Store) UpdateExecution(ctx context.Context, id sandbox.ExecutionID, mutate func(*sandbox.Execution)) (e sandbox.Execution, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if e, err = scanExecution(tx.QueryRowContext(ctx, "SELECT "+executionColumns+" FROM executions WHERE id = $1", id)); err != nil {
			return err
		}
		if e.State.Ended() {
			return sandbox.Errorf(sandbox.Conflict, "the execution has ended")
		}
		mutate(&e)
		res, err := tx.ExecContext(ctx, `UPDATE executions SET state = $1, exit_code = $2, error = $3, cancel = $4,
				stdout_bytes = $5, stdout_truncated = $6, stderr_bytes = $7, stderr_truncated = $8,
				started_at = $9, ended_at = $10, duration = $11, limit_exceeded = $12 WHERE id = $13 AND `+executionLive,
			e.State, e.ExitCode, e.Error, e.Cancel, e.Stdout.Bytes, number(e.Stdout.Truncated), e.Stderr.Bytes, number(e.Stderr.Truncated),
			nanos(e.StartedAt), nanos(e.EndedAt), int64(e.Duration), e.LimitExceeded, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return sandbox.Wrap(sandbox.Conflict, err, "the execution has ended")
		}
		return nil
	})
	if err != nil {
		return sandbox.Execution{}, fmt.Errorf("update execution %s: %w", id, err)
	}
	return e, nil
}

// Execution returns an execution. Errors: NotFound.
func (s *Store) Execution(ctx context.Context, id sandbox.ExecutionID) (sandbox.Execution, error) {
	return scanExecution(s.reader.QueryRowContext(ctx, "SELECT "+executionColumns+" FROM executions WHERE id = $1", id))
}

// Executions returns the executions of a sandbox, of one kind unless that is
// empty, newest first. Errors: Invalid, naming limit or cursor.
func (s *Store) Executions(ctx context.Context, id sandbox.ID, kind sandbox.ExecutionKind, r page.Request) (page.Page[sandbox.Execution], error) {
	var q query
	q.where("sandbox_id = ", id)
	if kind != "" {
		q.where("kind = ", kind)
	}
	list := listing[sandbox.Execution]{
		order: "created_at desc", columns: []string{"created_at", "id"}, descending: true,
		key:  func(e sandbox.Execution) []any { return []any{nanos(e.CreatedAt), string(e.ID)} },
		read: collector(s.reader, scanExecution),
	}
	return list.page(ctx, r, "SELECT "+executionColumns+" FROM executions", q)
}

// LiveExecutions returns all executions that have not ended.
func (s *Store) LiveExecutions(ctx context.Context) ([]sandbox.Execution, error) {
	return s.executions(ctx, executionLive)
}

// EndedExecutions returns at most limit executions that may be deleted: they ended before a
// time, or keep later executions of their sandbox have ended. The oldest end comes first.
func (s *Store) EndedExecutions(ctx context.Context, before time.Time, keep, limit int) ([]sandbox.Execution, error) {
	return s.executions(ctx, `ended_at > 0 AND (ended_at < $1 OR id IN (
			SELECT id FROM (
				SELECT id, row_number() OVER (PARTITION BY sandbox_id ORDER BY ended_at DESC, id DESC) AS place FROM executions WHERE ended_at > 0
			) AS ranked WHERE place > $2))
		ORDER BY ended_at, id LIMIT `+strconv.Itoa(limit), nanos(before), keep)
}

// StreamOwners returns the streams of all executions, with their workspaces.
func (s *Store) StreamOwners(ctx context.Context) (map[sandbox.StreamID]sandbox.WorkspaceID, error) {
	rows, err := s.reader.QueryContext(ctx, "SELECT workspace_id, stdin, stdout, stderr FROM executions")
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
func (s *Store) FinishedOneShots(ctx context.Context) ([]sandbox.ID, error) {
	rows, err := s.reader.QueryContext(ctx, `SELECT sandbox_id FROM executions WHERE one_shot = 1 AND ended_at > 0
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
func (s *Store) DeleteExecution(ctx context.Context, id sandbox.ExecutionID) error {
	err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM executions WHERE id = $1", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget execution %s: %w", id, err)
	}
	return nil
}

// SetEnv replaces the environment of a sandbox that has not ended.
//
// Errors: NotFound.
func (s *Store) SetEnv(ctx context.Context, id sandbox.ID, env map[string]string) error {
	text, err := s.sealEnv(env, string(id))
	if err != nil {
		return fmt.Errorf("set environment of sandbox %s: %w", id, err)
	}
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, "UPDATE sandboxes SET env = $1 WHERE id = $2 AND "+isLive, text, id)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return sandbox.Wrap(sandbox.NotFound, err, "the sandbox has ended")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set environment of sandbox %s: %w", id, err)
	}
	return nil
}

func (s *Store) executions(ctx context.Context, where string, args ...any) ([]sandbox.Execution, error) {
	return collect(ctx, s.reader, scanExecution, "SELECT "+executionColumns+" FROM executions WHERE "+where, args...)
}

func scanExecution(row scanner) (sandbox.Execution, error) {
	var e sandbox.Execution
	var argv string
	var code sql.NullInt64
	var created, started, ended, duration int64
	err := row.Scan(&e.ID, &e.Sandbox, &e.Workspace, &e.Kind, &argv, &e.State, &code, &e.Error, &e.TTY, &e.OneShot, &e.Cancel, &e.Stdin,
		&e.Stdout.ID, &e.Stdout.Off, &e.Stdout.Bytes, &e.Stdout.Truncated, &e.Stderr.ID, &e.Stderr.Off, &e.Stderr.Bytes, &e.Stderr.Truncated,
		&e.CreatedBy, &created, &started, &ended, &duration, &e.LimitExceeded)
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
	e.CreatedAt, e.StartedAt, e.EndedAt = fromNanos(created), fromNanos(started), fromNanos(ended)
	e.Duration = time.Duration(duration)
	return e, nil
}

// number returns the stored form of a bool.
func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
