// Package remote is the contract of package driver over a connection between a control plane and a worker.
// [Driver] is the control plane's side: a driver whose boxes are on the worker's host. [Worker] is the other
// side: it serves a driver of its host to one control plane. docs/design/0052-remote-driver.md has the reasons.
//
// # A connection
//
// The caller makes the connection and authenticates both ends of it, see package worker. Streams of yamux are
// multiplexed on it, and the control plane opens all of them. Each call has a stream: a request, and an
// answer or more. The control plane ends its direction of the stream to cancel a call, and then waits for the
// answer, so that it knows what remains. After the answer to a Dial, the stream is the connection.
//
// # When a connection breaks
//
// The boxes stay. The worker cancels the calls in progress, and begins to serve another connection
// when all have ended. [Driver] then repeats calls that may be repeated, and finds out how the
// others ended:
//
//   - Wait goes on until its context ends, however long the worker is away.
//   - A box whose Create or Restore may have succeeded is destroyed, and the call returns Unavailable.
//   - A Checkpoint has succeeded if the control plane has all of it. Otherwise its box goes on.
//   - Staged files are staged no longer, and a transfer begins again.
//   - Start and Furnish return Unavailable.
//   - Interfaces of boxes are connected again. Connections from Dial are not.
//
// If the worker's process is another one, its driver knows no box: [Driver] has each of its boxes recovered at the
// next call for it. A new [Driver], after a restart of the control plane, gets a new driver on the worker.
//
// # Files
//
// No path of one side is used by the other. A root filesystem is named by the digests of its files, and the worker keeps them in a
// cache (package rootcache). A checkpoint is a directory of the control plane. [Driver.Stage] brings both to the worker before the
// calls that need them; a checkpoint stays there as long as it is staged. In a Checkpoint, the worker saves the box on its disk and sends the files, and a
// box that is to stop stays frozen until the control plane has them on its disk. Images of agents are never sent: a worker
// restores boxes only with the agents that it has had itself.
package remote
