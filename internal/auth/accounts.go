package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// tidyEvery is the interval of the background cleanup, which finishes deletions and removes
	// expired records.
	tidyEvery = time.Minute
	tidyTime  = 10 * time.Minute
	// othersPause is the pause of a deletion that waits for the work of other servers.
	othersPause = time.Second
)

// Users stores users and the identities that providers know them by.
type Users interface {
	// CreateUser records a user and the home workspace that it owns. Errors: Exists, naming name,
	// email or slug.
	CreateUser(ctx context.Context, u account.User, home account.Workspace) error
	// User returns the user with an id. Errors: NotFound.
	User(ctx context.Context, id sandbox.UserID) (account.User, error)
	// UserByLogin returns the user with a name, or with an e-mail address in lower case. Errors:
	// NotFound.
	UserByLogin(ctx context.Context, login string) (account.User, error)
	// Users returns at most limit users, sorted by name, whose names come after the one given.
	Users(ctx context.Context, r page.Request) (page.Page[account.User], error)
	// UpdateUser changes a user. A new password ends all its sessions but c.KeepSession; disabling
	// it ends all of them. Errors: NotFound; Conflict when no administrator would remain.
	UpdateUser(ctx context.Context, id sandbox.UserID, c account.UserUpdate) (account.User, error)
	// DeleteUser removes a user with its tokens, sessions and memberships, and marks the workspaces
	// alone, of which the user is the only member, as MarkWorkspaceDeleting does. Errors: NotFound;
	// Conflict for the last administrator and for the last owner of another workspace.
	DeleteUser(ctx context.Context, id sandbox.UserID, alone []sandbox.WorkspaceID, at time.Time) error
}

// Workspaces stores workspaces.
type Workspaces interface {
	// CreateWorkspace records a workspace and makes its creator the owner. Errors: Exists, naming
	// slug; QuotaExceeded when the creator has already created most workspaces (0: no limit);
	// deleted workspaces do not count.
	CreateWorkspace(ctx context.Context, ws account.Workspace, most int) error
	// Workspace returns a workspace that is not being deleted. Errors: NotFound.
	Workspace(ctx context.Context, id sandbox.WorkspaceID) (account.Workspace, error)
	// Workspaces returns the workspaces of a user, with its roles, sorted by name.
	Workspaces(ctx context.Context, user sandbox.UserID) ([]account.Workspace, error)
	// UpdateWorkspace changes a workspace. Errors: NotFound; Exists, naming slug.
	UpdateWorkspace(ctx context.Context, id sandbox.WorkspaceID, c account.WorkspaceUpdate) (account.Workspace, error)
	// MarkWorkspaceDeleting records that a workspace is being deleted: from then on it is hidden
	// from all its users. Idempotent. Errors: NotFound; Conflict for the first workspace of the
	// installation.
	MarkWorkspaceDeleting(ctx context.Context, id sandbox.WorkspaceID, at time.Time) error
	// DeletingWorkspaces returns the workspaces that are being deleted.
	DeletingWorkspaces(ctx context.Context) ([]sandbox.WorkspaceID, error)
	// DeleteWorkspace removes a workspace that is being deleted once nothing refers to it.
	// Idempotent.
	DeleteWorkspace(ctx context.Context, id sandbox.WorkspaceID) error
}

// Members stores the memberships of workspaces.
type Members interface {
	// Members returns the members of a workspace, the earliest first.
	Members(ctx context.Context, ws sandbox.WorkspaceID) ([]account.Member, error)
	// Member returns a member of a workspace. Errors: NotFound.
	Member(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) (account.Member, error)
	// AddMember makes a user a member. Errors: Exists for a member.
	AddMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role, at time.Time) error
	// SetRole changes the role of a member and withdraws the invitations that the member sent.
	// Errors: NotFound; Conflict when no owner would remain.
	SetRole(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role account.Role) error
	// RemoveMember ends a membership, and with it the invitations that the user sent and the user's
	// tokens for the workspace. Errors: NotFound; Conflict when no owner would remain.
	RemoveMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, at time.Time) error
}

// SignIns stores sessions.
type SignIns interface {
	// CreateSession records a session. When the user has more than 1,000, the least recently
	// refreshed sessions end. Errors: NotFound when the user is gone or disabled.
	CreateSession(ctx context.Context, s account.Session) error
	// RotateSession finds the session whose refresh token is old, replaces its tokens by the tokens
	// of next, and returns the session as it was before. Reusing a refresh token that was already
	// replaced ends the session, because the token must have been copied; account.RefreshGrace is
	// the exception. Errors: NotFound for a token that is unknown, expired or replaced; for a
	// replaced token RotateSession also returns the session that it ended.
	RotateSession(ctx context.Context, old account.TokenHash, next account.Session) (was account.Session, err error)
	// Sessions returns the sessions of a user that have not expired, at most 1,000, the newest
	// first.
	Sessions(ctx context.Context, user sandbox.UserID, now time.Time) ([]account.Session, error)
	// DeleteSession ends a session of a user. Errors: NotFound.
	DeleteSession(ctx context.Context, user sandbox.UserID, id string) error
	// DeleteSessions ends all sessions of a user. Idempotent.
	DeleteSessions(ctx context.Context, user sandbox.UserID) error
	// DeleteExpired removes sessions and invitations that have expired.
	DeleteExpired(ctx context.Context, now time.Time) error
}

// Invitations stores invitations, whose codes work once.
type Invitations interface {
	// CreateInvitation records an invitation. It replaces an earlier invitation of the same address
	// or user to the workspace.
	CreateInvitation(ctx context.Context, i account.Invitation) error
	// Invitations returns the open invitations to a workspace, the newest first.
	Invitations(ctx context.Context, ws sandbox.WorkspaceID, now time.Time) ([]account.Invitation, error)
	// InvitationByHash returns the open invitation whose code has a hash. Errors: NotFound.
	InvitationByHash(ctx context.Context, hash account.TokenHash, now time.Time) (account.Invitation, error)
	// DeleteInvitation withdraws an invitation to a workspace. Errors: NotFound.
	DeleteInvitation(ctx context.Context, ws sandbox.WorkspaceID, id string) error
	// AcceptInvitation consumes an invitation: it creates the user u with its home workspace, or
	// sets the password of the invited user, and makes the user a member. It returns the ID of the
	// user. Errors: NotFound; Exists, naming name.
	AcceptInvitation(ctx context.Context, hash account.TokenHash, u account.User, home account.Workspace) (sandbox.UserID, error)
	// Invited reports whether an e-mail address has an open invitation.
	Invited(ctx context.Context, email string, now time.Time) (bool, error)
	// AcceptInvitationsFor makes a user a member of all workspaces to which its e-mail address is
	// invited.
	AcceptInvitationsFor(ctx context.Context, user sandbox.UserID, email string, at time.Time) error
}

// AccountStore stores what [Accounts] manages, by noun. All fields must be set.
type AccountStore struct {
	Users       Users
	Workspaces  Workspaces
	Members     Members
	SignIns     SignIns
	Invitations Invitations
	Identities  Identities
}

// Emptier deletes what a workspace owns.
type Emptier interface {
	// Empty destroys the sandboxes and snapshots of a workspace, and reports whether it is empty: other servers may have to do a part. Idempotent.
	Empty(ctx context.Context, ws sandbox.WorkspaceID) (bool, error)
}

// Accounts manages users, workspaces with their members, and sign-in. The [Mux] has checked
// permissions before a method is called, except where the method says otherwise. Safe for
// concurrent use.
type Accounts struct {
	store     AccountStore
	auth      *Authenticator
	emptier   Emptier
	log       *slog.Logger
	passwords *passwords
	attempts  *attempts
	tidying   chan struct{} // wakes tidy
	cfg       AccountsConfig
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// AccountsConfig has the limits of users, and a hook for sign-ins.
type AccountsConfig struct {
	// Owner has the shards of the server, of several with the same accounts; nil for all.
	Owner *sandbox.Ownership
	// MaxWorkspaces is how many workspaces a user may create; 0 means no limit. It does not apply
	// to administrators.
	MaxWorkspaces int
	// SignedIn, unless nil, is called after every sign-in, by whatever method. It must return
	// quickly.
	SignedIn func(sandbox.UserID)
}

// NewAccounts returns the accounts in the store. Start must be called before use.
func NewAccounts(cfg AccountsConfig, store AccountStore, a *Authenticator, e Emptier, log *slog.Logger) (*Accounts, error) {
	c := &Accounts{cfg: cfg, store: store, auth: a, emptier: e, log: log, passwords: newPasswords(), tidying: make(chan struct{}, 1), stop: func() {}}
	var err error
	if c.attempts, err = newAttempts(); err != nil {
		return nil, err
	}
	return c, nil
}

// Start begins the background work, which also finishes deletions of workspaces that a previous
// server began.
func (c *Accounts) Start(ctx context.Context) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.done.Go(func() {
		tick := time.NewTicker(tidyEvery)
		defer tick.Stop()
		c.deleteExpired(ctx)
		emptied := map[sandbox.WorkspaceID]bool{} // their rows stay for a time
		for {
			changed := c.deletedElsewhere() // before the look at the store
			var again <-chan time.Time
			if c.finishDeletions(ctx, emptied) {
				again = time.After(othersPause)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.deleteExpired(ctx)
				clear(emptied)
			case <-c.tidying:
			case <-changed:
			case <-again:
			}
		}
	})
}

// deletedElsewhere returns a channel that is closed after another server has begun to delete a workspace; nil if there are no other servers.
func (c *Accounts) deletedElsewhere() <-chan struct{} {
	if c.cfg.Owner.Ranges() == sandbox.AllRanges {
		return nil
	}
	return c.auth.Changed() // the deletion of a workspace begins with the rights of its members
}

// Close ends the background work. The next Start resumes unfinished deletions.
func (c *Accounts) Close() {
	c.stop()
	c.done.Wait()
	c.attempts.close()
}

// failed logs an error of the background work.
func (c *Accounts) failed(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		c.log.Error("background cleanup failed; it will be retried", "step", what, "error", err)
	}
}

// deleteExpired removes expired records.
func (c *Accounts) deleteExpired(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	c.failed(ctx, "forget expired sessions", c.store.SignIns.DeleteExpired(ctx, time.Now()))
}

// finishDeletions goes on with deletions of workspaces, except workspaces that it has emptied, and reports whether one of them waits for the work of
// other servers.
func (c *Accounts) finishDeletions(ctx context.Context, emptied map[sandbox.WorkspaceID]bool) (waits bool) {
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	list, err := c.store.Workspaces.DeletingWorkspaces(ctx)
	c.failed(ctx, "list workspaces to delete", err)
	for _, ws := range list {
		if emptied[ws] {
			continue
		}
		empty, err := c.emptier.Empty(ctx, ws)
		if empty {
			err = c.store.Workspaces.DeleteWorkspace(ctx, ws)
			emptied[ws] = err == nil
		}
		waits = waits || !empty && err == nil
		c.failed(ctx, fmt.Sprintf("delete workspace %s", ws), err)
	}
	return waits && c.cfg.Owner.Primary()
}
