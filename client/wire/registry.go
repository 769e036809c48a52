package wire

import "time"

// CreateRegistry is the body of POST /v1/registries.
type CreateRegistry struct {
	Name     string  `json:"name" minLength:"1" maxLength:"255" doc:"Unique in the workspace." example:"ours"`
	Server   string  `json:"server" minLength:"1" maxLength:"512" doc:"The registry, as references of its images begin." example:"ghcr.io"`
	Username string  `json:"username" minLength:"1" maxLength:"255" doc:"Who signs in."`
	Password string  `json:"password" minLength:"1" maxLength:"512" doc:"Their password or token. It is stored encrypted and never shown."`
	Email    *string `json:"email,omitempty" maxLength:"255" doc:"Kept and shown."`
	Enabled  *bool   `json:"enabled,omitempty" doc:"Whether it is used; true when omitted."`
	Verify   bool    `json:"verify,omitempty" doc:"Ask the registry first whether it accepts the username and password, and record nothing when it does not."`
}

// UpdateRegistry is the body of PATCH /v1/registries/{registry}: omitted members stay unchanged.
type UpdateRegistry struct {
	Name     *string `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Unique in the workspace."`
	Server   *string `json:"server,omitempty" minLength:"1" maxLength:"512" doc:"The registry, as references of its images begin."`
	Username *string `json:"username,omitempty" minLength:"1" maxLength:"255" doc:"Who signs in."`
	Password *string `json:"password,omitempty" minLength:"1" maxLength:"512" doc:"Their password or token."`
	Email    *string `json:"email,omitempty" maxLength:"255" doc:"Kept and shown; empty for none."`
	Enabled  *bool   `json:"enabled,omitempty" doc:"Whether it is used."`
	Verify   bool    `json:"verify,omitempty" doc:"Ask the registry first whether it accepts them as they will be, and change nothing when it does not."`
}

// Registry is how a workspace signs in to a registry, without the password.
type Registry struct {
	ID        string    `json:"id" format:"uuid" doc:"Its identifier."`
	Name      string    `json:"name" doc:"Its name."`
	Server    string    `json:"server" doc:"The registry, as it was written."`
	Username  string    `json:"username" doc:"Who signs in."`
	Email     string    `json:"email,omitempty" doc:"As it was given."`
	Enabled   bool      `json:"enabled" doc:"Whether it is used."`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt time.Time `json:"updated_at" doc:"When it last changed."`
}
