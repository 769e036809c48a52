package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

const (
	// isStored repeats the condition of the indexes executions_stored word for word.
	isStored = "stored_by <> ''"
	// isThere leaves out executions without output.
	isThere = isStored + " AND stored_by <> '" + sandbox.NothingStored + "'"
)

// Outputs returns the records of where the output of ended executions is stored.
func (s *Executions) Outputs() *Outputs { return &Outputs{s} }

// Outputs are the records of where the output of ended executions is stored.
type Outputs struct{ executions *Executions }

// Unstored returns at most limit executions in the sandboxes of the owner of the database that ended at a time or later and whose output is not in the
// object store. The oldest end comes first.
func (o *Outputs) Unstored(ctx context.Context, since time.Time, limit int) ([]sandbox.Execution, error) {
	own, args := "", []any{database.Nanos(since)}
	if ranges := o.executions.db.Owner().Ranges(); ranges != sandbox.AllRanges {
		own, args = " AND $2 LIKE '%' || substr(sandbox_id, 35, 1) || '%'", append(args, ranges.Digits())
	}
	return o.executions.executions(ctx, "ended_at > 0 AND ended_at >= $1 AND stored_by = ''"+own+" ORDER BY ended_at, id LIMIT "+strconv.Itoa(limit), args...)
}

// Foreign returns at most limit executions whose output another installation than by has stored, those after an id, in the order of the ids.
func (o *Outputs) Foreign(ctx context.Context, by string, after sandbox.ExecutionID, limit int) ([]sandbox.Execution, error) {
	return o.executions.executions(ctx, isThere+" AND stored_by <> $1 AND id > $2 ORDER BY id LIMIT "+strconv.Itoa(limit), by, after)
}

// Store records the installation that has stored the output of an execution. It reports whether there is such an execution.
func (o *Outputs) Store(ctx context.Context, id sandbox.ExecutionID, by string) (found bool, err error) {
	err = o.executions.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "UPDATE executions SET stored_by = $1 WHERE id = $2", by, id))
		found = n == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record the stored output of execution %s: %w", id, err)
	}
	return found, nil
}

// storedColumns are the columns of an [sandbox.StoredStream], of each output.
const storedColumns = "workspace_id, stored_by, stdout, stdout_bytes, stdout_truncated, stderr, stderr_bytes, stderr_truncated"

// Stored returns a stored stream. Errors: NotFound.
func (o *Outputs) Stored(ctx context.Context, id sandbox.StreamID) (sandbox.StoredStream, error) {
	both, err := scanStored(o.executions.db.Reader().QueryRowContext(ctx, "SELECT "+storedColumns+" FROM executions WHERE "+isThere+" AND (stdout = $1 OR stderr = $1)", id))
	for _, st := range both {
		if err == nil && st.ID == id {
			return st, nil
		}
	}
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		err = sandbox.Errorf(sandbox.NotFound, "there is no such stream")
	}
	return sandbox.StoredStream{}, err
}

// All returns all stored streams. A stream that is both outputs of its execution is there twice.
func (o *Outputs) All(ctx context.Context) ([]sandbox.StoredStream, error) {
	list, err := database.Collect(ctx, o.executions.db.Reader(), scanStored, "SELECT "+storedColumns+" FROM executions WHERE "+isThere)
	if err != nil {
		return nil, fmt.Errorf("list stored output: %w", err)
	}
	var all []sandbox.StoredStream
	for _, both := range list {
		all = append(all, both[:]...)
	}
	return all, nil
}

// Owners returns the streams of all executions, with their workspaces.
func (o *Outputs) Owners(ctx context.Context) (map[sandbox.StreamID]sandbox.WorkspaceID, error) {
	return o.executions.StreamOwners(ctx)
}

func scanStored(row database.Scanner) (both [2]sandbox.StoredStream, err error) {
	a, b := &both[0], &both[1]
	err = row.Scan(&a.Workspace, &a.By, &a.ID, &a.Bytes, &a.Truncated, &b.ID, &b.Bytes, &b.Truncated)
	b.Workspace, b.By = a.Workspace, a.By
	return both, err
}
