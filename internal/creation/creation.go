// Package creation makes the record of a sandbox from the request for it: it checks the request,
// chooses the image or snapshot, and fills in what the request leaves open.
package creation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/checkpoint"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/snapshot"
	"github.com/modbox/modbox/internal/timelimit"
)

const (
	keyLifetime = 24 * time.Hour // of an idempotency key
	keyMax      = 255            // characters of an idempotency key
	startsLeft  = 3              // after a start that its server did not finish; a start may be what ends servers
)

// Config are the settings of a [Planner].
type Config struct {
	// Defaults are the resources of a sandbox when neither its request nor its image names any.
	Defaults sandbox.Resources
	// Max bounds the resources that a sandbox may ask for.
	Max sandbox.Resources
	// Shortest are the shortest time limits that callers may ask for.
	Shortest timelimit.Bounds
}

// Catalogue chooses images for sandboxes.
type Catalogue interface {
	// Choose returns the image that a request of a workspace names. Errors: Invalid, naming the
	// field.
	Choose(ctx context.Context, ws sandbox.WorkspaceID, want catalogue.Wanted) (catalogue.Choice, error)
}

// Images finds root filesystems of snapshots.
type Images interface {
	// Planned returns the image of a digest. It does not wait for files that the start fetches from an object store. Errors: NotFound; Unavailable
	// when a file on the disk is damaged.
	Planned(ctx context.Context, digest string) (spec.Image, error)
}

// Deps are the parts that a planner asks. All must be set, but Images where there are no snapshots.
type Deps struct {
	Catalogue Catalogue
	Images    Images
	Quotas    *quota.Controller
	Prepare   *prepare.Service
	Snapshots *snapshot.Service
	Networks  *network.Service
	Saved     *checkpoint.Store
	Owner     *sandbox.Ownership // of the shards of new sandboxes; nil for all
}

// Planner makes the records of sandboxes that are asked for. It records nothing.
type Planner struct {
	cfg  Config
	deps Deps
}

// New returns a planner.
func New(cfg Config, deps Deps) *Planner { return &Planner{cfg: cfg, deps: deps} }

// Plan returns the record of a sandbox that a request asks for, and the kind of the boxes of the pool that
// it can be made of. Errors: as for a create.
func (p *Planner) Plan(ctx context.Context, c sandbox.Caller, req *Request) (sandbox.Creation, pool.Kind, error) {
	if err := p.cfg.Check(req); err != nil {
		return sandbox.Creation{}, pool.Kind{}, err
	}
	if err := p.offers(req); err != nil {
		return sandbox.Creation{}, pool.Kind{}, err
	}
	limits, err := p.deps.Quotas.Limits(ctx, c.Workspace)
	if err != nil {
		return sandbox.Creation{}, pool.Kind{}, err
	}
	if err := quota.CheckMax(c.Workspace, limits, req.Resources); err != nil {
		return sandbox.Creation{}, pool.Kind{}, err
	}
	creation, err := p.creationFor(ctx, c, req)
	if err != nil {
		return sandbox.Creation{}, pool.Kind{}, err
	}
	quota.Cut(limits, &creation.Sandbox.Resources)
	if req.Command != nil {
		if err := guest.CheckLimits(req.Command.Limits, creation.Sandbox.Resources); err != nil {
			return sandbox.Creation{}, pool.Kind{}, err
		}
	}
	kind := pool.Kind{Digest: creation.Sandbox.ImageDigest, Resources: creation.Sandbox.Resources}
	if req.Snapshot != "" && !prepare.PackagesOf(&creation.Sandbox).Empty() {
		kind.Digest = "" // it is made from neither the snapshot nor anything known yet
	}
	return creation, kind, nil
}

// offers returns an error if the request needs a capability that this server lacks.
func (p *Planner) offers(req *Request) error {
	if req.CheckpointInterval != 0 {
		if _, err := p.deps.Saved.Checkpointer(); err != nil {
			return err
		}
	}
	if req.Network.Enabled {
		if err := p.deps.Networks.Offered(); err != nil {
			return err
		}
	}
	if len(req.AptPackages)+len(req.NpmPackages)+len(req.PipPackages) > 0 {
		if err := p.deps.Prepare.Offered(); err != nil {
			return err
		}
	}
	if req.Timeouts.OnIdle.Pauses() {
		if _, err := p.deps.Saved.Checkpointer(); err != nil {
			return err
		}
	}
	return nil
}

// creationFor returns the record of a valid request, after it has found the image or snapshot.
func (p *Planner) creationFor(ctx context.Context, c sandbox.Caller, req *Request) (sandbox.Creation, error) {
	if req.Snapshot != "" {
		return p.fromSnapshot(ctx, c, req)
	}
	img, err := p.deps.Catalogue.Choose(ctx, c.Workspace, catalogue.Wanted{ID: req.ImageID, Ref: req.Image, MemoryBytes: req.Resources.MemoryBytes})
	if err != nil {
		return sandbox.Creation{}, err
	}
	if err := p.deps.Prepare.CheckEnabled(ctx, img.Field, &img.Image); err != nil {
		return sandbox.Creation{}, err
	}
	creation := p.creation(c, req, &img.Image)
	creation.Sandbox.Image, creation.Sandbox.ImageID, creation.Sandbox.Registry = img.Reference(), img.ImageID, img.Registry
	creation.Event.Data["image"] = creation.Sandbox.Image
	if !img.VisibleTo(c.Workspace) {
		creation.Sandbox.ImageDigest = "" // not told before the registry lets the workspace have it
		return creation, nil
	}
	creation.Sandbox.ImageDigest = p.madeFrom(ctx, &creation.Sandbox)
	return creation, nil
}

// madeFrom returns the digest of the image, with packages, of a sandbox that is about to be
// created; "" if the image must be made first.
func (p *Planner) madeFrom(ctx context.Context, sb *sandbox.Sandbox) string {
	d := prepare.PackagesOf(sb)
	if d.Empty() || sb.ImageDigest == "" {
		return sb.ImageDigest
	}
	return p.deps.Prepare.Installed(ctx, sb.ImageDigest, d)
}

// creation returns the record of a valid request.
func (p *Planner) creation(c sandbox.Caller, req *Request, img *spec.Image) sandbox.Creation {
	now := time.Now().UTC()
	sb := sandbox.Sandbox{
		ID: cmp.Or(req.ID, p.deps.Owner.NewID()), Workspace: c.Workspace, State: sandbox.Provisioning,
		Name:  cmp.Or(req.Name, NewName()),
		Image: img.Ref(), ImageDigest: img.Digest, Env: maps.Clone(req.Env), Labels: maps.Clone(req.Labels),
		Resources:     p.cfg.Resources(req.Resources, img),
		ReadinessPort: img.ReadinessPort, TTL: cmp.Or(req.TTL, img.TTL), Timeouts: req.Timeouts, CheckpointInterval: req.CheckpointInterval,
		Network: req.Network, URLAccess: req.URLAccess,
		AptPackages: slices.Clone(req.AptPackages), NpmPackages: slices.Clone(req.NpmPackages), PipPackages: slices.Clone(req.PipPackages),
		Description: req.Description, Metadata: maps.Clone(req.Metadata),
		CreatedBy: c.User, CreatedAt: now, UpdatedAt: now, LastActivityAt: now,
	}
	sb.HostLabel = cmp.Or(req.HostLabel, sandbox.HostLabel(sb.Name))
	sb.Published = req.Published
	sb.Publish(req.Network.Ports, now)
	again := startsLeft
	if req.Command != nil { // the files and variables of a command are in memory alone
		again = 0
	}
	return sandbox.Creation{
		Sandbox: sb, RequestHash: req.hash(),
		IdempotencyKey: req.IdempotencyKey, KeyLifetime: keyLifetime, StartsLeft: again,
		Event: sandbox.Event{
			Time: now, Type: sandbox.EventCreated, Message: "the sandbox was asked for",
			Data: map[string]string{"image": sb.Image, "user": string(c.User)},
		},
	}
}

// StandingKinds returns the kinds of boxes of creates without wishes: of a create that names an image, and of a create that
// names nothing, whose image img is unless err says that there is none.
func (c *Config) StandingKinds(img spec.Image, err error) []pool.Kind {
	kinds := []pool.Kind{{Resources: c.Resources(sandbox.Resources{}, &spec.Image{})}}
	if err == nil && img.Digest != "" {
		kinds = append(kinds, pool.Kind{Digest: img.Digest, Resources: c.Resources(sandbox.Resources{}, &img)})
	}
	return kinds
}

// Resources returns the limits of a sandbox for which asked was requested.
func (c *Config) Resources(asked sandbox.Resources, img *spec.Image) sandbox.Resources {
	fromImage := sandbox.Resources{MemoryBytes: img.MemoryBytes}
	for _, r := range quota.Fields {
		// A caller's wish beyond the maximum was refused; an image's is cut.
		value := cmp.Or(*r.Of(&asked), *r.Of(&fromImage), *r.Of(&c.Defaults))
		*r.Of(&asked) = min(max(value, r.Min), *r.Of(&c.Max))
	}
	return asked
}

// NewName generates the name of a sandbox for which the caller chose none.
func NewName() string {
	id := uuid.New().String() // the last 12 digits are 48 random bits
	return "sandbox-" + id[len(id)-12:]
}

// fromSnapshot returns the record of a sandbox that is made from a snapshot. The record has the
// root filesystem from the beginning, so that it counts as in use.
func (p *Planner) fromSnapshot(ctx context.Context, c sandbox.Caller, req *Request) (sandbox.Creation, error) {
	if req.Image != "" || req.ImageID != "" {
		return sandbox.Creation{}, sandbox.InvalidField("snapshot", "give either a snapshot or an image, not both")
	}
	sn, err := p.deps.Snapshots.Get(ctx, c, req.Snapshot)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return sandbox.Creation{}, sandbox.InvalidField("snapshot", "%s", snapshot.Missing(req.Snapshot))
	}
	if err != nil {
		return sandbox.Creation{}, err
	}
	img, err := p.deps.Images.Planned(ctx, sn.Digest)
	if err != nil {
		return sandbox.Creation{}, fmt.Errorf("root filesystem of snapshot %s: %w", sn.ID, err)
	}
	env := Merged(sn.Env, req.Env)
	if err := sandbox.CheckEnv(env); err != nil {
		return sandbox.Creation{}, err
	}
	creation := p.creation(c, req, &img)
	sb := &creation.Sandbox
	sb.Snapshot, sb.Image, sb.ImageDigest, sb.Env = sn.ID, sn.Image, sn.Digest, env
	creation.Event.Data = map[string]string{"image": sn.Image, "snapshot": string(sn.ID), "user": string(c.User)}
	return creation, nil
}

// Merged returns base with the entries of over, which win.
func Merged(base, over map[string]string) map[string]string {
	m := maps.Clone(base)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, over)
	return m
}
