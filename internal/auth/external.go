package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/sandbox"
)

// Identities maps identities at providers to users.
type Identities interface {
	// UserByIdentity returns the user that a provider identifies by subject. Errors: NotFound.
	UserByIdentity(ctx context.Context, provider, subject string) (account.User, error)
	// LinkIdentity records the user that a provider identifies by subject. Idempotent for the same
	// user.
	LinkIdentity(ctx context.Context, provider, subject string, user sandbox.UserID, at time.Time) error
}

// External is a person that a provider has authenticated.
type External struct {
	Provider string
	Subject  string // the provider's own identifier, which never changes
	Email    string // "" unless the provider has verified it
}

// nameAttempts is how many names are tried when a user is created.
const nameAttempts = 20

// SignInExternal signs in a person that a provider has authenticated; see [Accounts.Recognize].
func (c *Accounts) SignInExternal(ctx context.Context, x External, domains []string, remote string) (Tokens, error) {
	user, err := c.Recognize(ctx, x, domains)
	if err != nil {
		return Tokens{}, err
	}
	address, _ := audit.Client(remote)
	return c.begin(ctx, user, x.Provider, address, ForPage)
}

// SignInRecognized begins a session of a user that the provider has authenticated; see
// [Accounts.Recognize]. Errors: Unauthenticated when the user no longer exists.
func (c *Accounts) SignInRecognized(ctx context.Context, user sandbox.UserID, provider, remote string, use Use) (Tokens, error) {
	address, _ := audit.Client(remote)
	t, err := c.begin(ctx, user, provider, address, use)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return Tokens{}, sandbox.Wrap(sandbox.Unauthenticated, err, "the account is gone or disabled")
	}
	return t, err
}

// Recognize returns the user that a provider has authenticated: the user who signed in with this
// identity before, else the user with that e-mail address, else a new user when the address was
// invited or belongs to one of the domains ("*" is any). With domains given, all other addresses
// are refused.
//
// Errors: Forbidden, with the reason.
func (c *Accounts) Recognize(ctx context.Context, x External, domains []string) (sandbox.UserID, error) {
	x.Email = strings.ToLower(x.Email)
	if x.Email == "" || checkEmail("email", x.Email) != nil {
		return "", sandbox.Errorf(sandbox.Forbidden, "%s has not verified your e-mail address", x.Provider)
	}
	_, domain, _ := strings.Cut(x.Email, "@")
	allowed := slices.ContainsFunc(domains, func(d string) bool { return d == "*" || strings.EqualFold(d, domain) })
	if len(domains) > 0 && !allowed {
		return "", sandbox.Errorf(sandbox.Forbidden, "addresses of %s may not sign in here", domain)
	}
	audit.FromContext(ctx).Detail("provider", x.Provider)
	u, err := c.store.Identities.UserByIdentity(ctx, x.Provider, x.Subject)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		u, err = c.linked(ctx, x, allowed)
	}
	if err != nil {
		return "", err
	}
	audit.FromContext(ctx).Object("user", string(u.ID), u.Name)
	if !u.DisabledAt.IsZero() {
		return "", sandbox.Errorf(sandbox.Forbidden, "your account is disabled")
	}
	if err := c.store.Invitations.AcceptInvitationsFor(ctx, u.ID, x.Email, time.Now().UTC()); err != nil {
		return "", fmt.Errorf("accept invitations of %s: %w", u.ID, err)
	}
	c.auth.forget()
	return u.ID, nil
}

// linked finds or creates the user for an identity that signs in for the first time, and links the
// two.
func (c *Accounts) linked(ctx context.Context, x External, allowed bool) (account.User, error) {
	u, err := c.store.Users.UserByLogin(ctx, x.Email)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		invited, err := c.store.Invitations.Invited(ctx, x.Email, time.Now())
		if err != nil {
			return account.User{}, fmt.Errorf("look up invitations: %w", err)
		}
		if !invited && !allowed {
			return account.User{}, sandbox.Errorf(sandbox.Forbidden, "there is no account for %s; ask to be invited", x.Email)
		}
		if u, err = c.named(ctx, x.Email); err != nil {
			return account.User{}, err
		}
	} else if err != nil {
		return account.User{}, fmt.Errorf("look up user: %w", err)
	}
	if err := c.store.Identities.LinkIdentity(ctx, x.Provider, x.Subject, u.ID, time.Now().UTC()); err != nil {
		return account.User{}, fmt.Errorf("link user %s to %s: %w", u.ID, x.Provider, err)
	}
	return u, nil
}

// named creates a user for an address, named after its local part.
func (c *Accounts) named(ctx context.Context, email string) (account.User, error) {
	local, _, _ := strings.Cut(email, "@")
	base := sandbox.Slug(local)
	if base == "" {
		base = "user"
	}
	name := base
	for i := 2; ; i++ {
		u, home, err := c.newUser(ctx, NewUser{Name: name, Email: email}, "")
		if err == nil {
			err = c.store.Users.CreateUser(ctx, u, home)
		}
		var taken *sandbox.Error
		if errors.As(err, &taken) && taken.Code == sandbox.Exists && taken.Field == "name" && i < nameAttempts {
			name = fmt.Sprintf("%s%d", base, i)
			continue
		}
		return u, err
	}
}
