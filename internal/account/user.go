package account

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// User is a person who signs in.
type User struct {
	ID            sandbox.UserID
	Name          string // for signing in; unique
	Email         string // in lower case, unique; "" if unknown
	Administrator bool   // administers the installation
	Password      string // argon2id in PHC form; "" for none. Never shown.
	Home          sandbox.WorkspaceID
	CreatedAt     time.Time
	UpdatedAt     time.Time
	DisabledAt    time.Time // zero while the user may sign in
}

// UserUpdate is a change of a user; nil leaves a field as it is.
type UserUpdate struct {
	Password      *string // in the form of User.Password
	KeepSession   string  // the session that a new password does not end; "" for none
	Administrator *bool
	Disabled      *bool
	At            time.Time
}

// Invitation is a code that works once: with it a person joins a workspace, or an existing user
// chooses a password.
type Invitation struct {
	ID        string // a UUID
	Hash      TokenHash
	Workspace sandbox.WorkspaceID // "" if there is none to join
	Role      Role
	Email     string         // the address of the invited person, if it is not known from User
	User      sandbox.UserID // the user whose password it sets; "" for a new user
	CreatedBy sandbox.UserID
	CreatedAt time.Time
	ExpiresAt time.Time
}
