// Package lifecycle is the service that every API of Modbox stands on: it makes
// every state change of a sandbox, and nothing else does.
//
// # Intent before work
//
// A change is recorded on the sandbox's row before its work starts, so that a
// server killed at any moment knows after its restart what to finish or undo:
// Create inserts the row as provisioning before it touches the driver; Destroy
// writes destroying, with the cause, before it frees anything. Moves between
// states are checked against the table in package sandbox by the store's
// compare-and-set, so two racing changes cannot both win.
//
// # Who ends what
//
// A sandbox ends by a caller, by its deadline, by its own end, or by an error.
// The reaper ends those whose deadline passed, within a second; a watcher per
// sandbox waits for its box to end by itself; the sweep finds, every few seconds,
// whatever is stuck or orphaned: rows without a box, boxes without a row,
// provisioning and destroying that nobody works on.
//
// # Restart
//
// Start re-adopts the box of every running row with the driver's Recover; what
// cannot be re-adopted is ended with cause host_restart. Rows found provisioning
// are ended too (nobody waits for their result any more, the box may be half
// made), rows found destroying are finished.
package lifecycle
