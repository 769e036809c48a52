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
// # Saved states
//
// A change of a sandbox as a whole (pause, resume, checkpoint, restore, fork) is an exclusive
// operation of its box, see [box.Box.Exclusively]: it runs in the background, and calls into the
// sandbox wait for its end. A call that finds the sandbox paused resumes it first; many calls at
// once share one resume.
//
// Pause records pausing with the id of the checkpoint to come, has the driver
// save and stop the box, and records paused. The checkpoint appears under its
// name only when it is whole, so that a restarted server knows from the row and
// the directory what became of it. Resume records resuming, restores the box,
// tells its agent who it is, and records running; whatever fails on the way leads
// back to paused. Going back to a named checkpoint is pausing with a copy of it,
// and resuming: never paused between, it keeps its place in the quota. A fork is
// one checkpoint and many restores under new ids, all recorded as provisioning, which
// takes their places in the quota, before the parent is saved. A named checkpoint, and the copy
// that a restore makes, is recorded as begun before its files are made and until a row has it.
// The sweep removes what no row has; the start, what a killed server had begun.
//
// # Who ends what
//
// A sandbox ends by a caller, by one of its clocks (ttl, idle, paused), by its own
// end, or by an error. A timer per sandbox looks at the clock that may run out
// next; a watcher per sandbox waits for its
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
// made), rows found destroying are finished. Rows found pausing become
// paused when the checkpoint is there, and else running; those found resuming
// become paused. Deadlines go on counting meanwhile.
// Only one server may use a database and a host's boxes at a time.
//
// # Locks
//
// The lock of a box orders the changes of its sandbox; it is held while a change is recorded.
// While it is held, only the lock of the index may be taken, which is never held for longer
// than a look-up.
package lifecycle
