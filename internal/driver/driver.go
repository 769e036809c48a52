package driver

import (
	"context"
	"net"

	"github.com/modbox/modbox/internal/sandbox"
)

// AgentPort is the TCP port, on the box's loopback, where its agent listens.
const AgentPort uint16 = 49983

// Driver runs boxes. The package comment defines the terms and the rules that
// hold for all methods.
type Driver interface {
	// Capabilities returns what this driver can do on this host. It is cheap, does not fail, and
	// does not change during the driver's life.
	Capabilities() Capabilities

	// Create makes the box of spec.ID with its limits, without running anything of the guest, and
	// returns its handle.
	//
	// Errors: Exists when the driver knows a box with that ID; Invalid for a spec that it cannot
	// honour, naming the field; Unsupported for a feature that this host lacks; Unavailable when
	// the host lacks resources. On any error, including a context that ends, nothing of the box
	// remains.
	// Not idempotent.
	Create(ctx context.Context, spec Spec) (Handle, error)

	// Start runs the agent in a created box. It returns when the guest runs, which may be shortly
	// before the agent listens: until then, Dial to [AgentPort] returns PortClosed, or a connection that
	// the agent will accept.
	//
	// Errors: NotFound; Conflict when it was started before; Unavailable when the box died. After
	// an error other than Conflict, Destroy is the only useful call. Not idempotent.
	Start(ctx context.Context, id sandbox.ID) error

	// Recover adopts a box made by an earlier driver on this host, from its handle. A recovered box
	// behaves like a box made by this driver.
	//
	// Errors: NotFound when no living box matches the handle: it ended, the host was restarted, or
	// it was never started; it wraps [EndedError] when the driver knows how the box ended. List returns
	// its remains, if any, and Destroy removes them. Invalid when h is not a handle of this driver.
	// Idempotent: recovering a known box succeeds and does nothing.
	Recover(ctx context.Context, id sandbox.ID, h Handle) error

	// Wait blocks until the box has ended, by itself or by Destroy, and returns how. It returns
	// within a second of the end, immediately when the box has ended already, and may be called
	// concurrently.
	//
	// Errors: NotFound; the context's error when it ends first, which does not affect the box.
	Wait(ctx context.Context, id sandbox.ID) (Exit, error)

	// Destroy ends the box, whatever it does, and removes everything of it from the host:
	// processes, mounts, cgroups, files, sockets, connections from Dial. It works in every state:
	// on a box that is half made, on a box that does not react to signals, and on the remains of a
	// box of an earlier driver that was not recovered. When it returns nil, nothing remains.
	//
	// Destroying a box that does not exist succeeds. Errors: Internal when something could not be
	// removed; call it again. A context that ends may leave the box partly removed; call it again.
	Destroy(ctx context.Context, id sandbox.ID) error

	// Dial connects to a TCP port inside a running box; it reaches servers bound to the box's
	// loopback or to all its addresses. On the connection no byte is lost, changed or reordered in
	// either direction, CloseWrite works when the returned value has it, and closing it frees
	// everything on both sides. The connection outlives ctx.
	//
	// [AgentPort] is special: its connection is for internal/agentapi alone, which speaks HTTP/2
	// and has at most agentapi.MaxInFlight unread bytes in transit. A driver may use a transport
	// for it that is correct only within that bound.
	//
	// Errors: NotFound; PortClosed when nothing listens there; Conflict when the box is not
	// started; AgentUnreachable when the driver needs the agent for the connection and it does not
	// answer; Unavailable when the box has ended.
	Dial(ctx context.Context, id sandbox.ID, port uint16) (net.Conn, error)

	// Stats measures a started box now. Fields that the driver cannot measure are 0; see
	// [sandbox.Stats]. Errors: NotFound; Unavailable when the box has ended.
	Stats(ctx context.Context, id sandbox.ID) (sandbox.Stats, error)

	// List returns the IDs of everything on the host that belongs to this driver: known boxes,
	// boxes of an earlier driver, and remains of boxes, in no order. A box being created or
	// destroyed meanwhile may or may not be included.
	List(ctx context.Context) ([]sandbox.ID, error)

	// Close releases all boxes without ending them and frees the driver's own resources. Calls in
	// progress return Unavailable. No method may be called afterwards. If Capabilities().Survives
	// is set, boxes keep running until Recover or Destroy of a later driver.
	Close() error
}

// Handle is a driver's opaque state for finding a box again. It is at most 4 KiB.
type Handle []byte

// Spec describes a box. All fields without "optional" must be set.
type Spec struct {
	ID sandbox.ID
	// Hostname is the guest's host name: 1 to 63 characters of [a-z0-9-].
	Hostname string
	// RootFS is the absolute host path of the read-only root image (EROFS). Drivers that are a
	// [Furnisher] accept "": a blank box, whose root is empty.
	RootFS string
	// Resources are enforced as [Capabilities] says.
	Resources sandbox.Resources
	// PlainTmp leaves /tmp a directory of the root image, so that files in it are written to the
	// root; otherwise /tmp is a separate file system that is not part of layers.
	PlainTmp bool
	// MaxProcesses limits processes and threads inside the box; 0 means 4096.
	MaxProcesses int64
}

// DefaultMaxProcesses is used when a spec sets none.
const DefaultMaxProcesses = 4096

// Exit is how a box ended.
type Exit struct {
	// Cause is CauseOOM when the whole box was ended for lack of memory, CauseDestroyed when
	// Destroy ended it, CauseWorkerLost when the worker of the box was lost, CauseHostRestart when the
	// worker has restarted without it, and CauseExited otherwise.
	Cause sandbox.CauseCode
	// Detail is a sentence about the end that is safe to show to users.
	Detail string
	// Fault is whether the box's own process failed, or may have: it was not killed, and its guest
	// did not exit. A process that cannot write because the host's disk is full fails this way.
	Fault bool
	// Lost is whether the box ended for none of the usual reasons (by itself, by Destroy, for lack
	// of memory): its processes were killed on the host, or the runtime below the guest crashed.
	Lost bool
}

// EndedError is the cause of an error of Recover for a box whose end is known.
type EndedError struct{ Exit Exit }

// Error implements error.
func (e EndedError) Error() string { return "the box has ended: " + e.Exit.Detail }

// Capabilities describes what a driver can do on this host.
type Capabilities struct {
	// Name of the driver, e.g. "gvisor".
	Name string
	// Platform is the platform of new boxes, if the driver has several, e.g. "systrap".
	Platform string
	// Isolated: programs in a box cannot reach the host. False for test drivers.
	Isolated bool
	// Survives: boxes keep running when the server's process ends.
	Survives bool
	// The limits that are enforced on this host.
	Memory, CPU, Processes, Disk bool
	// The optional interfaces that this driver implements, see optional.go.
	Checkpoint, Snapshot, Network, Furnish bool
	// Missing has a sentence for each limit or feature that this host lacks, with what to do about
	// it. Empty when there is none.
	Missing []string
}
