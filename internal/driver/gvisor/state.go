package gvisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/driver/gvisor/cgroup"
	"github.com/modbox/modbox/internal/driver/gvisor/layer"
	"github.com/modbox/modbox/internal/driver/gvisor/platform"
	"github.com/modbox/modbox/internal/driver/gvisor/process"
	"github.com/modbox/modbox/internal/driver/gvisor/saved"
	"github.com/modbox/modbox/internal/sandbox"
)

// stateName is the file in a box's directory that has its state.
const stateName = "state.json"

// handleVersion changes when an older server could misread a handle or a state.
const handleVersion = 1

// handle identifies a box's process for ever: process numbers are reused, but not with the same
// start time since the same boot.
type handle struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Start   uint64 `json:"start"`
	Boot    string `json:"boot"`
}

// state has the data about a box that a later driver needs, stored in its directory.
type state struct {
	Handle    handle            `json:"handle"`
	Started   bool              `json:"started"`
	Resources sandbox.Resources `json:"resources"`

	// A checkpoint of the box depends on these. GVisor is the version that runs it, which after an
	// upgrade is not the driver's version.
	GVisor       string          `json:"gvisor"`
	MaxProcesses int64           `json:"max_processes"`
	Layout       layer.Layout    `json:"layout"`
	RootFS       saved.ImageMark `json:"rootfs"`
	Agent        string          `json:"agent"`           // name of the agent's image
	Frame        string          `json:"frame,omitempty"` // of the frame's image, see [saved.Manifest]
	// Framed is set for a box with a single-layer root that the agent assembled, as in a box that began blank.
	Framed bool `json:"framed,omitempty"`
	// Handover is whether the agent takes connections by [control.Client.HandOver]. Boxes of earlier
	// versions of Modbox do not.
	Handover bool `json:"handover,omitempty"`
	// Platform runs the box; "" is systrap.
	Platform platform.Name `json:"platform,omitempty"`

	// Helper is the process from which processes that run guest code are forked, see
	// [box.watchHelper]. Nil when it is not known.
	Helper *process.Mark `json:"helper,omitempty"`

	// Links is how many network interfaces the box has been given.
	Links int `json:"links,omitempty"`
	// Frozen is whether the driver may have frozen the box, see [box.freeze].
	Frozen bool `json:"held,omitempty"`
	// Raised is whether the memory limit may be raised, see [box.raiseMemory].
	Raised bool `json:"raised,omitempty"`
}

// blank reports whether the box has no root filesystem yet.
func (b *box) blank() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.RootFS == saved.ImageMark{}
}

// format returns the format of the box's checkpoints.
func (s state) format() int {
	switch {
	case s.Handover && s.Platform != "":
		return saved.FormatPlatform
	case s.Handover:
		return saved.FormatHandover
	case s.Framed:
		return saved.FormatFramed
	}
	return saved.Format
}

// limits of the box's group.
func (s state) limits() cgroup.Limits { return limits(s.Resources, s.MaxProcesses) }

func (h handle) encode() (driver.Handle, error) { return json.Marshal(h) }

func decodeHandle(h driver.Handle) (handle, error) {
	var v handle
	d := json.NewDecoder(bytes.NewReader(h))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.Version != handleVersion || v.PID <= 1 || v.Boot == "" {
		return handle{}, sandbox.InvalidField("handle", "this is not a handle of the gvisor driver")
	}
	return v, nil
}

// find returns the running process that the handle identifies, or [process.ErrNone].
func (h handle) find() (*process.Process, error) {
	if h.Boot != process.BootID() {
		return nil, process.ErrNone
	}
	return process.Mark{PID: h.PID, Start: h.Start}.Find()
}

func readState(dir string) (state, error) {
	data, err := os.ReadFile(filepath.Join(dir, stateName))
	if err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("read %s: %w", filepath.Join(dir, stateName), err)
	}
	return s, nil
}

// write replaces the state atomically. It does not survive a power failure, and need not: neither
// does the box.
func (s state) write(dir string) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, stateName)
	if err := os.WriteFile(name+".new", data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// update changes the box's state, in memory and in its directory.
func (b *box) update(change func(*state)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.updateLocked(change)
}

// updateLocked is update for callers that hold b.mu.
func (b *box) updateLocked(change func(*state)) error {
	change(&b.state)
	if b.destroyed { // its directory is being removed, which a new file in it would prevent
		return nil
	}
	return b.state.write(b.dir)
}
