package wire

import "time"

// CreateWorkspace is the body of POST /v1/workspaces.
type CreateWorkspace struct {
	Name        string `json:"name" minLength:"1" maxLength:"255" doc:"What people call it."`
	Slug        string `json:"slug,omitempty" maxLength:"63" doc:"Names it in references, such as @slug/snapshot; unique in the installation. Made of the name when omitted."`
	Description string `json:"description,omitempty" maxLength:"1000" doc:"What it is for."`
}

// UpdateWorkspace is the body of PATCH /v1/workspaces/{workspace}.
type UpdateWorkspace struct {
	Name          *string       `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"What people call it."`
	Slug          *string       `json:"slug,omitempty" maxLength:"63" doc:"Names it in references."`
	Description   *string       `json:"description,omitempty" maxLength:"1000" doc:"What it is for."`
	URLAccess     *URLAccess    `json:"url_access,omitempty" enum:"open,key" doc:"The least credential for the management routes on the URLs of its sandboxes (/modbox/api/…, /execute): with open, each sandbox decides; with key, callers need the sandbox's SANDBOX_API_KEY or an API token. The server may demand more."`
	CodeScan      *CodeScanMode `json:"code_scan,omitempty" enum:"off,warn,block" doc:"Whether code is scanned before it runs: warn adds findings to answers and the audit log; with block code with findings, and code that cannot be scanned, does not run."`
	CodeScanRules *[]string     `json:"code_scan_rules,omitempty" enum:"process,network,file_delete,eval,native,environment,import,syntax" maxItems:"8" doc:"The rules that count; all when empty. Code that cannot be parsed counts in any case."`
	AuditOutput   *bool         `json:"audit_output,omitempty" doc:"Whether the audit log has the beginning of the output of commands and code: 4096 bytes of each of stdout and stderr, without secrets, and at most 16 MiB a day."`
}

// CodeScanMode is the policy of a workspace for code.
type CodeScanMode string

// The policies for code.
const (
	CodeScanOff   CodeScanMode = "off"
	CodeScanWarn  CodeScanMode = "warn"
	CodeScanBlock CodeScanMode = "block"
)

// Workspace is a tenant. It owns sandboxes, snapshots and what else there is.
type Workspace struct {
	ID            string       `json:"id" format:"uuid" doc:"Its identifier."`
	Name          string       `json:"name" doc:"What people call it."`
	Slug          string       `json:"slug" doc:"Names it in references."`
	Description   string       `json:"description" doc:"What it is for."`
	Role          string       `json:"role" enum:"owner,admin,member,viewer" doc:"The caller's role."`
	CreatedBy     string       `json:"created_by" doc:"The user who made it."`
	CreatedAt     time.Time    `json:"created_at" doc:"When it was made."`
	UpdatedAt     time.Time    `json:"updated_at" doc:"When it was last changed."`
	URLAccess     URLAccess    `json:"url_access" enum:"open,key" doc:"The least credential for the management routes on the URLs of its sandboxes (/modbox/api/…, /execute): with open, each sandbox decides; with key, callers need the sandbox's SANDBOX_API_KEY or an API token. The server may demand more."`
	CodeScan      CodeScanMode `json:"code_scan" enum:"off,warn,block" doc:"Whether code is scanned before it runs: warn adds findings to answers and the audit log; with block code with findings, and code that cannot be scanned, does not run."`
	CodeScanRules []string     `json:"code_scan_rules" nullable:"false" enum:"process,network,file_delete,eval,native,environment,import,syntax" doc:"The rules that count; all when empty."`
	AuditOutput   bool         `json:"audit_output" doc:"Whether the audit log has the beginning of the output of commands and code."`
}

// WorkspaceDetail is a workspace with its members.
type WorkspaceDetail struct {
	Workspace
	Members []Member `json:"members" nullable:"false" doc:"Its members, in the order they came."`
}

// Member is a user of a workspace.
type Member struct {
	UserID    string    `json:"user_id" doc:"The user."`
	Name      string    `json:"name" doc:"What it signs in as."`
	Email     string    `json:"email,omitempty" doc:"Its e-mail address, when known."`
	Role      string    `json:"role" enum:"owner,admin,member,viewer" doc:"What it may do."`
	CreatedAt time.Time `json:"created_at" doc:"When it became a member."`
}

// AddMember is the body of POST /v1/workspaces/{workspace}/members.
type AddMember struct {
	Email string `json:"email,omitempty" maxLength:"254" doc:"The user's e-mail address. One that is nobody's is invited."`
	Name  string `json:"name,omitempty" maxLength:"63" doc:"What the user signs in as, instead of the address."`
	Role  string `json:"role" enum:"owner,admin,member,viewer" doc:"What it may do."`
}

// SetRole is the body of PUT /v1/workspaces/{workspace}/members/{user}.
type SetRole struct {
	Role string `json:"role" enum:"owner,admin,member,viewer" doc:"What the member may do."`
}

// AddedMember is the result for an added member: one of the two is there.
type AddedMember struct {
	Member     *Member        `json:"member,omitempty" doc:"The member, when it was a user."`
	Invitation *NewInvitation `json:"invitation,omitempty" doc:"The invitation, when it was not."`
}

// Invitation is an open invitation to a workspace, without its code.
type Invitation struct {
	ID        string    `json:"id" format:"uuid" doc:"Its identifier."`
	Email     string    `json:"email" doc:"Whom it is for."`
	Role      string    `json:"role" doc:"What the member will be allowed to do."`
	CreatedBy string    `json:"created_by" doc:"The user who made it."`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
	ExpiresAt time.Time `json:"expires_at" doc:"Until when it can be accepted."`
}

// NewInvitation is a new invitation.
type NewInvitation struct {
	Invitation
	Code string `json:"code" doc:"What the invited accepts it with, once. It is shown only now."`
}

// CreateUser is the body of POST /v1/users.
type CreateUser struct {
	Name          string `json:"name" minLength:"1" maxLength:"63" doc:"What it signs in as: a-z, 0-9, dot, - and _."`
	Email         string `json:"email,omitempty" maxLength:"254" doc:"Its e-mail address, by which it may sign in as well."`
	Password      string `json:"password,omitempty" maxLength:"256" doc:"At least 8 characters. When omitted, a code is answered by which the user chooses one."`
	Administrator bool   `json:"administrator,omitempty" doc:"Whether it looks after the installation."`
}

// UpdateUser is the body of PATCH /v1/users/{user}.
type UpdateUser struct {
	Administrator *bool `json:"administrator,omitempty" doc:"Whether it looks after the installation."`
	Disabled      *bool `json:"disabled,omitempty" doc:"Whether it is disabled: it cannot sign in, and its tokens do not work."`
}

// User is a person who signs in.
type User struct {
	ID            string     `json:"id" doc:"Its identifier."`
	Name          string     `json:"name" doc:"What it signs in as."`
	Email         string     `json:"email" doc:"Its e-mail address; empty when not known."`
	Administrator bool       `json:"administrator" doc:"It looks after the installation."`
	WorkspaceID   string     `json:"workspace_id" doc:"Its own workspace."`
	CreatedAt     time.Time  `json:"created_at" doc:"When it was made."`
	DisabledAt    *time.Time `json:"disabled_at,omitempty" doc:"When it was disabled; absent when it is not."`
}

// NewUser is a new user.
type NewUser struct {
	User
	Code string `json:"code,omitempty" doc:"By which the user chooses its password, once. It is shown only now."`
}

// Code is a one-time code.
type Code struct {
	Code string `json:"code" doc:"By which the user chooses its password, once. It is shown only now."`
}

// Login is the body of POST /v1/auth/login.
type Login struct {
	Username string `json:"username" minLength:"1" maxLength:"254" doc:"The user's name or e-mail address."`
	Password string `json:"password" minLength:"1" maxLength:"256" doc:"Its password."`
	Program  bool   `json:"program,omitempty" doc:"The session is of a program on the user's machine: it lasts 90 days, and ends when it is not refreshed for 30."`
}

// Refresh is the body of POST /v1/auth/refresh.
type Refresh struct {
	RefreshToken string `json:"refresh_token" minLength:"1" maxLength:"128" doc:"The session's present refresh token. It works once."`
}

// AcceptInvitation is the body of POST /v1/auth/accept.
type AcceptInvitation struct {
	Code     string `json:"code" minLength:"1" maxLength:"128" doc:"The invitation's code."`
	Name     string `json:"name,omitempty" maxLength:"63" doc:"What a new user signs in as. Not for a code that only sets a password."`
	Password string `json:"password" minLength:"1" maxLength:"256" doc:"The password, of at least 8 characters."`
	Program  bool   `json:"program,omitempty" doc:"The session is of a program on the user's machine: it lasts 90 days, and ends when it is not refreshed for 30."`
}

// ExchangeCode is the body of POST /v1/auth/exchange.
type ExchangeCode struct {
	Code         string `json:"code" minLength:"1" maxLength:"128" doc:"The code that the sign-in ended with."`
	CodeVerifier string `json:"code_verifier" minLength:"43" maxLength:"128" doc:"What the code_challenge is the SHA-256 of."`
}

// SetPassword is the body of PUT /v1/account/password.
type SetPassword struct {
	CurrentPassword string `json:"current_password,omitempty" maxLength:"256" doc:"The old password, when there is one."`
	Password        string `json:"password" minLength:"1" maxLength:"256" doc:"The new one, of at least 8 characters."`
}

// SignInSession is an active sign-in, without its tokens.
type SignInSession struct {
	ID          string    `json:"id" format:"uuid" doc:"Its identifier."`
	Method      string    `json:"method" doc:"How the user signed in: password, invitation, or the name of another service."`
	Address     string    `json:"address" doc:"The IP address from which the user signed in."`
	Current     bool      `json:"current" doc:"The request was made with its access token."`
	CreatedAt   time.Time `json:"created_at" doc:"When the user signed in."`
	RefreshedAt time.Time `json:"refreshed_at" doc:"When it last got tokens; one in use gets them every 5 minutes."`
	ExpiresAt   time.Time `json:"expires_at" doc:"When it ends unless it is refreshed before."`
}

// SessionTokens is the pair of tokens that a session has.
type SessionTokens struct {
	AccessToken      string `json:"access_token" doc:"The bearer token of requests."`
	RefreshToken     string `json:"refresh_token" doc:"Gets the next pair, once."`
	ExpiresIn        int    `json:"expires_in" doc:"Seconds that the access token works."`
	RefreshExpiresIn int    `json:"refresh_expires_in" doc:"Seconds that the refresh token works."`
}
