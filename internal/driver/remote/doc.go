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
//   - A Checkpoint has succeeded if its directory is complete.
//   - Start and Furnish return Unavailable.
//   - Interfaces of boxes are connected again. Connections from Dial are not.
//
// If the worker's process is another one, its driver knows no box: [Driver] has each of its boxes recovered at the
// next call for it. A new [Driver], after a restart of the control plane, gets a new driver on the worker.
//
// # Paths
//
// Root images and checkpoints are paths on the worker's host. This version wants the control plane's
// state directory there, under the same path.
package remote
