// Package sshkeyrows keeps the SSH keys of users in the database. It has the SQL; package internal/sshkey has the
// rules.
package sshkeyrows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/sshkey"
	"github.com/modbox/modbox/internal/store/database"
)

const columns = "id, user_id, coalesce(workspace_id, ''), name, public_key, fingerprint, created_at, last_used_at, expires_at"

// Rows are the records of the keys in a database. They are safe for concurrent use.
type Rows struct{ db *database.DB }

var _ sshkey.Store = Rows{}

// New returns the rows in a database.
func New(db *database.DB) Rows { return Rows{db} }

// Add records a key and deletes the keys of its user that have expired. Errors: Exists if the key is recorded
// for any user; QuotaExceeded if the user has most keys; NotFound if the user is deleted.
func (r Rows) Add(ctx context.Context, key account.SSHKey, most int) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM ssh_keys WHERE user_id = $1 AND expires_at > 0 AND expires_at <= $2", key.User, database.Nanos(key.CreatedAt)); err != nil {
			return err
		}
		var owner sandbox.UserID
		err := tx.QueryRowContext(ctx, "SELECT user_id FROM ssh_keys WHERE fingerprint = $1", key.Fingerprint).Scan(&owner)
		switch {
		case err == nil && owner == key.User:
			return &sandbox.Error{Code: sandbox.Exists, Field: "public_key", Message: "you have added this key before"}
		case err == nil:
			return &sandbox.Error{Code: sandbox.Exists, Field: "public_key", Message: "another user has added this key; make another with ssh-keygen"}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		var count int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM ssh_keys WHERE user_id = $1", key.User).Scan(&count); err != nil {
			return err
		}
		if count >= most {
			return sandbox.Errorf(sandbox.QuotaExceeded, "you have %d SSH keys, the most that a user may have; delete one first", count)
		}
		n, err := database.Changed(tx.ExecContext(ctx, `INSERT INTO ssh_keys (id, user_id, workspace_id, name, public_key, fingerprint, created_at, expires_at)
			SELECT $1, $2, nullif($3, ''), $4, $5, $6, $7, $8 FROM users WHERE id = $2`,
			key.ID, key.User, key.Workspace, key.Name, key.PublicKey, key.Fingerprint, database.Nanos(key.CreatedAt), database.Nanos(key.ExpiresAt)))
		if err == nil && n == 0 {
			return sandbox.Errorf(sandbox.NotFound, "there is no such user")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("record SSH key %s: %w", key.Fingerprint, err)
	}
	return nil
}

// OfUser returns the keys of a user, the newest first, also keys that have expired.
func (r Rows) OfUser(ctx context.Context, user sandbox.UserID) ([]account.SSHKey, error) {
	list, err := database.Collect(ctx, r.db.Reader(), scan, "SELECT "+columns+" FROM ssh_keys WHERE user_id = $1 ORDER BY created_at DESC, id DESC", user)
	if err != nil {
		return nil, fmt.Errorf("list SSH keys of user %s: %w", user, err)
	}
	return list, nil
}

// ByFingerprint returns the key with a fingerprint, also when it has expired. Errors: NotFound.
func (r Rows) ByFingerprint(ctx context.Context, fingerprint string) (account.SSHKey, error) {
	return scan(r.db.Reader().QueryRowContext(ctx, "SELECT "+columns+" FROM ssh_keys WHERE fingerprint = $1", fingerprint))
}

// ByID returns the key with an id, also when it has expired. Errors: NotFound.
func (r Rows) ByID(ctx context.Context, id string) (account.SSHKey, error) {
	return scan(r.db.Reader().QueryRowContext(ctx, "SELECT "+columns+" FROM ssh_keys WHERE id = $1", id))
}

// Delete deletes a key of a user. Errors: NotFound.
func (r Rows) Delete(ctx context.Context, user sandbox.UserID, id string) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "DELETE FROM ssh_keys WHERE user_id = $1 AND id = $2", user, id))
		if err == nil && n == 0 {
			return noKey()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete SSH key: %w", err)
	}
	return nil
}

// Touch records the last use of a key. It ignores deleted keys.
func (r Rows) Touch(ctx context.Context, id string, when time.Time) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE ssh_keys SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1", database.Nanos(when), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("touch SSH key %s: %w", id, err)
	}
	return nil
}

func noKey() error { return sandbox.Errorf(sandbox.NotFound, "there is no such SSH key") }

func scan(row database.Scanner) (account.SSHKey, error) {
	var k account.SSHKey
	var created, used, expires int64
	err := row.Scan(&k.ID, &k.User, &k.Workspace, &k.Name, &k.PublicKey, &k.Fingerprint, &created, &used, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return account.SSHKey{}, noKey()
	}
	if err != nil {
		return account.SSHKey{}, fmt.Errorf("read SSH key: %w", err)
	}
	k.CreatedAt, k.LastUsedAt, k.ExpiresAt = database.FromNanos(created), database.FromNanos(used), database.FromNanos(expires)
	return k, nil
}
