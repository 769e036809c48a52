package e2b

import (
	"encoding/json"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Version is the version of envd, E2B's program in a sandbox, that the server reports. The clients
// switch features on by it: 0.6.2 adds the metadata of files, 0.6.3 what a file is in the events of a watch, and 0.6.4
// watches on network mounts, which sandboxes do not have.
const Version = "0.6.4"

// clientID is a field without a meaning.
const clientID = "modbox"

// The labels in which a sandbox has what its record lacks.
const (
	labelTemplate   = "e2b/template"    // as the client named it
	labelAutoResume = "e2b/auto-resume" // "true": a request to its ports resumes it
	labelPrivate    = "e2b/private"     // "true": its ports need the traffic token
	labelColdResume = "e2b/cold-resume" // "true", of sandboxes of before: a resume does not bring its memory back
	labelTimeout    = "e2b/timeout"     // seconds that it may run after a resume by a request
)

// The templates of the server. The base template is the template of a create that names none.
const (
	templateBase = "base"
	templateCode = "code-interpreter-v1"
	// templateDesktop is the template of the client for desktops.
	templateDesktop = "desktop"
	// templateMCP is the template of a create with MCP servers that names none. The server has no such image; a
	// workspace may build it.
	templateMCP = "mcp-gateway"
)

// The states of a sandbox.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

// stateOf returns the dialect's state of a sandbox.
func stateOf(sb *sandbox.Sandbox) string {
	if sb.State == sandbox.Paused || sb.State == sandbox.Resuming {
		return statePaused
	}
	return stateRunning
}

// createInput is the body of a create.
type createInput struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	AllowInternet *bool           `json:"allow_internet_access"`
	Network       networkInput    `json:"network"`
	IAM           json.RawMessage `json:"iam"`
	VolumeMounts  []struct {
		Name string `json:"name"`
		Path string `json:"path"`
	} `json:"volumeMounts"`
	// MCP are the servers that the client itself starts in the new sandbox, by the program mcp-gateway.
	MCP json.RawMessage `json:"mcp"`
}

// networkInput is the network of a create, or of an update.
type networkInput struct {
	AllowOut           []string        `json:"allowOut"`
	DenyOut            []string        `json:"denyOut"`
	AllowPublicTraffic *bool           `json:"allowPublicTraffic"`
	MaskRequestHost    string          `json:"maskRequestHost"`
	HTTPSPorts         []int           `json:"httpsPorts"`
	EgressProxy        json.RawMessage `json:"egressProxy"`
	Rules              json.RawMessage `json:"rules"`
}

// opened is a sandbox as the answer of a create, a connect and a resume.
type opened struct {
	SandboxID       string  `json:"sandboxID"`
	TemplateID      string  `json:"templateID"`
	ClientID        string  `json:"clientID"`
	EnvdVersion     string  `json:"envdVersion"`
	EnvdAccessToken string  `json:"envdAccessToken"`
	TrafficToken    *string `json:"trafficAccessToken"`
	Domain          *string `json:"domain"`
}

// listed is a sandbox in a list.
type listed struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	State       string            `json:"state"`
	CPUCount    int64             `json:"cpuCount"`
	MemoryMB    int64             `json:"memoryMB"`
	DiskSizeMB  int64             `json:"diskSizeMB"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

// detail is a sandbox as the answer of a get.
type detail struct {
	listed
	EnvdAccessToken string        `json:"envdAccessToken,omitempty"`
	Domain          *string       `json:"domain"`
	AllowInternet   bool          `json:"allowInternetAccess"`
	Network         networkOutput `json:"network"`
	Lifecycle       lifecycleInfo `json:"lifecycle"`
}

type networkOutput struct {
	AllowOut           []string `json:"allowOut,omitempty"`
	DenyOut            []string `json:"denyOut,omitempty"`
	AllowPublicTraffic bool     `json:"allowPublicTraffic"`
	MaskRequestHost    string   `json:"maskRequestHost,omitempty"`
	HTTPSPorts         []uint16 `json:"httpsPorts,omitempty"`
}

type lifecycleInfo struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// endless is the end of a sandbox without one: the field is required.
var endless = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// endOf returns when a sandbox ends or is paused by itself.
func endOf(sb *sandbox.Sandbox) time.Time {
	at, ok := sb.Deadline()
	if idle, ends := sb.IdleDeadline(); ends && (!ok || idle.Before(at)) {
		at, ok = idle, true
	}
	if !ok {
		return endless
	}
	return at.UTC()
}

const mebibyte = 1 << 20

func listedOf(sb *sandbox.Sandbox) listed {
	started := sb.StartedAt
	if started.IsZero() {
		started = sb.CreatedAt
	}
	return listed{
		SandboxID: SandboxID(sb.ID), TemplateID: TemplateOf(sb), ClientID: clientID, StartedAt: started.UTC(), EndAt: endOf(sb), State: stateOf(sb),
		CPUCount: (sb.Resources.CPUMilli + 999) / 1000, MemoryMB: sb.Resources.MemoryBytes / mebibyte, DiskSizeMB: sb.Resources.DiskBytes / mebibyte,
		EnvdVersion: Version, Metadata: sb.Metadata,
	}
}

// TemplateOf returns the template of a sandbox: as its client named it, or else its image.
func TemplateOf(sb *sandbox.Sandbox) string {
	if name := sb.Labels[labelTemplate]; name != "" {
		return name
	}
	if sb.Snapshot != "" {
		return snapshotID(sb.Snapshot)
	}
	return sb.Image
}

// opened returns the answer of a create, with the credentials of the sandbox.
func (b *base) opened(sb *sandbox.Sandbox) (out opened, err error) {
	out = opened{SandboxID: SandboxID(sb.ID), TemplateID: TemplateOf(sb), ClientID: clientID, EnvdVersion: Version, Domain: b.ownDomain()}
	if out.EnvdAccessToken, err = b.credentials.Make(Access, sb.ID); err != nil {
		return out, err
	}
	if !Public(sb) {
		token, err := b.credentials.Make(Traffic, sb.ID)
		if err != nil {
			return out, err
		}
		out.TrafficToken = &token
	}
	return out, nil
}

// ownDomain returns the domain for an answer; nil for none.
func (b *base) ownDomain() *string {
	if b.domain == "" {
		return nil
	}
	return &b.domain
}

// Public reports whether everybody who knows the id of a sandbox may use its ports. Sandboxes that
// were not created through this dialect are not public: their ids are no secrets.
func Public(sb *sandbox.Sandbox) bool {
	return sb.Labels[labelTemplate] != "" && sb.Labels[labelPrivate] != "true"
}

// AutoResume reports whether a request to a port of a paused sandbox resumes it.
func AutoResume(sb *sandbox.Sandbox) bool { return sb.Labels[labelAutoResume] == "true" }
