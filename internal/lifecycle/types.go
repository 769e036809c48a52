package lifecycle

import (
	"time"

	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/sandbox"
)

// CreateRequest asks for a sandbox. Zero values mean the image's or the server's default.
type CreateRequest struct {
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

// ForkRequest says what children to make of a sandbox.
type ForkRequest struct {
	// Count of children, 1 to sandbox.ForkMax; 0 is 1, or as many as there are names.
	Count int
	// Names of the first children; those without get one made up.
	Names []string
	// Env is added to the parent's environment, Labels to its labels.
	Env    map[string]string
	Labels map[string]string
	// TTL counts from the fork; 0 is the parent's ttl, counted from the fork too.
	TTL time.Duration
	// Timeouts replace the parent's when not nil.
	Timeouts *sandbox.Timeouts
	// WaitForQuota bounds the time for which the request may wait for capacity for all children, as in
	// a [CreateRequest]. The parent goes on meanwhile.
	WaitForQuota time.Duration
}

// ResumeRequest says how a paused sandbox is brought back.
type ResumeRequest struct {
	// Memory is the policy if its memory cannot be restored.
	Memory sandbox.MemoryPolicy
	// WaitForQuota bounds the time for which the request may wait for capacity, as in a
	// [CreateRequest].
	WaitForQuota time.Duration
}

// ForkResult is the result of a child: Err is nil when Sandbox runs. A child that was recorded and
// then failed has both.
type ForkResult struct {
	Sandbox sandbox.Sandbox
	Err     error
}

// Filter selects sandboxes for [Service.List].
type Filter = sandbox.Filter
