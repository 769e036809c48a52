package operator

import (
	"context"
	"errors"
	"time"

	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/doctor"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
)

// DescribeFirstToken returns the age and the use of the first token for doctor; nil if it does not
// exist, is revoked or has expired.
func DescribeFirstToken(ctx context.Context, cfg config.Config) (_ *doctor.FirstToken, err error) {
	st, err := server.OpenExistingStore(ctx, cfg)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil, nil // no server has run here
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	t, err := server.ReadFirstToken(ctx, cfg.StateDir, st)
	if err != nil || t == nil || !t.RevokedAt.IsZero() || !t.ExpiresAt.IsZero() && time.Now().After(t.ExpiresAt) {
		return nil, err
	}
	found := &doctor.FirstToken{Made: t.CreatedAt, Used: t.LastUsedAt, Expires: t.ExpiresAt}
	for r := (page.Request{Limit: page.MaxSize}); ; {
		users, err := st.Users.Users(ctx, r)
		if err != nil {
			return nil, err
		}
		for _, u := range users.Items {
			if u.Administrator && u.DisabledAt.IsZero() && u.ID != t.User {
				found.Administrators++
			}
		}
		if r.Cursor = users.Next; r.Cursor == "" {
			return found, nil
		}
	}
}
