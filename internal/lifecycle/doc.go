// Package lifecycle makes every state change of a sandbox. All APIs of Modbox use it, and no other
// package changes states.
//
// # Intent before work
//
// A change is recorded on the sandbox's row before its work starts, so that a server killed at any
// moment knows after its restart what to finish or undo: Create inserts the row as provisioning
// before it touches the driver; Destroy writes destroying, with the cause, before it frees
// anything. The store's compare-and-set checks transitions against the table in package sandbox, so
// that two racing changes cannot both win. If the answer of a write is lost, the service reads the
// row again.
//
// # A life
//
// Create records the row and returns. In the background the service resolves the image, makes the
// box and records its handle, starts and configures the agent, probes the readiness port, and
// changes the row to running. Every failure on the way, and every other end of a sandbox, takes the
// same path: the service records the end and its cause (destroying), stops the work on the sandbox,
// destroys the box, with as many attempts as necessary, and only then changes the row to destroyed
// or failed. So an ended sandbox uses nothing on the host.
//
// # Saved states
//
// A change of a sandbox as a whole (pause, resume, checkpoint, restore, fork) is an exclusive
// operation of its box, see [box.Box.Exclusively]: it runs in the background, and calls into the
// sandbox wait for its end. A call that finds the sandbox paused resumes it first; concurrent calls
// share a resume.
//
// Pause records pausing with the id of the new checkpoint, has the driver save and stop the box,
// and records paused. The checkpoint appears under its name only when it is complete, so that a
// restarted server knows the outcome from the row and the directory. Resume records resuming,
// restores the box, tells its agent the sandbox's identity, and records running; after any failure
// on the way the sandbox is paused again. A restore of a named checkpoint is a pause with a copy of
// it, and a resume: the sandbox is never paused in between, and so keeps its place in the quota. A
// fork is one checkpoint and many restores under new ids, all recorded as provisioning, which takes
// their places in the quota, before the parent is saved.
//
// A named checkpoint, and the copy that a restore makes, is recorded as begun before its files are
// made and until a row has it. The sweep removes checkpoints without a row; Start removes the
// checkpoints that a killed server had begun.
//
// # Who ends what
//
// A sandbox ends by a caller, by a time limit (ttl, idle, paused), by itself, or by an error. A
// timer per sandbox fires at its next time limit; a watcher per sandbox waits for its box to end by
// itself; the sweep finds, every few seconds, everything that is stuck or orphaned: ends that could
// not be recorded, rows without a box, boxes without a row, work without a goroutine, deadlines
// missed because the clock was set.
//
// The index of boxes in memory distinguishes an orphan from a box that is being made: a sandbox is
// in it before its row is written and until the row says that it ended. The index also answers
// look-ups of live sandboxes, so that a call into a running sandbox does not touch the database.
//
// # Restart
//
// Start re-adopts the box of every running row with the driver's Recover; it ends sandboxes that it
// cannot re-adopt with cause host_restart. It begins the starts of rows in state provisioning again,
// after their boxes, which may be half made, are gone, or ends these rows; package recovery decides.
// It finishes rows in state destroying. Rows
// in state pausing become paused if the checkpoint exists, and running otherwise; rows in state
// resuming become paused. Deadlines go on counting meanwhile. Only one server may use a database
// and a host's boxes at a time.
//
// # Locks
//
// The lock of a box orders the changes of its sandbox; it is held while a change is recorded. While
// it is held, only the lock of the index may be taken, which is never held for longer than a
// look-up.
package lifecycle
