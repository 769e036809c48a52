// Package capacity says what a machine has, how much of it all sandboxes together may be
// promised, and what one workspace may have of that when no setting says.
package capacity
