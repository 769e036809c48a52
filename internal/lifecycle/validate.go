package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/modbox/modbox/internal/network"
	"github.com/modbox/modbox/internal/prepare"
	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// validate checks what a caller asked for; errors name the field as on the wire.
func (c *Config) validate(req *CreateRequest) error {
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
	if err := c.shortest.CheckTTL(req.TTL); err != nil {
		return err
	}
	if err := quota.CheckWait(req.WaitForQuota); err != nil {
		return err
	}
	if err := quota.CheckAsked(c.Max, req.Resources); err != nil {
		return err
	}
	if err := c.shortest.CheckTimeouts(req.Timeouts); err != nil {
		return err
	}
	if err := sandbox.CheckCheckpointInterval(req.CheckpointInterval); err != nil {
		return err
	}
	if err := network.CheckPorts("network.ports", req.Network.Ports); err != nil {
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
func (req *CreateRequest) hash() string {
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
