package lifecycle

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/pool"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// Create records a sandbox and returns it at once in state provisioning; provisioning continues in
// the background after the end of ctx. With created false it returns the sandbox of an earlier
// equal request, or of the same idempotency key. With Replace, the transaction that records the new
// sandbox also ends the live sandbox of the same name, whose share of the quota the new sandbox may
// use. Create returns after the old sandbox, and any other sandbox of the name that is being
// destroyed, has ended completely; if ctx ends first, at once.
//
// Errors: Invalid, naming the field; Exists if a different request created the live sandbox of that
// name; Conflict if a different request used the idempotency key; QuotaExceeded; Unsupported for a
// capability that this server lacks; Unavailable; the context's error.
func (s *Service) Create(ctx context.Context, c sandbox.Caller, req CreateRequest) (sb sandbox.Sandbox, created bool, err error) {
	defer func() {
		if err == nil {
			audit.FromContext(ctx).Made("sandbox", string(sb.ID), sb.Name)
		}
	}()
	if err := s.ready(); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	if err := s.cfg.validate(&req); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	if _, err := s.saved.Checkpointer(); err != nil && req.CheckpointInterval != 0 {
		return sandbox.Sandbox{}, false, err
	}
	if err := s.offers(&req); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	limits, err := s.quotas.Limits(ctx, c.Workspace)
	if err != nil {
		return sandbox.Sandbox{}, false, err
	}
	if err := quota.CheckMax(c.Workspace, limits, req.Resources); err != nil {
		return sandbox.Sandbox{}, false, err
	}
	creation, err := s.creationFor(ctx, c, &req)
	if err != nil {
		return sandbox.Sandbox{}, false, err
	}
	quota.Cut(limits, &creation.Sandbox.Resources)
	if req.Command != nil {
		if err := guest.CheckLimits(req.Command.Limits, creation.Sandbox.Resources); err != nil {
			return sandbox.Sandbox{}, false, err
		}
	}
	kind := pool.Kind{Digest: creation.Sandbox.ImageDigest, Resources: creation.Sandbox.Resources}
	if req.Snapshot != "" && !prepare.PackagesOf(&creation.Sandbox).Empty() {
		kind.Digest = "" // it is made from neither the snapshot nor anything known yet
	}
	b, rec, err := s.recordIn(ctx, c, creation, &req, kind)
	switch old := rec.Sandbox; {
	case err != nil:
		return sandbox.Sandbox{}, false, err
	case rec.By == sandbox.MatchNone:
		s.pool.Created(kind)
		s.metrics.FromPool(b.warm, 1)
		if req.Command != nil {
			if err := s.executions.StartFirst(ctx, c, b.Box, req.Command, req.OneShot); err != nil {
				return sandbox.Sandbox{}, false, err
			}
		}
		sb = s.launch(b, s.makeRunning)
		s.awaitEnd(ctx, rec.Dying)
		return sb, true, nil
	case rec.By == sandbox.MatchKey && rec.RequestHash == creation.RequestHash:
		return old, false, nil
	case rec.By == sandbox.MatchKey:
		return sandbox.Sandbox{}, false, sandbox.Errorf(sandbox.Conflict,
			"this idempotency key was used for another request, which made sandbox %q (%s)", old.Name, old.ID)
	case rec.RequestHash == creation.RequestHash:
		return old, false, nil
	default:
		return sandbox.Sandbox{}, false, sandbox.Errorf(sandbox.Exists,
			"sandbox %q (%s) is %s and was made by a different request; destroy it first, or ask to replace it", old.Name, old.ID, old.State)
	}
}

// awaitEnd waits until a sandbox that is being destroyed has ended completely, or ctx ends. dying
// may be nil.
func (s *Service) awaitEnd(ctx context.Context, dying *sandbox.Sandbox) {
	if dying == nil {
		return
	}
	b := s.boxes.ByID(dying.ID)
	if b == nil {
		return // nothing is
	}
	for v := b.View(); !v.Sandbox.State.Ended(); v = b.View() {
		select {
		case <-v.Changed:
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// offers returns an error if the request needs a capability that this server lacks.
func (s *Service) offers(req *CreateRequest) error {
	if req.Network.Enabled {
		if err := s.networks.Offered(); err != nil {
			return err
		}
	}
	if len(req.AptPackages)+len(req.NpmPackages)+len(req.PipPackages) > 0 {
		if err := s.prepare.Offered(); err != nil {
			return err
		}
	}
	if req.Timeouts.OnIdle == sandbox.OnIdlePause {
		if _, err := s.saved.Checkpointer(); err != nil {
			return err
		}
	}
	return nil
}

// creationFor returns the record of a valid request, after it has found the image or snapshot.
func (s *Service) creationFor(ctx context.Context, c sandbox.Caller, req *CreateRequest) (sandbox.Creation, error) {
	if req.Snapshot != "" {
		return s.fromSnapshot(ctx, c, req)
	}
	img, err := s.catalogue.Choose(ctx, c.Workspace, catalogue.Wanted{ID: req.ImageID, Ref: req.Image, MemoryBytes: req.Resources.MemoryBytes})
	if err != nil {
		return sandbox.Creation{}, err
	}
	if err := s.prepare.CheckEnabled(ctx, img.Field, &img.Image); err != nil {
		return sandbox.Creation{}, err
	}
	creation := s.creation(c, req, &img.Image)
	creation.Sandbox.Image, creation.Sandbox.ImageID, creation.Sandbox.Registry = img.Reference(), img.ImageID, img.Registry
	creation.Event.Data["image"] = creation.Sandbox.Image
	if !img.VisibleTo(c.Workspace) {
		creation.Sandbox.ImageDigest = "" // not told before the registry lets the workspace have it
		return creation, nil
	}
	creation.Sandbox.ImageDigest = s.madeFrom(ctx, &creation.Sandbox)
	return creation, nil
}

// madeFrom returns the digest of the image, with packages, of a sandbox that is about to be
// created; "" if the image must be made first.
func (s *Service) madeFrom(ctx context.Context, sb *sandbox.Sandbox) string {
	d := prepare.PackagesOf(sb)
	if d.Empty() || sb.ImageDigest == "" {
		return sb.ImageDigest
	}
	return s.prepare.Installed(ctx, sb.ImageDigest, d)
}

// creation returns the record of a valid request.
func (s *Service) creation(c sandbox.Caller, req *CreateRequest, img *spec.Image) sandbox.Creation {
	now := time.Now().UTC()
	sb := sandbox.Sandbox{
		ID: cmp.Or(req.ID, sandbox.NewID()), Workspace: c.Workspace, State: sandbox.Provisioning,
		Name:  cmp.Or(req.Name, newName()),
		Image: img.Ref(), ImageDigest: img.Digest, Env: maps.Clone(req.Env), Labels: maps.Clone(req.Labels),
		Resources:     s.resources(req.Resources, img),
		ReadinessPort: img.ReadinessPort, TTL: cmp.Or(req.TTL, img.TTL), Timeouts: req.Timeouts, CheckpointInterval: req.CheckpointInterval,
		Network: sandbox.Network{Enabled: req.Network.Enabled}, URLAccess: req.URLAccess,
		AptPackages: slices.Clone(req.AptPackages), NpmPackages: slices.Clone(req.NpmPackages), PipPackages: slices.Clone(req.PipPackages),
		Description: req.Description, Metadata: maps.Clone(req.Metadata),
		CreatedBy: c.User, CreatedAt: now, UpdatedAt: now, LastActivityAt: now,
	}
	sb.HostLabel = cmp.Or(req.HostLabel, sandbox.HostLabel(sb.Name))
	sb.Published = req.Published
	sb.Publish(req.Network.Ports, now)
	return sandbox.Creation{
		Sandbox: sb, RequestHash: req.hash(),
		IdempotencyKey: req.IdempotencyKey, KeyLifetime: keyLifetime,
		Event: sandbox.Event{
			Time: now, Type: sandbox.EventCreated, Message: "the sandbox was asked for",
			Data: map[string]string{"image": sb.Image, "user": string(c.User)},
		},
	}
}

// resources returns the limits of a sandbox for which asked was requested.
func (s *Service) resources(asked sandbox.Resources, img *spec.Image) sandbox.Resources {
	fromImage := sandbox.Resources{MemoryBytes: img.MemoryBytes}
	for _, r := range quota.Fields {
		// A caller's wish beyond the maximum was refused; an image's is cut.
		value := cmp.Or(*r.Of(&asked), *r.Of(&fromImage), *r.Of(&s.cfg.Defaults))
		*r.Of(&asked) = min(max(value, r.Min), *r.Of(&s.cfg.Max))
	}
	return asked
}

// newName generates the name of a sandbox for which the caller chose none.
func newName() string {
	id := uuid.New().String() // the last 12 digits are 48 random bits
	return "sandbox-" + id[len(id)-12:]
}

// launch starts provisioning of a recorded sandbox in the background and returns the sandbox.
func (s *Service) launch(b *entry, makeRunning func(*entry) error) sandbox.Sandbox {
	b.Lock()
	defer b.Unlock()
	sb := b.Sandbox()
	if sb.State != sandbox.Provisioning {
		return sb // somebody was quick to destroy it
	}
	s.armTimer(b)
	// When the server closes at this moment, the next one ends the sandbox.
	b.Work.Add(1)
	b.provisioning = s.work.Go(func() {
		defer b.Work.Done()
		s.provision(b, makeRunning)
	})
	if !b.provisioning {
		b.Work.Done()
	}
	return sb
}
