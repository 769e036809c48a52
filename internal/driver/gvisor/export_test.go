package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// Installation returns the name of the control group of the driver with that RunDir.
func Installation(runDir string) string {
	return paths{run: runDir}.installation()
}

// UseForwarding makes the driver create boxes as versions did that had only port forwarding.
func (d *Driver) UseForwarding() { d.forwards = true }

// MarkFrozen leaves a box like a server that died before (frozen: after) freezing it.
func (d *Driver) MarkFrozen(ctx context.Context, id sandbox.ID, frozen bool) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	if frozen {
		if err := b.quiet(ctx, false); err != nil {
			return err
		}
		return b.freezeQuiet(ctx)
	}
	return b.setFrozen(true)
}

// Release thaws a box that MarkFrozen left frozen.
func (d *Driver) Release(ctx context.Context, id sandbox.ID) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	return b.thaw(ctx)
}

// HangUp closes all connections into a box, as before it is saved.
func (d *Driver) HangUp(ctx context.Context, id sandbox.ID) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	return b.conns.hangUp(ctx, b.gvisor.HangUp)
}

// Stacks returns the stacks of all goroutines of a box's gVisor.
func (d *Driver) Stacks(ctx context.Context, id sandbox.ID) (string, error) {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return "", err
	}
	return b.gvisor.Stacks(ctx)
}

// SetGVisor records another version of gVisor as the version that runs a box.
func (d *Driver) SetGVisor(id sandbox.ID, version string) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	return b.update(func(s *state) { s.GVisor = version })
}

// SetPlatform records another platform as what runs a box.
func (d *Driver) SetPlatform(id sandbox.ID, name platform.Name) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	return b.update(func(s *state) { s.Platform = name })
}

// ForgetHandover records what an earlier version of Modbox records of a box that takes connections.
func (d *Driver) ForgetHandover(id sandbox.ID) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	return b.update(func(s *state) { s.Handover = false })
}

// KillHelper ends the process from which a box's other processes are forked.
func (d *Driver) KillHelper(id sandbox.ID) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	b.mu.Lock()
	mark := b.state.Helper
	b.mu.Unlock()
	if mark == nil {
		return process.ErrNone
	}
	helper, err := mark.Find()
	if err != nil {
		return err
	}
	defer helper.Close()
	return helper.Kill()
}

// Raise leaves a box like a server that died while it read the box's tree.
func (d *Driver) Raise(id sandbox.ID) error {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return err
	}
	return b.raiseMemory()
}

// MemoryLimit returns the limit of a box's group.
func (d *Driver) MemoryLimit(id sandbox.ID) (int64, error) {
	for _, pattern := range []string{"/sys/fs/cgroup/memory/%s/%s/memory.limit_in_bytes", "/sys/fs/cgroup/%s/%s/memory.max"} {
		data, err := os.ReadFile(fmt.Sprintf(pattern, d.host.paths.installation(), id))
		if err == nil {
			return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		}
	}
	return 0, errors.New("the group has no memory limit")
}

// RewriteManifest replaces text in a checkpoint's manifest and seals it again.
func RewriteManifest(dir, old, new string) error {
	m, err := saved.ReadManifest(dir)
	if err != nil {
		return err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	changed := bytes.Replace(body, []byte(old), []byte(new), 1)
	if bytes.Equal(changed, body) {
		return fmt.Errorf("the manifest does not hold %q: %s", old, body)
	}
	var edited saved.Manifest
	if err := json.Unmarshal(changed, &edited); err != nil {
		return err
	}
	return saved.WriteManifest(dir, edited)
}

// MakePlain makes a checkpoint look as if a version without digests had written it.
func MakePlain(dir string) error {
	m, err := saved.ReadManifest(dir)
	if err != nil {
		return err
	}
	m.Format, m.Sums = saved.FormatPlain, nil
	delete(m.Files, saved.LayerName)
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, saved.ManifestName), data, 0o600), os.Remove(filepath.Join(dir, saved.ManifestCopy)))
}

// CountSums returns the number of files for which a checkpoint has digests.
func CountSums(dir string) (int, error) {
	m, err := saved.ReadManifest(dir)
	return len(m.Sums), err
}

// TryPlatform runs a box, and a program in it, on a platform and removes it.
func (d *Driver) TryPlatform(ctx context.Context, on platform.Name, argv ...string) error {
	return d.tryPlatform(ctx, on, argv...)
}

// ChooseAs is ChoosePlatform with another device, and a try of another platform in place of KVM.
func (d *Driver) ChooseAs(ctx context.Context, device string, on platform.Name) (platform.Choice, error) {
	by := platform.New(d.host.paths.state, d.binary.Name())
	by.Device = device
	return d.choose(ctx, platform.Auto, by, on)
}

// Protect sets the scores of a box as after its start, and returns the number of its process.
func (d *Driver) Protect(id sandbox.ID) (pid int, err error) {
	b, err := d.boxes.lookup(id)
	if err != nil {
		return 0, err
	}
	process.SetScore(b.proc.PID, 1000)
	b.protectInOOM()
	return b.proc.PID, nil
}

// Crowded returns [crowded.full] for a container with a limit.
func Crowded(limit int64) (full func(unreclaimable int64) bool) { return (&crowded{limit: limit}).full }
