package wire

import "time"

// CreateSandboxImage is the body of POST /v1/sandbox-images.
type CreateSandboxImage struct {
	Name          string  `json:"name" minLength:"1" maxLength:"255" doc:"Unique in the workspace." example:"agent"`
	Image         string  `json:"image" minLength:"1" maxLength:"512" doc:"Image reference; it may have the tag, or a digest instead." example:"ghcr.io/org/agent"`
	Tag           *string `json:"tag,omitempty" maxLength:"128" doc:"latest when omitted." example:"v1"`
	Description   *string `json:"description,omitempty" maxLength:"1000" doc:"Your own words about it."`
	Enabled       *bool   `json:"enabled,omitempty" doc:"false: no sandbox may be made from it; true when omitted."`
	IsDefault     *bool   `json:"is_default,omitempty" doc:"Use it when a request names no image. Only one is: another one is not any more."`
	MemoryMB      *int64  `json:"memory_mb,omitempty" minimum:"0" maximum:"8192" doc:"Memory limit of its sandboxes in MiB, 256 to 8192; no request may ask for more. 0 or omitted: the image's own, or the server's default."`
	ReadinessPort *int64  `json:"readiness_port,omitempty" minimum:"0" maximum:"65535" doc:"GET / on this port must answer with a 2xx before a sandbox counts as running, and its URL leads there. 0: none. Omitted: the image's own, if any."`
	TTLSeconds    *int64  `json:"ttl_seconds,omitempty" minimum:"0" maximum:"86400" doc:"How long its sandboxes live unless they say, 60 to 86400. 0: no limit. Omitted: the image's own, if any."`
	RegistryID    *string `json:"registry_id,omitempty" maxLength:"64" doc:"The registry to pull it with; whichever the workspace has for the host when omitted or empty."`
}

// UpdateSandboxImage is the body of PATCH /v1/sandbox-images/{sandbox_image}.
type UpdateSandboxImage struct {
	Name          *string `json:"name,omitempty" minLength:"1" maxLength:"255" doc:"Unique in the workspace."`
	Image         *string `json:"image,omitempty" minLength:"1" maxLength:"512" doc:"Image reference; it may have the tag, or a digest instead."`
	Tag           *string `json:"tag,omitempty" maxLength:"128" doc:"The tag."`
	Description   *string `json:"description,omitempty" maxLength:"1000" doc:"Your own words about it."`
	Enabled       *bool   `json:"enabled,omitempty" doc:"false: no sandbox may be made from it. Of a built-in image only this can be changed, by an administrator of the installation."`
	IsDefault     *bool   `json:"is_default,omitempty" doc:"Use it when a request names no image."`
	MemoryMB      *int64  `json:"memory_mb,omitempty" minimum:"0" maximum:"8192" doc:"Memory limit of its sandboxes in MiB, 256 to 8192; 0: the image's own, or the server's default."`
	ReadinessPort *int64  `json:"readiness_port,omitempty" minimum:"0" maximum:"65535" doc:"The port that must answer; 0: none."`
	TTLSeconds    *int64  `json:"ttl_seconds,omitempty" minimum:"0" maximum:"86400" doc:"60 to 86400; 0: no limit."`
	RegistryID    *string `json:"registry_id,omitempty" maxLength:"64" doc:"The registry to pull it with; empty: whichever the workspace has for the host."`
}

// SandboxImage is an image of a workspace's catalogue.
type SandboxImage struct {
	ID            string    `json:"id" doc:"Its identifier, for image_id."`
	Name          string    `json:"name" doc:"What it is called."`
	Image         string    `json:"image" doc:"The image reference without its tag, or with its digest."`
	Tag           string    `json:"tag" doc:"The tag; empty for an image by digest."`
	Description   string    `json:"description,omitempty" doc:"Words about it."`
	Builtin       bool      `json:"builtin" doc:"Comes with Modbox: it is in every workspace and cannot be deleted."`
	Enabled       bool      `json:"enabled" doc:"Whether sandboxes may be made from it."`
	IsDefault     bool      `json:"is_default" doc:"Used when a request names no image."`
	MemoryMB      int64     `json:"memory_mb" doc:"Memory limit of its sandboxes in MiB."`
	ReadinessPort int       `json:"readiness_port,omitempty" doc:"The port that must answer; absent without one: then a sandbox is ready when its agent is."`
	TTLSeconds    int64     `json:"ttl_seconds,omitempty" doc:"How long its sandboxes live unless they say; absent: no limit."`
	RegistryID    string    `json:"registry_id,omitempty" doc:"The registry it is pulled with; absent: whichever the workspace has for the host."`
	RegistryName  string    `json:"registry_name,omitempty" doc:"That registry's name; absent when it was deleted."`
	WorkspaceID   string    `json:"workspace_id,omitempty" doc:"The workspace it belongs to; absent for a built-in one."`
	CreatedAt     time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt     time.Time `json:"updated_at" doc:"When it last changed."`
}
