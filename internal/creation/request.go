package creation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Request asks for a sandbox. Zero values mean the image's or the server's default.
type Request struct {
	// ID is the id the sandbox gets, for a caller that must know it beforehand; ""
	// has one made. It must come from [sandbox.NewID].
	ID sandbox.ID `json:"-"`
	// HostLabel is the host label it gets, for the same; it must come from [sandbox.HostLabel].
	HostLabel string `json:"-"`
	// Published are the ports of Network with their labels, for the same; they must
	// come from [sandbox.Sandbox.Publish].
	Published []sandbox.PublishedPort `json:"-"`
	// Name is the caller's identifier, 1 to 255 characters; "" means one is made up.
	// While a sandbox of that name lives, the same request again answers the
	// existing sandbox, and a different one is refused with code exists.
	Name string
	// Image is a reference such as "modbox/code-exec" or "modbox/code-exec:latest";
	// ImageID, of an entry of the workspace's catalogue or of an image, wins when both
	// are set; when neither is, the workspace's default image is used, else the
	// server's. The memory limit of an entry is the most its sandboxes may have.
	Image   string
	ImageID sandbox.ImageID
	// Snapshot, instead of an image, is an id, name, name:tag or @workspace/name:tag.
	Snapshot string `json:",omitempty"`
	// AptPackages are Debian packages ("curl", "curl=8.14*"), NpmPackages npm packages
	// ("typescript@5"), PipPackages Python packages ("requests==2.32.*") to install in it before it
	// runs; none of them gives it a network.
	AptPackages, NpmPackages, PipPackages []string `json:",omitempty"`
	Env                                   map[string]string
	Labels                                map[string]string
	// Resources fields that are 0 get the image's or the server's default.
	Resources sandbox.Resources
	// TTL is 0 for the image's default, else between sandbox.TTLMin and TTLMax.
	TTL time.Duration
	// Network is off, and no port is published, unless asked for.
	Network sandbox.Network `json:",omitzero"`
	// Timeouts are the other clocks, see sandbox.Timeouts.
	Timeouts sandbox.Timeouts `json:",omitzero"`
	// CheckpointInterval is the time between automatic checkpoints; 0 means none.
	CheckpointInterval time.Duration `json:",omitempty"`
	// Description and Metadata are stored and shown, without a meaning to the server.
	Description string            `json:",omitempty"`
	Metadata    map[string]string `json:",omitempty"`
	// Command, when set, is started as an execution as soon as the sandbox runs; with
	// OneShot the sandbox ends with it, with cause completed.
	Command *execution.Request `json:",omitempty"`
	OneShot bool               `json:",omitempty"`
	// URLAccess names the credential for the management routes on the sandbox's own URL;
	// "" is [sandbox.URLOpen], as clients of the Modbox dialect expect it.
	URLAccess sandbox.URLAccess `json:",omitempty"`
	// Replace ends a live sandbox of the same name, whose place in the quota the new
	// one may have.
	Replace bool
	// WaitForQuota bounds the time for which the request may wait for the quota of the workspace, and
	// the capacity of the server, in the workspace's queue. The sandbox is recorded only when it is
	// admitted.
	WaitForQuota time.Duration
	// IdempotencyKey, when set, makes a repeated create within 24 hours answer the
	// sandbox of the first one, even after its end; the same key with another
	// request is refused with code conflict.
	IdempotencyKey string
}

// Check checks what a caller asked for, and completes its network rules; errors name the field as on
// the wire.
func (c *Config) Check(req *Request) error {
	if req.Name != "" {
		if err := sandbox.CheckText("name", req.Name, 1, sandbox.NameMax); err != nil {
			return err
		}
	}
	if req.Image != "" {
		if err := sandbox.CheckText("image", req.Image, 1, sandbox.ImageRefMax); err != nil {
			return err
		}
	}
	if req.Snapshot != "" {
		if err := sandbox.CheckText("snapshot", req.Snapshot, 1, sandbox.ImageRefMax); err != nil {
			return err
		}
	}
	if req.IdempotencyKey != "" {
		if err := sandbox.CheckText("Idempotency-Key", req.IdempotencyKey, 1, keyMax); err != nil {
			return err
		}
	}
	if err := c.Shortest.CheckTTL(req.TTL); err != nil {
		return err
	}
	if err := quota.CheckWait(req.WaitForQuota); err != nil {
		return err
	}
	if err := quota.CheckAsked(c.Max, req.Resources); err != nil {
		return err
	}
	if err := c.Shortest.CheckTimeouts(req.Timeouts); err != nil {
		return err
	}
	if err := sandbox.CheckCheckpointInterval(req.CheckpointInterval); err != nil {
		return err
	}
	if err := network.CheckPorts("network.ports", req.Network.Ports); err != nil {
		return err
	}
	if err := network.CheckRules("network.", &req.Network); err != nil {
		return err
	}
	if err := network.CheckRequests("network.", &req.Network); err != nil {
		return err
	}
	if req.URLAccess != "" && !req.URLAccess.Valid() {
		return sandbox.InvalidField("url_access", "must be %s or %s", sandbox.URLOpen, sandbox.URLKey)
	}
	if err := sandbox.CheckMetadata(req.Description, req.Metadata); err != nil {
		return err
	}
	if req.Command != nil {
		if err := req.Command.Validate(); err != nil {
			return err
		}
	} else if req.OneShot {
		return sandbox.InvalidField("mode", "a one-shot sandbox must be given a command")
	}
	if err := prepare.Check(prepare.Packages{APT: req.AptPackages, NPM: req.NpmPackages, PIP: req.PipPackages}); err != nil {
		return err
	}
	if err := sandbox.CheckEnv(req.Env); err != nil {
		return err
	}
	return sandbox.CheckLabels(req.Labels)
}

// hash identifies what a request asks for. Replace, IdempotencyKey and WaitForQuota say how to
// treat the request, not what it asks for, and do not count.
func (req *Request) hash() string {
	canonical := *req
	canonical.Replace, canonical.IdempotencyKey, canonical.WaitForQuota = false, "", 0
	if len(canonical.Env) == 0 {
		canonical.Env = nil
	}
	if canonical.Timeouts.OnIdle == sandbox.OnIdleDestroy {
		canonical.Timeouts.OnIdle = "" // the default
	}
	if canonical.URLAccess == sandbox.URLKey {
		canonical.URLAccess = "" // where it can be asked for, it is the default
	}
	if len(canonical.Network.Ports) == 0 {
		canonical.Network.Ports = nil
	}
	if len(canonical.Labels) == 0 {
		canonical.Labels = nil
	}
	data, err := json.Marshal(canonical) // maps are written sorted
	if err != nil {
		panic(err) // strings and numbers only: cannot fail
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
