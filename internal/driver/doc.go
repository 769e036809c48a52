// Package driver is the boundary between the lifecycle of sandboxes and whatever
// runs them. Package driver/gvisor runs them on this host, driver/fake in
// memory, and driver/drivertest is this contract as tests, run whole by both.
//
// # Terms
//
// A box is the implementation of a sandbox by a driver: its processes, its private root
// filesystem, its limits, and whatever state the driver keeps on the host for
// it. Box and sandbox share the [sandbox.ID]; the driver never makes up ids.
//
// The root filesystem is read-only and shared: an image file named by
// [Spec.RootFS]. Writes go to the box's own writable layer, which is limited to
// [Spec.Resources].DiskBytes and dies with the box.
//
// The agent is PID 1 of every box, whatever the image holds. It listens on
// [AgentPort] and speaks internal/agentapi. The driver puts it there and starts
// it; the driver never talks to it except to reach other ports. Environment,
// entrypoint, commands and files are between the lifecycle and the agent, so no
// secret of a sandbox ever passes through a driver.
//
// A handle has the data that the driver needs to find a box again after the server was
// restarted: opaque bytes, stored with the sandbox's row by the lifecycle.
//
// # A life
//
//	h, err := d.Create(ctx, spec)      // resources exist, nothing of the guest has run
//	store(spec.ID, h)                  // from here a restarted server can Recover or Destroy
//	err = d.Start(ctx, spec.ID)        // the agent runs; it answers within milliseconds
//	conn, err := d.Dial(ctx, spec.ID, driver.AgentPort)
//	...
//	exit, err := d.Wait(ctx, spec.ID)  // blocks until the box ends by itself or is destroyed
//	err = d.Destroy(ctx, spec.ID)      // always, also after an exit: frees everything
//
// After a restart of the server the new driver knows no box:
//
//	for each live row: err := d.Recover(ctx, id, handle)  // adopted, or NotFound: it is gone
//	ids, err := d.List(ctx)                                // the boxes on the host
//	for each id without a row: d.Destroy(ctx, id)          // an orphan, or the rest of one
//
// # Rules for every method
//
// All methods may be called concurrently, for the same box too; the driver
// orders what conflicts. Errors carry codes of package sandbox: [sandbox.NotFound]
// for a box the driver does not know, and those each method names. A context
// that ends makes the call return soon with the context's error and leaves
// either nothing or something Destroy removes whole; it never leaves the driver
// stuck. Values passed in and out are not shared afterwards.
//
// Programs in a box are hostile, and so is the box's agent. No method blocks for
// ever on it, and nothing it says is used as a path, a pid or a size on the host.
package driver
