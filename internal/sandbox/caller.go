package sandbox

import "slices"

// Caller makes a call: a user who acts within a workspace, and sees only that workspace's
// objects.
type Caller struct {
	User      UserID
	Workspace WorkspaceID
	// ReadOnly hides from the caller everything that gives access: the host label of a
	// sandbox, the stream that a command reads. Permission to call is checked elsewhere.
	ReadOnly bool
	// ShortIDs lets the caller name a sandbox by the beginning of its ID. Callers whose names for sandboxes come
	// from programs must not have it: a name may begin an ID by chance.
	ShortIDs bool
}

// Shown returns sb as the caller may see it.
func (c Caller) Shown(sb Sandbox) Sandbox {
	if c.ReadOnly {
		sb.HostLabel = ""
		sb.Published = slices.Clone(sb.Published)
		for i := range sb.Published {
			sb.Published[i].Label = ""
		}
	}
	return sb
}

// ShownExecution returns e as the caller may see it.
func (c Caller) ShownExecution(e Execution) Execution {
	if c.ReadOnly {
		e.Stdin = ""
	}
	return e
}
