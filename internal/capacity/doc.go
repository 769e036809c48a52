// Package capacity measures the resources of a machine, and determines how much of them may be
// promised to all sandboxes together, and by default to a workspace.
package capacity
