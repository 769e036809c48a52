package auth

import (
	"context"
	"fmt"
	"net/mail"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

var userForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`) })

func checkUserName(field, name string) error {
	if !userForm().MatchString(name) {
		return sandbox.InvalidField(field, "must be 1 to 63 of a-z, 0-9, dot, - and _, beginning with a letter or digit")
	}
	return nil
}

func checkEmail(field, email string) error {
	a, err := mail.ParseAddress(email)
	if err != nil || a.Address != email || len(email) > emailMax {
		return sandbox.InvalidField(field, "must be an e-mail address such as ada@example.com")
	}
	return nil
}

// NewUser describes a user to create.
type NewUser struct {
	Name, Email   string
	Password      string // "" when the user gets a code to choose one
	Administrator bool
}

// CreateUser creates a user with a home workspace. Without a password it returns a code with which
// the user chooses one. Errors: Invalid; Exists, naming the field.
func (c *Accounts) CreateUser(ctx context.Context, id Identity, n NewUser) (account.User, string, error) {
	u, home, err := c.newUser(ctx, n, id.group())
	if err != nil {
		return account.User{}, "", err
	}
	if err := c.store.Users.CreateUser(ctx, u, home); err != nil {
		return account.User{}, "", err
	}
	audit.FromContext(ctx).Made("user", string(u.ID), u.Name)
	if n.Password != "" {
		return u, "", nil
	}
	code, err := c.ResetPassword(ctx, id, u.ID)
	return u, code, err
}

// newUser builds the records of a user and its home, and hashes the password in the queue of the
// client's address group.
func (c *Accounts) newUser(ctx context.Context, n NewUser, group string) (account.User, account.Workspace, error) {
	none := func(err error) (account.User, account.Workspace, error) {
		return account.User{}, account.Workspace{}, err
	}
	if err := checkUserName("name", n.Name); err != nil {
		return none(err)
	}
	n.Email = strings.ToLower(n.Email)
	if n.Email != "" {
		if err := checkEmail("email", n.Email); err != nil {
			return none(err)
		}
	}
	now := time.Now().UTC()
	u := account.User{
		ID: sandbox.UserID(uuid.Must(uuid.NewV7()).String()), Name: n.Name, Email: n.Email, Administrator: n.Administrator,
		CreatedAt: now, UpdatedAt: now,
	}
	if n.Password != "" {
		if err := checkPassword("password", n.Password); err != nil {
			return none(err)
		}
		var err error
		if u.Password, err = c.passwords.hash(ctx, group, n.Password); err != nil {
			return none(fmt.Errorf("hash password: %w", err))
		}
	}
	home := newWorkspace(u.ID, n.Name, "")
	u.Home = home.ID
	return u, home, nil
}

// ResetPassword returns a code with which the user chooses a new password; the old password works
// until then. Errors: NotFound.
func (c *Accounts) ResetPassword(ctx context.Context, id Identity, user sandbox.UserID) (string, error) {
	if _, err := c.store.Users.User(ctx, user); err != nil {
		return "", err
	}
	_, code, err := c.invite(ctx, id, account.Invitation{User: user})
	return code, err
}

// Accept consumes the code of an invitation and signs in its user: a new user of that name, or an
// existing user whose password it sets; then name is ignored.
//
// Errors: Invalid; Exists, naming name; Unauthenticated for a code that is unknown, expired or
// used; QuotaExceeded instead after too many wrong codes from the address.
func (c *Accounts) Accept(ctx context.Context, code, name, password, remote string, use Use) (Tokens, error) {
	wrong := sandbox.Errorf(sandbox.Unauthenticated, "the invitation is unknown, expired or was used")
	address, group := audit.Client(remote)
	if !formed(code, prefixInvitation) {
		return Tokens{}, wrong
	}
	if err := checkPassword("password", password); err != nil {
		return Tokens{}, err
	}
	var i account.Invitation
	err := c.attempts.addresses.lookUp(ctx, group, func() (err error) {
		i, err = c.store.Invitations.InvitationByHash(ctx, Hash(code), time.Now())
		return err
	})
	if err == nil {
		if i.User != "" {
			name = "x" // only new users get the name, so that any valid name will do
		}
		var u account.User
		var home account.Workspace
		if u, home, err = c.newUser(ctx, NewUser{Name: name, Password: password}, group); err != nil {
			return Tokens{}, err
		}
		u.ID, err = c.store.Invitations.AcceptInvitation(ctx, i.Hash, u, home)
		if err == nil {
			c.auth.forget()
			return c.begin(ctx, u.ID, "invitation", address, use)
		}
	}
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return Tokens{}, wrong
	}
	return Tokens{}, err
}

// SetPassword sets the password of the identity's user; current must be the present password if
// there is one. All sessions of the user end but the identity's own; API tokens keep working.
// Errors: Invalid; Forbidden when current is wrong; QuotaExceeded after too many wrong passwords; Unavailable if another server
// checks passwords.
func (c *Accounts) SetPassword(ctx context.Context, id Identity, current, password string) error {
	if err := checkPassword("password", password); err != nil {
		return err
	}
	u, err := c.store.Users.User(ctx, id.User)
	if err != nil {
		return err
	}
	if u.Password != "" {
		if err := c.cfg.Owner.CheckPrimary(); err != nil { // the attempts of all servers are limited together
			return err
		}
		succeeded, err := c.attempts.begin(ctx, u.Name, id.group())
		if err != nil {
			return err
		}
		ok, err := c.passwords.matches(ctx, id.group(), u.Password, current)
		if err != nil {
			return fmt.Errorf("check password of user %s: %w", u.ID, err)
		}
		if !ok {
			return &sandbox.Error{Code: sandbox.Forbidden, Field: "current_password", Message: "is not the password"}
		}
		succeeded()
	}
	hash, err := c.passwords.hash(ctx, id.group(), password)
	if err != nil {
		return fmt.Errorf("hash password: %w", err)
	}
	_, err = c.UpdateUser(ctx, id.User, account.UserUpdate{Password: &hash, KeepSession: id.Session})
	return err
}

// Users returns a page of the users of the installation, by name. Errors: Invalid, naming limit or cursor.
func (c *Accounts) Users(ctx context.Context, r page.Request) (page.Page[account.User], error) {
	return c.store.Users.Users(ctx, r)
}

// FindUser returns the user with that id, name or e-mail address. Errors: NotFound.
func (c *Accounts) FindUser(ctx context.Context, ref string) (account.User, error) {
	u, err := c.store.Users.User(ctx, sandbox.UserID(ref))
	if sandbox.CodeOf(err) == sandbox.NotFound {
		u, err = c.store.Users.UserByLogin(ctx, strings.ToLower(ref))
	}
	if err == nil {
		audit.FromContext(ctx).Object("user", string(u.ID), u.Name)
	}
	return u, err
}

// UpdateUser changes a user. A disabled user can neither sign in nor use tokens; its sandboxes keep
// running. Errors: NotFound; Conflict when no administrator would remain.
func (c *Accounts) UpdateUser(ctx context.Context, user sandbox.UserID, u account.UserUpdate) (account.User, error) {
	e := audit.FromContext(ctx)
	if u.Administrator != nil {
		e.Detail("administrator", strconv.FormatBool(*u.Administrator))
	}
	if u.Disabled != nil {
		e.Detail("disabled", strconv.FormatBool(*u.Disabled))
	}
	u.At = time.Now().UTC()
	updated, err := c.store.Users.UpdateUser(ctx, user, u)
	c.auth.forget()
	return updated, err
}

// DeleteUser deletes a user with its tokens and sessions, and the workspaces of which it is the
// only member. Errors: NotFound; Conflict when it is the last administrator, or the last owner of a
// workspace that has other members.
func (c *Accounts) DeleteUser(ctx context.Context, user sandbox.UserID) error {
	workspaces, err := c.store.Workspaces.Workspaces(ctx, user)
	if err != nil {
		return err
	}
	var alone []sandbox.WorkspaceID
	for _, ws := range workspaces {
		members, err := c.store.Members.Members(ctx, ws.ID)
		if err != nil {
			return err
		}
		if len(members) == 1 {
			alone = append(alone, ws.ID)
		}
	}
	if err := c.store.Users.DeleteUser(ctx, user, alone, time.Now().UTC()); err != nil {
		return err
	}
	c.auth.forget()
	select {
	case c.tidying <- struct{}{}:
	default:
	}
	return nil
}
