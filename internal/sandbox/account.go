package sandbox

import "time"

// User is somebody who signs in.
type User struct {
	ID            UserID
	Name          string // what it signs in as, unique
	Email         string // in lower case, unique; "" when not known
	Administrator bool   // looks after the installation
	Password      string // argon2id in PHC form; "" when it has none. Never shown.
	Home          WorkspaceID
	CreatedAt     time.Time
	UpdatedAt     time.Time
	DisabledAt    time.Time // zero while it may sign in
}

// Workspace is a tenant.
type Workspace struct {
	ID          WorkspaceID
	Name        string
	Slug        string // names it in references, unique
	Description string
	CreatedBy   UserID
	CreatedAt   time.Time
	UpdatedAt   time.Time
	// URLAccess names the least credential for the management routes on the URLs of its
	// sandboxes; "" leaves it to the server.
	URLAccess URLAccess
	// Role is that of the user whom it was looked up for; "" when for nobody.
	Role Role
}

// Member is a user of a workspace.
type Member struct {
	User      UserID
	Name      string
	Email     string
	Role      Role
	CreatedAt time.Time
}

// Invitation is a one-time code: whoever presents it joins a workspace, or
// chooses the password of a user that exists.
type Invitation struct {
	ID        string // a UUID
	Hash      TokenHash
	Workspace WorkspaceID // "" when there is none to join
	Role      Role
	Email     string // whom it is for, when that is not User
	User      UserID // whose password it sets; "" for somebody new
	CreatedBy UserID
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Session is a sign-in, with its present pair of tokens.
type Session struct {
	ID               string // a UUID
	User             UserID
	Home             WorkspaceID // the user's
	Access           TokenHash
	AccessExpiresAt  time.Time
	Refresh          TokenHash
	RefreshExpiresAt time.Time
	RefreshTime      time.Duration // how long each refresh token works
	EndsAt           time.Time     // when the session ends whatever is done; zero is never
	Method           string        // how it began: password, invitation, or the provider's name
	Address          string
	CreatedAt        time.Time
	RefreshedAt      time.Time
	Used             bool // whether the tokens it has now were used
}

// RefreshGrace is how long the refresh token before works while those that it was
// used for are not used: their answer may have been lost.
const RefreshGrace = 5 * time.Minute

// RefreshExpiry is when a refresh token stops working that the session gets at that time.
func (s Session) RefreshExpiry(at time.Time) time.Time {
	expires := at.Add(s.RefreshTime)
	if !s.EndsAt.IsZero() && s.EndsAt.Before(expires) {
		return s.EndsAt
	}
	return expires
}

// UserUpdate is what to change of a user; nil leaves it as it is.
type UserUpdate struct {
	Password      *string // as User has it
	KeepSession   string  // the session that a new password does not end; "" for none
	Administrator *bool
	Disabled      *bool
	At            time.Time
}

// WorkspaceUpdate is what to change of a workspace; nil leaves it as it is.
type WorkspaceUpdate struct {
	Name, Slug, Description *string
	URLAccess               *URLAccess
	At                      time.Time
}
