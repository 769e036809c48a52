package creation

import (
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

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
	// a [Request]. The parent goes on meanwhile.
	WaitForQuota time.Duration
}

// CheckFork checks a request for a fork, and sets its Count.
func (c *Config) CheckFork(req *ForkRequest) error {
	if req.Count == 0 {
		req.Count = max(1, len(req.Names))
	}
	if req.Count < 1 || req.Count > sandbox.ForkMax {
		return sandbox.InvalidField("count", "must be 1 to %d", sandbox.ForkMax)
	}
	if len(req.Names) > req.Count {
		return sandbox.InvalidField("names", "has more names than there are children")
	}
	seen := map[string]bool{}
	for _, name := range req.Names {
		if err := sandbox.CheckText("names", name, 1, sandbox.NameMax); err != nil {
			return err
		}
		if seen[name] {
			return sandbox.InvalidField("names", "has %q twice", sandbox.Excerpt(name))
		}
		seen[name] = true
	}
	as := Request{Env: req.Env, Labels: req.Labels, TTL: req.TTL, WaitForQuota: req.WaitForQuota}
	if req.Timeouts != nil {
		as.Timeouts = *req.Timeouts
	}
	return c.Check(&as)
}

// Child returns the record of the child i, with an ID, of a fork that a user made of a parent. Errors: Invalid, naming the
// field.
func (req *ForkRequest) Child(id sandbox.ID, parent *sandbox.Sandbox, user sandbox.UserID, i int) (sandbox.Creation, error) {
	now := time.Now().UTC()
	sb := *parent
	sb.ID, sb.State, sb.Parent = id, sandbox.Provisioning, parent.ID
	sb.Name = NewName()
	if i < len(req.Names) {
		sb.Name = req.Names[i]
	}
	sb.HostLabel = sandbox.HostLabel(sb.Name)
	sb.Relabel(now)
	sb.Env, sb.Labels = Merged(sb.Env, req.Env), Merged(sb.Labels, req.Labels)
	sb.TTLFrom = time.Time{}
	if req.TTL != 0 {
		sb.TTL = req.TTL
	}
	if req.Timeouts != nil {
		sb.Timeouts = *req.Timeouts
	}
	if err := sandbox.CheckEnv(sb.Env); err != nil {
		return sandbox.Creation{}, err
	}
	if err := sandbox.CheckLabels(sb.Labels); err != nil {
		return sandbox.Creation{}, err
	}
	sb.Handle, sb.Saved, sb.SavedBytes, sb.FilesOnly = nil, "", 0, false
	sb.StartedAt, sb.PausedAt, sb.ArchivedAt, sb.LastCheckpointAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	sb.CreatedBy, sb.CreatedAt, sb.UpdatedAt, sb.LastActivityAt = user, now, now, now
	return sandbox.Creation{
		Sandbox: sb, RequestHash: "fork of " + string(parent.ID),
		Event: sandbox.Event{
			Time: now, Type: sandbox.EventCreated, Message: "the sandbox was forked from another",
			Data: map[string]string{"image": sb.Image, "user": string(user), "parent": string(parent.ID)},
		},
	}, nil
}
