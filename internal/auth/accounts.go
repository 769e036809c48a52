package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// tidyEvery is how often what was begun is finished and what expired is forgotten.
	tidyEvery = time.Minute
	tidyTime  = 10 * time.Minute
)

// Users keeps users, and whom providers know them as.
type Users interface {
	// CreateUser records a user and the home workspace that it owns. Errors: Exists, naming name,
	// email or slug.
	CreateUser(ctx context.Context, u sandbox.User, home sandbox.Workspace) error
	// User returns the user with an id. Errors: NotFound.
	User(ctx context.Context, id sandbox.UserID) (sandbox.User, error)
	// UserByLogin returns the user with a name, or with an e-mail address in lower case. Errors:
	// NotFound.
	UserByLogin(ctx context.Context, login string) (sandbox.User, error)
	// Users returns at most limit users, sorted by name, whose names come after the one given.
	Users(ctx context.Context, r page.Request) (page.Page[sandbox.User], error)
	// UpdateUser changes a user. A new password ends all its sessions but c.KeepSession; disabling
	// it ends all of them. Errors: NotFound; Conflict when no administrator would remain.
	UpdateUser(ctx context.Context, id sandbox.UserID, c sandbox.UserUpdate) (sandbox.User, error)
	// DeleteUser removes a user with its tokens, sessions and memberships, and marks the
	// workspaces in alone as MarkWorkspaceDeleting does. Errors: NotFound; Conflict for the last
	// administrator and for the last owner of another workspace.
	DeleteUser(ctx context.Context, id sandbox.UserID, alone []sandbox.WorkspaceID, at time.Time) error
}

// Workspaces keeps workspaces.
type Workspaces interface {
	// CreateWorkspace records a workspace whose maker is its owner. Errors: Exists, naming slug;
	// QuotaExceeded when the maker has made most workspaces (0: no limit); a deleted workspace
	// does not count.
	CreateWorkspace(ctx context.Context, ws sandbox.Workspace, most int) error
	// Workspace returns a workspace that is not being deleted. Errors: NotFound.
	Workspace(ctx context.Context, id sandbox.WorkspaceID) (sandbox.Workspace, error)
	// Workspaces returns the workspaces of a user, with its roles, sorted by name.
	Workspaces(ctx context.Context, user sandbox.UserID) ([]sandbox.Workspace, error)
	// UpdateWorkspace changes a workspace. Errors: NotFound; Exists, naming slug.
	UpdateWorkspace(ctx context.Context, id sandbox.WorkspaceID, c sandbox.WorkspaceUpdate) (sandbox.Workspace, error)
	// MarkWorkspaceDeleting records that a workspace is being deleted: from then on no user has
	// it. Idempotent. Errors: NotFound; Conflict for the first workspace of the installation.
	MarkWorkspaceDeleting(ctx context.Context, id sandbox.WorkspaceID, at time.Time) error
	// DeletingWorkspaces returns the workspaces that are being deleted.
	DeletingWorkspaces(ctx context.Context) ([]sandbox.WorkspaceID, error)
	// DeleteWorkspace removes a workspace that is being deleted once nothing refers to it.
	// Idempotent.
	DeleteWorkspace(ctx context.Context, id sandbox.WorkspaceID) error
}

// Members keeps who is in which workspace.
type Members interface {
	// Members returns the members of a workspace, the earliest first.
	Members(ctx context.Context, ws sandbox.WorkspaceID) ([]sandbox.Member, error)
	// Member returns a member of a workspace. Errors: NotFound.
	Member(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) (sandbox.Member, error)
	// AddMember makes a user a member. Errors: Exists for a member.
	AddMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role sandbox.Role, at time.Time) error
	// SetRole changes the role of a member and ends the invitations that it made. Errors:
	// NotFound; Conflict when no owner would remain.
	SetRole(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role sandbox.Role) error
	// RemoveMember ends a membership, the invitations that the user made and its tokens for the
	// workspace. Errors: NotFound; Conflict when no owner would remain.
	RemoveMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, at time.Time) error
}

// SignIns keeps sessions.
type SignIns interface {
	// CreateSession records a session. When the user has more than 1,000, the sessions whose
	// refresh is the longest ago end. Errors: NotFound when the user is gone or disabled.
	CreateSession(ctx context.Context, s sandbox.Session) error
	// RotateSession replaces the tokens of the session whose refresh token is old by the tokens of
	// next, and returns the session as it was. A refresh token that was replaced before ends its
	// session, because somebody has a copy; sandbox.RefreshGrace is the exception. Errors:
	// NotFound for a token that is unknown, expired or replaced; in the last case RotateSession
	// also returns the session that ended.
	RotateSession(ctx context.Context, old sandbox.TokenHash, next sandbox.Session) (was sandbox.Session, err error)
	// Sessions returns the sessions of a user that have not expired, at most 1,000, the newest
	// first.
	Sessions(ctx context.Context, user sandbox.UserID, now time.Time) ([]sandbox.Session, error)
	// DeleteSession ends a session of a user. Errors: NotFound.
	DeleteSession(ctx context.Context, user sandbox.UserID, id string) error
	// DeleteSessions ends all sessions of a user. Idempotent.
	DeleteSessions(ctx context.Context, user sandbox.UserID) error
	// DeleteExpired removes sessions and invitations that have expired.
	DeleteExpired(ctx context.Context, now time.Time) error
}

// Invitations keeps one-time codes.
type Invitations interface {
	// CreateInvitation records an invitation. It ends an earlier invitation of the same address,
	// or the same user, to the workspace.
	CreateInvitation(ctx context.Context, i sandbox.Invitation) error
	// Invitations returns the open invitations to a workspace, the newest first.
	Invitations(ctx context.Context, ws sandbox.WorkspaceID, now time.Time) ([]sandbox.Invitation, error)
	// InvitationByHash returns the open invitation whose code has a hash. Errors: NotFound.
	InvitationByHash(ctx context.Context, hash sandbox.TokenHash, now time.Time) (sandbox.Invitation, error)
	// DeleteInvitation withdraws an invitation to a workspace. Errors: NotFound.
	DeleteInvitation(ctx context.Context, ws sandbox.WorkspaceID, id string) error
	// AcceptInvitation uses up an invitation: it creates the user u with its home workspace, or
	// sets the password of the invited user, and makes the user a member. It returns the id of the
	// user. Errors: NotFound; Exists, naming name.
	AcceptInvitation(ctx context.Context, hash sandbox.TokenHash, u sandbox.User, home sandbox.Workspace) (sandbox.UserID, error)
}

// AccountStore stores what [Accounts] manages.
type AccountStore interface {
	Users
	Workspaces
	Members
	SignIns
	Invitations
	Identities
}

// Emptier ends what a workspace owns.
type Emptier interface {
	// Empty destroys the sandboxes and snapshots of a workspace. Idempotent.
	Empty(ctx context.Context, ws sandbox.WorkspaceID) error
}

// Accounts is users, workspaces with their members, and how people sign in. What
// a caller may do was decided by the [Mux] before, except where a method says
// otherwise. Safe for concurrent use.
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

// AccountsConfig are limits of users, and who wants to know of them.
type AccountsConfig struct {
	// MaxWorkspaces is how many workspaces a user who is no administrator may have
	// made; 0 means no limit.
	MaxWorkspaces int
	// SignedIn, unless nil, is told of everybody who has signed in, in whatever way;
	// it must return soon.
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

// Start begins the background work: it finishes the deletion of workspaces,
// also those of the server that ran before.
func (c *Accounts) Start(ctx context.Context) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.done.Go(func() {
		tick := time.NewTicker(tidyEvery)
		defer tick.Stop()
		for {
			c.tidy(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			case <-c.tidying:
			}
		}
	})
}

// Close ends the background work. What it was at is finished by the next Start.
func (c *Accounts) Close() {
	c.stop()
	c.done.Wait()
	c.attempts.close()
}

// tidy forgets what expired and finishes deletions.
func (c *Accounts) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	failed := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			c.log.Error("it is tried again", "what", what, "error", err)
		}
	}
	failed("forget expired sessions", c.store.DeleteExpired(ctx, time.Now()))
	list, err := c.store.DeletingWorkspaces(ctx)
	failed("list workspaces to delete", err)
	for _, ws := range list {
		failed(fmt.Sprintf("delete workspace %s", ws), c.finishDeleting(ctx, ws))
	}
}

func (c *Accounts) finishDeleting(ctx context.Context, ws sandbox.WorkspaceID) error {
	if err := c.emptier.Empty(ctx, ws); err != nil {
		return err
	}
	return c.store.DeleteWorkspace(ctx, ws)
}
