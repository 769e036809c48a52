// Package fleet is a driver whose boxes are on several workers. [Driver] has a [remote.Driver] for each worker, and keeps the records of
// workers. docs/design/0054-several-workers.md has the reasons.
//
// # Where a box is
//
// The handle of a box names its worker and the memory that it counts with. [Driver.Stage] chooses the worker of a new box, because the
// files go there first: the worker with the most free memory that is connected, is not being drained, and can restore the checkpoint if
// there is one. If no worker has space, [Driver.MakeSpace] chooses boxes without a sandbox that give way. Create and Restore without a Stage before choose in the same way. All other calls go to the worker of the box.
//
// # A worker that is away
//
// Only the boxes of a worker feel that it is away. Their calls wait for it as [remote.Driver] does while its connection broke a moment
// ago; later they return Unavailable at once. Wait goes on. Recover of a box whose worker is away succeeds, and the box is recovered when
// the worker is back; if it has ended meanwhile, Wait returns then that it was lost. List and DiskUse return what the connected
// workers have.
//
// A box that Destroy does not know is destroyed on the workers that are connected. If its worker is away, List returns the box later. When
// a worker is back, it loses the boxes that are meanwhile on other workers.
//
// A worker that is away for longer than [Config].LostAfter is lost, with its boxes. When it connects, they are destroyed, and it joins as a new worker.
//
// A worker that was removed is never back: its boxes are lost. When it connects, they are destroyed, and it is refused.
//
// # A worker for each box
//
// With a [Supplier] the place of a new box is a worker that is made for it, and removed with its place. The workers that joined by themselves
// have no boxes then: the server learns from them what boxes can do. docs/design/0058-pod-per-sandbox.md has the reasons.
package fleet
