package accounts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/storetest"
)

func TestSessionEndsWhateverIsRefreshed(t *testing.T) {
	s, _, _, user := openStore(t)
	begun := time.Now().UTC()
	hash := func(n byte) account.TokenHash { return account.TokenHash{n} }
	x := account.Session{
		ID: "s", User: user, Access: hash(1), Refresh: hash(2), AccessExpiresAt: begun.Add(time.Minute),
		RefreshTime: 30 * time.Hour, EndsAt: begun.Add(50 * time.Hour), CreatedAt: begun, RefreshedAt: begun,
	}
	x.RefreshExpiresAt = x.RefreshExpiry(begun)
	if err := s.Sessions.CreateSession(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	refresh := func(n byte, after time.Duration) (account.Session, error) {
		at := begun.Add(after)
		next := account.Session{Access: hash(n + 1), Refresh: hash(n + 2), AccessExpiresAt: at.Add(time.Minute), RefreshedAt: at}
		return s.Sessions.RotateSession(t.Context(), hash(n), next)
	}
	for _, step := range []struct {
		token byte
		after time.Duration
		want  time.Duration // when the next refresh token ends
	}{{2, 10 * time.Hour, 40 * time.Hour}, {4, 39 * time.Hour, 50 * time.Hour}} {
		was, err := refresh(step.token, step.after)
		if err != nil || was.RefreshTime != x.RefreshTime || !was.EndsAt.Equal(x.EndsAt) {
			t.Fatalf("refresh after %v = %+v, %v", step.after, was, err)
		}
		now, err := s.Sessions.SessionByAccess(t.Context(), hash(step.token+1))
		if err != nil || !now.RefreshExpiresAt.Equal(begun.Add(step.want)) {
			t.Errorf("after %v the refresh token works until %v, %v, want %v", step.after, now.RefreshExpiresAt, err, begun.Add(step.want))
		}
	}
	if _, err := refresh(6, 50*time.Hour); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("refresh at the session's end = %v, want NotFound", err)
	}
}

// A session that is refreshed without end fills no disk, and what it used last still ends it.
func TestSpentTokensAreBounded(t *testing.T) {
	s, path, _, user := openStore(t)
	begun := time.Now().UTC()
	x := account.Session{
		ID: "s", User: user, Access: account.TokenHash{1}, Refresh: account.TokenHash{2}, RefreshTime: time.Hour,
		RefreshExpiresAt: begun.Add(time.Hour), CreatedAt: begun, RefreshedAt: begun,
	}
	if err := s.Sessions.CreateSession(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	db := storetest.Raw(t, path)
	if _, err := db.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 10000 UNION ALL SELECT i + 1 FROM n WHERE i < 14000)
		INSERT INTO spent_tokens (hash, session_id) SELECT $1 || i, 's' FROM n`, strings.Repeat("0", 59)); err != nil {
		t.Fatal(err)
	}
	next := account.Session{Access: account.TokenHash{3}, Refresh: account.TokenHash{4}, RefreshedAt: begun}
	if _, err := s.Sessions.RotateSession(t.Context(), x.Refresh, next); err != nil {
		t.Fatal(err)
	}
	var kept int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM spent_tokens").Scan(&kept); err != nil || kept != 3_000 {
		t.Errorf("%d used tokens are remembered, %v, want 3000", kept, err)
	}
	if err := s.Sessions.UseSession(t.Context(), x.ID, next.Access); err != nil {
		t.Fatal(err)
	}
	if was, err := s.Sessions.RotateSession(t.Context(), x.Refresh, next); sandbox.CodeOf(err) != sandbox.NotFound || was.ID != "s" {
		t.Errorf("a second use: %+v, %v", was, err)
	}
	if _, err := s.Sessions.SessionByAccess(t.Context(), next.Access); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the session goes on: %v", err)
	}
}

// The answer to a refresh may be lost; a token that somebody has a copy of still
// ends the session.
func TestRefreshWhoseAnswerIsLost(t *testing.T) {
	hash := func(n byte) account.TokenHash { return account.TokenHash{n} }
	for name, c := range map[string]struct {
		use    bool          // the access token that the first refresh brought
		tokens []byte        // the refresh tokens that are presented; the nth brings n*10
		after  time.Duration // before the second
		ends   bool          // the last one ends the session
	}{
		"again":                  {tokens: []byte{2, 2}},
		"again_and_again":        {tokens: []byte{2, 2, 2, 30}},
		"too_late":               {tokens: []byte{2, 2}, after: account.RefreshGrace + time.Second, ends: true},
		"access_token_used":      {tokens: []byte{2, 2}, use: true, ends: true},
		"refresh_token_used":     {tokens: []byte{2, 10, 2}, ends: true},
		"the_lost_one_turns_up":  {tokens: []byte{2, 2, 10}, ends: true},
		"it_turns_up_after_more": {tokens: []byte{2, 2, 20, 10}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, _, user := openStore(t)
			at := time.Now().UTC()
			x := account.Session{ID: "s", User: user, Access: hash(1), Refresh: hash(2), RefreshTime: time.Hour, RefreshExpiresAt: at.Add(time.Hour), CreatedAt: at, RefreshedAt: at}
			if err := s.Sessions.CreateSession(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			for i, token := range c.tokens {
				n := byte(i+1) * 10
				_, err := s.Sessions.RotateSession(t.Context(), hash(token), account.Session{Access: hash(n + 1), Refresh: hash(n), AccessExpiresAt: at, RefreshedAt: at})
				last := i == len(c.tokens)-1
				if want := last && c.ends; want != (sandbox.CodeOf(err) == sandbox.NotFound) || err != nil && !want {
					t.Fatalf("refresh %d with %d: %v", i+1, token, err)
				}
				if i == 0 && c.use {
					if err := s.Sessions.UseSession(t.Context(), "s", hash(n+1)); err != nil {
						t.Fatal(err)
					}
				}
				at = at.Add(c.after)
				if !last {
					continue
				}
				if _, err := s.Sessions.SessionByAccess(t.Context(), hash(n+1)); (err != nil) != c.ends {
					t.Errorf("afterwards the session is %v", err)
				}
			}
			if err := s.Sessions.UseSession(t.Context(), "s", hash(1)); sandbox.CodeOf(err) != sandbox.NotFound {
				t.Errorf("use of an access token from before: %v", err)
			}
		})
	}
}

// A user who signs in again and again has at most sessionsMax sessions, and ends no session of another user.
func TestSessionsOfAUserAreBounded(t *testing.T) {
	s, path, _, user := openStore(t)
	begun := time.Now().UTC()
	db := storetest.Raw(t, path)
	if _, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
		INSERT INTO sessions (id, user_id, access_hash, access_expires_at, refresh_hash, refresh_expires_at, method, address, created_at, refreshed_at)
		SELECT 'old' || i, $1, $3 || (10000 + i), $2, $4 || (10000 + i), $2, 'password', '', i, i FROM n`,
		string(user), begun.Add(time.Hour).UnixNano(), "a"+strings.Repeat("0", 58), "b"+strings.Repeat("0", 58)); err != nil {
		t.Fatal(err)
	}
	other := account.User{ID: "other", Name: "other", CreatedAt: begun}
	if err := s.Users.CreateUser(t.Context(), other, account.Workspace{ID: "home", Name: "other", Slug: "other", CreatedBy: "other", CreatedAt: begun}); err != nil {
		t.Fatal(err)
	}
	for i, u := range []sandbox.UserID{"other", user} {
		x := account.Session{ID: "new of " + string(u), User: u, Access: account.TokenHash{1, byte(i)}, Refresh: account.TokenHash{2, byte(i)},
			RefreshExpiresAt: begun.Add(time.Hour), CreatedAt: begun, RefreshedAt: begun}
		if err := s.Sessions.CreateSession(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.Sessions.Sessions(t.Context(), user, begun)
	if err != nil || len(list) != 1000 || list[0].ID != "new of "+string(user) || list[999].ID != "old2" {
		t.Errorf("%d sessions, %v, the first %q, the last %q", len(list), err, list[0].ID, list[len(list)-1].ID)
	}
	if list, err := s.Sessions.Sessions(t.Context(), "other", begun); err != nil || len(list) != 1 {
		t.Errorf("sessions of another user: %+v, %v", list, err)
	}
	if list, err := s.Sessions.Sessions(t.Context(), user, begun.Add(2*time.Hour)); err != nil || len(list) != 0 {
		t.Errorf("%d sessions that have expired, %v", len(list), err)
	}
}
