package auth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// tidyEvery is how often what was begun is finished and what expired is forgotten.
	tidyEvery = time.Minute
	tidyTime  = 10 * time.Minute
)

// Users keeps users, and whom providers know them as.
type Users interface {
	CreateUser(ctx context.Context, u sandbox.User, home sandbox.Workspace) error
	User(ctx context.Context, id sandbox.UserID) (sandbox.User, error)
	UserByLogin(ctx context.Context, login string) (sandbox.User, error)
	Users(ctx context.Context, after string, limit int) ([]sandbox.User, error)
	UpdateUser(ctx context.Context, id sandbox.UserID, c sandbox.UserUpdate) (sandbox.User, error)
	DeleteUser(ctx context.Context, id sandbox.UserID, alone []sandbox.WorkspaceID, at time.Time) error
}

// Workspaces keeps workspaces.
type Workspaces interface {
	CreateWorkspace(ctx context.Context, ws sandbox.Workspace, most int) error
	Workspace(ctx context.Context, id sandbox.WorkspaceID) (sandbox.Workspace, error)
	Workspaces(ctx context.Context, user sandbox.UserID) ([]sandbox.Workspace, error)
	UpdateWorkspace(ctx context.Context, id sandbox.WorkspaceID, c sandbox.WorkspaceUpdate) (sandbox.Workspace, error)
	MarkWorkspaceDeleting(ctx context.Context, id sandbox.WorkspaceID, at time.Time) error
	DeletingWorkspaces(ctx context.Context) ([]sandbox.WorkspaceID, error)
	DeleteWorkspace(ctx context.Context, id sandbox.WorkspaceID) error
}

// Members keeps who is in which workspace.
type Members interface {
	Members(ctx context.Context, ws sandbox.WorkspaceID) ([]sandbox.Member, error)
	Member(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID) (sandbox.Member, error)
	AddMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role sandbox.Role, at time.Time) error
	SetRole(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, role sandbox.Role) error
	RemoveMember(ctx context.Context, ws sandbox.WorkspaceID, user sandbox.UserID, at time.Time) error
}

// SignIns keeps sessions.
type SignIns interface {
	CreateSession(ctx context.Context, s sandbox.Session) error
	RotateSession(ctx context.Context, old sandbox.TokenHash, next sandbox.Session) (was sandbox.Session, err error)
	Sessions(ctx context.Context, user sandbox.UserID, now time.Time) ([]sandbox.Session, error)
	DeleteSession(ctx context.Context, user sandbox.UserID, id string) error
	DeleteSessions(ctx context.Context, user sandbox.UserID) error
	DeleteExpired(ctx context.Context, now time.Time) error
}

// Invitations keeps one-time codes.
type Invitations interface {
	CreateInvitation(ctx context.Context, i sandbox.Invitation) error
	Invitations(ctx context.Context, ws sandbox.WorkspaceID, now time.Time) ([]sandbox.Invitation, error)
	InvitationByHash(ctx context.Context, hash sandbox.TokenHash, now time.Time) (sandbox.Invitation, error)
	DeleteInvitation(ctx context.Context, ws sandbox.WorkspaceID, id string) error
	AcceptInvitation(ctx context.Context, hash sandbox.TokenHash, u sandbox.User, home sandbox.Workspace) (sandbox.UserID, error)
}

// AccountStore is what [Accounts] keeps its things in; the methods are
// documented with the store.
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
			c.log.Error("it is tried again", "what", what, "err", err)
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
