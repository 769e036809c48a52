package wire

import "time"

// CreateToken is the body of POST /v1/tokens.
type CreateToken struct {
	Description      string   `json:"description,omitempty" maxLength:"200" doc:"What the token is for."`
	ExpiresInSeconds int64    `json:"expires_in_seconds,omitempty" minimum:"0" maximum:"315360000" doc:"How long it works; for ever when omitted."`
	Scopes           []string `json:"scopes,omitempty" nullable:"false" maxItems:"32" doc:"What it may do; all that its user may when omitted. A token made with a narrowed one is narrowed as much at least." example:"[\"sandboxes:write\"]"`
	WorkspaceOnly    bool     `json:"workspace_only,omitempty" doc:"Keep it out of its user's other workspaces."`
}

// Token is an API token, without its text.
type Token struct {
	ID            string     `json:"id" format:"uuid" doc:"Its identifier."`
	Description   string     `json:"description" doc:"What it is for."`
	WorkspaceID   string     `json:"workspace_id" doc:"The workspace its requests act in."`
	WorkspaceOnly bool       `json:"workspace_only" doc:"It keeps out of its user's other workspaces."`
	Scopes        []string   `json:"scopes" nullable:"false" doc:"What it may do; all that its user may when empty."`
	CreatedAt     time.Time  `json:"created_at" doc:"When it was made."`
	LastUsedAt    *time.Time `json:"last_used_at,omitempty" doc:"When it was last used, within a few minutes; absent when never."`
	ExpiresAt     *time.Time `json:"expires_at,omitempty" doc:"When it stops working; absent for never."`
}

// NewToken is a new token with its secret.
type NewToken struct {
	Token
	Secret string `json:"token" doc:"The token's text. It is shown only now."`
}

// Whoami says who the caller is.
type Whoami struct {
	UserID        string   `json:"user_id" doc:"The user."`
	Name          string   `json:"name" doc:"What it signs in as."`
	Email         string   `json:"email" doc:"Its e-mail address; empty without one."`
	WorkspaceID   string   `json:"workspace_id" doc:"The workspace requests act in."`
	TokenID       string   `json:"token_id" doc:"The API token presented; empty for a session."`
	Role          string   `json:"role" doc:"The user's role in the workspace."`
	Administrator bool     `json:"administrator" doc:"The user looks after the installation."`
	Permissions   []string `json:"permissions" nullable:"false" doc:"What the caller may do in the workspace."`
}

// Version says what the server is.
type Version struct {
	Version string `json:"version" doc:"Version of the server."`
	Driver  string `json:"driver" doc:"What runs its sandboxes." example:"gvisor"`
}
