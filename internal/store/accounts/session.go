package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// spentMax is the number of used refresh tokens that a session remembers: a month of them,
// if a client refreshes every 15 minutes. One transaction removes them with the session and
// delays other writes meanwhile, so they must be few.
const spentMax = 3_000

// sessionsMax is the most sessions of a user; a further session ends the session whose last
// refresh is the oldest.
const sessionsMax = 1000

const (
	sessionColumns = `s.id, s.user_id, u.home, s.access_hash, s.access_expires_at, s.refresh_hash, s.refresh_expires_at,
		s.refresh_time, s.ends_at, s.method, s.address, s.created_at, s.refreshed_at, s.used`
	sessionsOfEnabled = " FROM sessions s JOIN users u ON u.id = s.user_id AND u.disabled_at = 0 "
)

// Sessions are the sessions of users.
type Sessions struct{ db *database.DB }

// NewSessions returns the rows in a database.
func NewSessions(db *database.DB) *Sessions { return &Sessions{db} }

// CreateSession records a sign-in. Beyond 1000 sessions of the user it ends the sessions
// whose last refresh is the oldest. Errors: NotFound if the user is deleted or disabled.
func (s *Sessions) CreateSession(ctx context.Context, x account.Session) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, `INSERT INTO sessions (id, user_id, access_hash, access_expires_at, refresh_hash, refresh_expires_at,
			refresh_time, ends_at, method, address, created_at, refreshed_at, used)
			SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, 0 FROM users WHERE id = $2 AND disabled_at = 0`,
			x.ID, x.User, database.Hex(x.Access), database.Nanos(x.AccessExpiresAt), database.Hex(x.Refresh), database.Nanos(x.RefreshExpiresAt),
			int64(x.RefreshTime), database.Nanos(x.EndsAt), x.Method, x.Address, database.Nanos(x.CreatedAt)))
		if err == nil && n == 0 {
			return noUser()
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id IN
				(SELECT id FROM sessions WHERE user_id = $1 ORDER BY refreshed_at DESC, id DESC LIMIT $3 OFFSET $2)`, x.User, sessionsMax, math.MaxInt32)
		}
		return err
	})
}

// Sessions returns the sessions of a user that have not expired, the newest first: at most 1000.
func (s *Sessions) Sessions(ctx context.Context, user sandbox.UserID, now time.Time) ([]account.Session, error) {
	list, err := database.Collect(ctx, s.db.Reader(), scanSession, "SELECT "+sessionColumns+sessionsOfEnabled+
		"WHERE s.user_id = $1 AND s.refresh_expires_at > $2 ORDER BY s.created_at DESC, s.id DESC LIMIT $3", user, database.Nanos(now), sessionsMax)
	if err != nil {
		return nil, fmt.Errorf("list sessions of user %s: %w", user, err)
	}
	return list, nil
}

// SessionByAccess returns the session with that access token, also when it has
// expired, unless its user is disabled. Errors: NotFound.
func (s *Sessions) SessionByAccess(ctx context.Context, hash account.TokenHash) (account.Session, error) {
	return scanSession(s.db.Reader().QueryRowContext(ctx, "SELECT "+sessionColumns+sessionsOfEnabled+"WHERE s.access_hash = $1", database.Hex(hash)))
}

// UseSession records a use of the session's access token. Errors: NotFound if the session
// has another access token by now.
func (s *Sessions) UseSession(ctx context.Context, id string, access account.TokenHash) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "UPDATE sessions SET used = 1 WHERE id = $1 AND access_hash = $2", id, database.Hex(access)))
		if err == nil && n == 0 {
			return noSession()
		}
		return err
	})
}

func noSession() error { return sandbox.Errorf(sandbox.NotFound, "there is no such session") }

// RotateSession gives the session with the refresh token old the tokens of next,
// of which the second works for the session's RefreshTime, and returns the session as it
// was before. A refresh token that was used before ends its session, because somebody has a
// copy of it. The exception is the token before the current one, for
// [account.RefreshGrace] and until a client uses one of the tokens that replaced it.
//
// Errors: NotFound for a token that is unknown, expired or was used before; in the last
// case RotateSession also returns the session that ended.
func (s *Sessions) RotateSession(ctx context.Context, old account.TokenHash, next account.Session) (was account.Session, err error) {
	var outcome error // an error that is to be committed
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var err error
		was, err = scanSession(tx.QueryRowContext(ctx, "SELECT "+sessionColumns+sessionsOfEnabled+"WHERE s.refresh_hash = $1", database.Hex(old)))
		if sandbox.CodeOf(err) == sandbox.NotFound {
			var again bool
			if was, again, err = spentSession(ctx, tx, old, next.RefreshedAt); err == nil && !again {
				outcome = noSession()
				_, err = tx.ExecContext(ctx, "DELETE FROM sessions WHERE id = $1", was.ID)
				return err
			}
		}
		if err != nil {
			return err
		}
		if !next.RefreshedAt.Before(was.RefreshExpiresAt) {
			return noSession()
		}
		if err := spend(ctx, tx, was, old); err != nil {
			return err
		}
		expires := was.RefreshExpiry(next.RefreshedAt)
		_, err = tx.ExecContext(ctx, `UPDATE sessions SET access_hash = $2, access_expires_at = $3, refresh_hash = $4, refresh_expires_at = $5,
			refreshed_at = $6, used = 0 WHERE id = $1`, was.ID, database.Hex(next.Access), database.Nanos(next.AccessExpiresAt), database.Hex(next.Refresh), database.Nanos(expires), database.Nanos(next.RefreshedAt))
		return err
	})
	if err != nil {
		return was, err
	}
	return was, outcome
}

// spentSession returns the session of a used refresh token, and whether the token works
// once more: it does if it is the token before the current one and the answer to its use
// seems to be lost. Errors: NotFound.
func spentSession(ctx context.Context, tx *sql.Tx, old account.TokenHash, now time.Time) (was account.Session, again bool, err error) {
	was, err = scanSession(tx.QueryRowContext(ctx, "SELECT "+sessionColumns+sessionsOfEnabled+`WHERE s.id =
		(SELECT session_id FROM spent_tokens WHERE hash = $1)`, database.Hex(old)))
	if err != nil || was.Used || now.Sub(was.RefreshedAt) > account.RefreshGrace {
		return was, false, err
	}
	var newest string
	err = tx.QueryRowContext(ctx, "SELECT hash FROM spent_tokens WHERE session_id = $1 ORDER BY rowid DESC LIMIT 1", was.ID).Scan(&newest)
	return was, newest == database.Hex(old), err
}

// spend records the session's refresh token as used, and then the presented token, which
// may be the token before it, as the most recently used.
func spend(ctx context.Context, tx *sql.Tx, was account.Session, presented account.TokenHash) error {
	for _, hash := range []account.TokenHash{was.Refresh, presented} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM spent_tokens WHERE hash = $1", database.Hex(hash)); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO spent_tokens (hash, session_id) VALUES ($1, $2)", database.Hex(hash), was.ID); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM spent_tokens WHERE session_id = $1 AND rowid <=
		(SELECT rowid FROM spent_tokens WHERE session_id = $1 ORDER BY rowid DESC LIMIT 1 OFFSET $2)`, was.ID, spentMax)
	return err
}

// DeleteSession ends a session of a user. Errors: NotFound when the user has no such session.
func (s *Sessions) DeleteSession(ctx context.Context, user sandbox.UserID, id string) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		n, err := database.Changed(tx.ExecContext(ctx, "DELETE FROM sessions WHERE id = $1 AND user_id = $2", id, user))
		if err == nil && n == 0 {
			return noSession()
		}
		return err
	})
}

// DeleteSessions ends all sessions of a user. Idempotent.
func (s *Sessions) DeleteSessions(ctx context.Context, user sandbox.UserID) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE user_id = $1", user)
		return err
	})
}

// DeleteExpired deletes expired sessions and invitations.
func (s *Sessions) DeleteExpired(ctx context.Context, now time.Time) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM sessions WHERE refresh_expires_at < $1", database.Nanos(now))
		if err == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM invitations WHERE expires_at < $1", database.Nanos(now))
		}
		return err
	})
}

func scanSession(row database.Scanner) (account.Session, error) {
	var x account.Session
	var access, refresh string
	var accessExpires, refreshExpires, refreshTime, ends, created, refreshed int64
	err := row.Scan(&x.ID, &x.User, &x.Home, &access, &accessExpires, &refresh, &refreshExpires, &refreshTime, &ends, &x.Method, &x.Address, &created, &refreshed, &x.Used)
	if errors.Is(err, sql.ErrNoRows) {
		return account.Session{}, noSession()
	}
	if err == nil {
		x.Access, err = database.FromHex(access)
	}
	if err == nil {
		x.Refresh, err = database.FromHex(refresh)
	}
	if err != nil {
		return account.Session{}, fmt.Errorf("read session: %w", err)
	}
	x.AccessExpiresAt, x.RefreshExpiresAt = database.FromNanos(accessExpires), database.FromNanos(refreshExpires)
	x.RefreshTime, x.EndsAt = time.Duration(refreshTime), database.FromNanos(ends)
	x.CreatedAt, x.RefreshedAt = database.FromNanos(created), database.FromNanos(refreshed)
	return x, nil
}
