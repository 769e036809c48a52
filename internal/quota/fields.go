package quota

import (
	"math"

	"github.com/modbox/modbox/internal/sandbox"
)

// Field describes one field of sandbox.Resources for checks and messages.
type Field struct {
	Name  string // on the wire
	Limit Limit  // the most that one sandbox may have of it
	// Of returns where the field is in some resources.
	Of func(*sandbox.Resources) *int64
	// Min and Max bound what any sandbox may have.
	Min, Max int64
	// Show formats a value as callers write it.
	Show func(int64) string
}

// Fields are all fields of sandbox.Resources.
var Fields = []Field{
	{"memory", LimitSandboxMemory, func(r *sandbox.Resources) *int64 { return &r.MemoryBytes }, sandbox.MemoryMin, math.MaxInt64, sandbox.ShowBytes},
	{"cpu", LimitSandboxCPU, func(r *sandbox.Resources) *int64 { return &r.CPUMilli }, sandbox.CPUMilliMin, sandbox.CPUMilliMax, sandbox.ShowMilli},
	{"disk", LimitSandboxDisk, func(r *sandbox.Resources) *int64 { return &r.DiskBytes }, sandbox.DiskMin, math.MaxInt64, sandbox.ShowBytes},
}

// CheckAsked checks resources that a caller asked for against the maximum of this server; 0 is a
// default. Errors: Invalid, naming the field.
func CheckAsked(most, asked sandbox.Resources) error {
	for _, f := range Fields {
		switch n := *f.Of(&asked); {
		case n == 0:
		case n < f.Min:
			return sandbox.InvalidField("resources."+f.Name, "must be at least %s", f.Show(f.Min))
		case n > *f.Of(&most):
			return sandbox.InvalidField("resources."+f.Name, "must be at most %s, the maximum of this server", f.Show(*f.Of(&most)))
		}
	}
	return nil
}

// CheckAsked checks resources that a caller asked for, as the function of this name.
func (c *Controller) CheckAsked(asked sandbox.Resources) error { return CheckAsked(c.cfg.Max, asked) }

// CheckMax returns an error with code Invalid that names the field when resources are beyond
// what the limits of a workspace allow one sandbox.
func CheckMax(ws sandbox.WorkspaceID, limits Limits, asked sandbox.Resources) error {
	most := limits.SandboxMax()
	for _, f := range Fields {
		if m := *f.Of(&most); m > 0 && *f.Of(&asked) > m {
			return sandbox.InvalidField("resources."+f.Name, "must be at most %s, the maximum of a sandbox in workspace %s (quota %s)", f.Show(m), ws, f.Limit)
		}
	}
	return nil
}

// Cut reduces resources that no caller asked for to what the limits allow one sandbox.
func Cut(limits Limits, have *sandbox.Resources) {
	most := limits.SandboxMax()
	for _, f := range Fields {
		if m := *f.Of(&most); m > 0 {
			*f.Of(have) = min(*f.Of(have), m)
		}
	}
}
