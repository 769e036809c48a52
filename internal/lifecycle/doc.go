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
// compare-and-set, so two racing changes cannot both win. A write whose answer
// was lost is found out by reading the row again.
//
// # A life
//
// Create records the row and returns. In the background the image is resolved,
// the box made and its handle recorded, the agent started and configured, the
// readiness port probed, and the row becomes running. Whatever goes wrong on the
// way, and whatever else ends a sandbox, takes the same path: the end and its
// cause are recorded (destroying), the work on the sandbox is stopped, the box is
// destroyed, however often that must be tried, and only then does the row say
// destroyed or failed. So an ended sandbox has left nothing on the host.
//
// # Who ends what
//
// A sandbox ends by a caller, by its deadline, by its own end, or by an error. A
// timer per sandbox ends it at its deadline; a watcher per sandbox waits for its
// box to end by itself; the sweep finds, every few seconds, whatever is stuck or
// orphaned: ends that could not be recorded, rows without a box, boxes without a
// row, work that nobody does, deadlines missed because the clock was set.
//
// What tells an orphan from a box that is just being made is the index of boxes
// in memory: a sandbox is in it before its row is written and until the row says
// that it ended. The index also answers look-ups of live sandboxes, so that a
// call into a running one does not touch the database.
//
// # Restart
//
// Start re-adopts the box of every running row with the driver's Recover; what
// cannot be re-adopted is ended with cause host_restart. Rows found provisioning
// are ended too (nobody waits for their result any more, the box may be half
// made), rows found destroying are finished. Deadlines go on counting meanwhile.
// Only one server may use a database and a host's boxes at a time.
//
// # Locks
//
// Each sandbox has a lock that orders its changes; it is held while a change is
// recorded. While it is held, only the locks of the index and of the service may
// be taken, and these are never held for longer than a look-up.
package lifecycle
