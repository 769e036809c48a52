package driver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Optional features are interfaces of their own. A driver that has a feature implements its
// interface and says so in [Capabilities]; callers use a type assertion. The rules of the package
// comment also apply to their methods.

// Checkpointer is a driver that can save a box, including its memory, and make boxes from a
// checkpoint. [Capabilities].Checkpoint announces it.
//
// A checkpoint is a directory that the driver fills. It exists completely or not at all: it appears
// under its name only when everything is on disk. It contains what it can be restored on, so it may
// be moved and copied, but never edited.
//
//	err := d.Checkpoint(ctx, id, dir, driver.CheckpointOptions{Stop: true})  // pause
//	err = d.Destroy(ctx, id)
//	...
//	err = d.CanRestore(dir)
//	h, err := d.Restore(ctx, spec, dir)     // resume: spec.ID == id; fork: a new id
//
// A checkpoint of the files alone has a layer and no memory. It depends neither on the runtime nor on the
// processor. Restore does not accept it: the caller makes a new box and gives its agent the layer.
//
// Connections from Dial do not survive a checkpoint of their box, whether it stops or not; the
// caller dials again. Processes, open files, listening sockets and connections within the box do.
// Connections over an interface are broken after a restore. The wall clock of a restored box is
// correct; the caller must send the agent its settings again (hostname, environment, fresh
// entropy).
//
// The files of a checkpoint are in no directory below it. Files whose names end in ".json" describe it: CanRestore reads
// no others, but may look at their sizes. The file [LayerFile] has the files of the box; Restore does not need it.
//
// A server that dies during Checkpoint leaves a directory whose name begins with ".new-" beside
// dir, for the caller to remove; the box goes on once it is recovered. With Stop, dir may exist
// while the box still lives: what the box did since is discarded.
type Checkpointer interface {
	// Checkpoint saves a started box into dir, which must not exist and whose parent must. The box
	// is frozen meanwhile. Without Stop it goes on afterwards; with Stop it has ended when nil is
	// returned, and must be destroyed; Wait returns CauseDestroyed. Dial to the agent waits until
	// the box is saved.
	//
	// Before the box goes on or ends, the checkpoint is checked as by [Checkpointer.CanRestore]; a
	// checkpoint that this driver could not restore is an error.
	//
	// Errors: NotFound; Conflict when the box is not started; Exists when dir does; Unsupported
	// with the reason why it could not be restored; Unavailable when the box ended meanwhile;
	// DiskFull. After an error dir does not exist and the box goes on as if nothing had happened.
	// Not idempotent.
	Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts CheckpointOptions) error

	// CanRestore reports whether Restore would accept dir on this host with this driver: nil, or
	// Unsupported with the reason (another runtime build, missing CPU features; [ErrNoMemory] for a
	// checkpoint of the files alone), or NotFound when dir is not a complete checkpoint. It is cheap
	// and does not read the memory image.
	CanRestore(dir string) error

	// Restore makes a running box of spec.ID from a checkpoint, like Create and Start together.
	// spec.RootFS must be the image of the saved box, and Resources.DiskBytes its disk size;
	// MaxProcesses stays what it was, whatever the spec says; the other fields may differ. The box
	// has no network interface. A checkpoint may be restored many times, also concurrently.
	//
	// Errors: as Create and CanRestore; Unsupported also when any part of the checkpoint turns out
	// to be damaged; Invalid, naming resources.memory, when the saved memory does not fit into it;
	// DiskFull; the context's when it ends first, which wraps [ErrAway] too if a deadline passed
	// without an answer of a worker: that says nothing about the checkpoint. On any error nothing of
	// the box remains and dir is unchanged. Not idempotent.
	Restore(ctx context.Context, spec Spec, dir string) (Handle, error)

	// OpenLayer returns the files that were saved with a checkpoint, in the form and with the
	// warnings of [Snapshotter.WriteLayer]. It works whether or not the checkpoint can be restored,
	// and even if other parts of it are damaged. The caller closes it. Errors: NotFound when dir
	// has none; Unsupported when it is damaged, also from a Read, which never returns damaged data.
	OpenLayer(dir string) (io.ReadCloser, error)

	// Verify reads a whole checkpoint and reports separately whether its memory, and the files
	// beside it, are intact: nil, or the error that Restore or OpenLayer has for the damaged or
	// missing part. It does not check whether this host can restore it. Checkpoints of versions of
	// Modbox without digests pass if they are complete. Errors: also the context's.
	Verify(ctx context.Context, dir string) (memory, files error)
}

// CheckpointOptions are options of Checkpoint. With the zero value the box goes on.
type CheckpointOptions struct {
	// Stop ends the box with the checkpoint.
	Stop bool
	// Layer also saves what the box has written as files, at the same moment, in case the memory
	// cannot be restored some day. If the files are larger than the box's disk, or the host's disk
	// is full, the checkpoint is made without them.
	Layer bool
	// FilesOnly saves the layer and no memory, which takes no memory on the disk. A layer that cannot be
	// saved is an error then: TooLarge when the files, including holes, exceed the box's disk; [ErrOmitted].
	FilesOnly bool
	// Volatile is whether the checkpoint may be lost in a failure of the host, which saves waiting
	// for its disk.
	Volatile bool
	// Unsynced is whether the files need not be on the disk when Checkpoint returns, because the caller copies them.
	Unsynced bool
	// Workspace has the box. Drivers that have more to do than they can do at a time share it fairly between workspaces.
	Workspace sandbox.WorkspaceID
	// MaxBytes bounds the files of a checkpoint that another host sends; 0 for no bound. See [MaxCheckpoint].
	MaxBytes int64 `json:"-"`
	// Take, if set, is called with Stop when the checkpoint is complete in dir and the box is still frozen. If it returns an
	// error, Checkpoint fails with it, and the box goes on. It returns soon when ctx ends.
	Take func(ctx context.Context, dir string) error `json:"-"`
}

// MaxCheckpoint bounds the size of a checkpoint of a box with resources: its memory, the files on its disk and in /tmp, which has up to a half
// of the disk's size, the files again as a layer whose headers describe what is in the memory, and descriptions.
func MaxCheckpoint(r sandbox.Resources) int64 {
	const descriptions = 256 << 20
	return 2*r.MemoryBytes + 3*r.DiskBytes + descriptions
}

// LayerFile is the name of the file of a checkpoint with its layer.
const LayerFile = "layer.tar"

// ErrNoMemory is the error for restoring a checkpoint of the files alone.
var ErrNoMemory = sandbox.Errorf(sandbox.Unsupported, "only the files of the sandbox were saved, not its memory")

// Tidier is a driver that stores files for boxes and checkpoints of earlier servers.
type Tidier interface {
	// Tidy removes files that neither a box on the host nor one of checkpoints, which must be all
	// checkpoints, needs any more. It must be called before anything is made.
	Tidy(checkpoints []string) error
}

// Carrier is a driver whose checkpoints need files outside of their directories. The files never change, and a name means the same
// content on every server.
type Carrier interface {
	// Needs returns the paths of the files that a restore of the checkpoint in dir needs. Errors: NotFound when dir is not a complete checkpoint.
	Needs(dir string) ([]string, error)
	// Place returns the path where Restore finds the file with a name. Errors: Invalid when no such file can have the name.
	Place(name string) (string, error)
}

// Reacher is a driver whose boxes may be out of reach for a while, and go on.
type Reacher interface {
	// Reach returns nil, or an error that wraps [ErrAway] while no call reaches the box. It does not wait.
	Reach(id sandbox.ID) error
}

// OutOfReach reports whether no call of a driver reaches a box at the moment.
func OutOfReach(d Driver, id sandbox.ID) bool {
	r, ok := d.(Reacher)
	return ok && r.Reach(id) != nil
}

// Placer is a driver of several hosts. Some hosts get no new sandboxes.
type Placer interface {
	// TakesSandbox reports whether a box without a sandbox may get one: its host is not being drained, and is not out of reach for long.
	TakesSandbox(id sandbox.ID) bool
	// MakeSpace returns which of candidates, boxes without a sandbox, are to be destroyed so that a host has space for the box of spec, after Stage of that has
	// returned [ErrFull]: none that is not necessary, and rather the first than the last of the list; none if a host has space by now. It reports false
	// if that does not help: the boxes are not enough on any host, or only on hosts that cannot restore the checkpoint, if there is one.
	MakeSpace(ctx context.Context, spec Spec, checkpoint string, candidates []sandbox.ID) (boxes []sandbox.ID, ok bool)
}

// Yielder is a driver whose boxes without a sandbox give way while boxes of sandboxes wait for their space.
type Yielder interface {
	// Crowded returns a channel that receives when a box waits; nil if none ever does.
	Crowded() <-chan struct{}
	// GiveWay returns which of candidates, boxes without a sandbox, the first rather than the last, is to be destroyed for a box that waits; "" if none
	// need be. The caller destroys it.
	GiveWay(candidates []sandbox.ID) sandbox.ID
}

// Stager is a driver that brings files to where boxes are made, which may take long. Create, Furnish and Restore
// never wait for that: they return [ErrNotStaged] for files that are not there.
type Stager interface {
	// Stage makes the root filesystem of spec and a checkpoint that is based on it, both or one of them, ready for Create, Furnish and
	// Restore of the box spec.ID, until release is called. "" is none. Without an ID they are ready for all boxes. It takes as long as the
	// files need, until ctx ends: callers call it before a time limit of a start begins. Transfers take turns between workspaces.
	// Several callers share the transfer of the same files. A driver of several hosts chooses the host of a new box here.
	//
	// Errors: Invalid for a path that names no root filesystem; NotFound when the checkpoint does not exist; DiskFull;
	// Unsupported when no host can restore the checkpoint; Unavailable when the transfer failed, which says nothing about
	// the files, or no host has space for the box; the context's.
	Stage(ctx context.Context, w sandbox.WorkspaceID, spec Spec, checkpoint string) (release func(), err error)
}

// Bringer is a driver whose boxes have hosts of their own, which have no files before their boxes need them.
type Bringer interface {
	// Bring has the host of a box get a root filesystem for a Stage that comes later. The host keeps it while it has space. It does nothing if the
	// box shares its host with others, or if the host has not enough space for more than one such root filesystem.
	//
	// Errors: NotFound if there is no box; otherwise as of [Stager].
	Bring(ctx context.Context, id sandbox.ID, rootfs string) error
	// MayFurnish reports whether the hosts of blank boxes have space for a root filesystem, beside another that was brought.
	MayFurnish(rootfs string) bool
}

// SaveReserver is a driver that saves only a few boxes at a time.
type SaveReserver interface {
	// ReserveSave waits until a box of a workspace may be saved. Saves take turns between workspaces. Until release is called,
	// Checkpoint of the box does not wait for other saves. Callers call it before they hold back calls into the box and before the time
	// limit of its save begins. Without it, Checkpoint waits itself.
	//
	// Errors: Unavailable when the box gets no turn or the driver closes; QuotaExceeded when too many boxes of the workspace wait; the
	// context's.
	ReserveSave(ctx context.Context, id sandbox.ID, w sandbox.WorkspaceID) (release func(), err error)
}

// ErrAway is wrapped by errors of calls that did not reach the worker, or whose answer did not arrive. They say nothing about a box.
var ErrAway = sandbox.Errorf(sandbox.Unavailable, "the worker is not connected")

// ErrFull is wrapped by errors of Stage which say that no host has space for the box.
var ErrFull = sandbox.Errorf(sandbox.Unavailable, "no worker has space for the sandbox")

// ErrNotStaged is the error of a call that needs files which are not staged, or not any more: the connection to the worker was lost.
var ErrNotStaged = sandbox.Errorf(sandbox.Unavailable, "the worker does not have the files of the sandbox yet; try again")

// Stage calls Stage of a driver that is a [Stager]. With others it does nothing.
func Stage(ctx context.Context, d Driver, w sandbox.WorkspaceID, spec Spec, checkpoint string) (release func(), err error) {
	if s, ok := d.(Stager); ok {
		return s.Stage(ctx, w, spec, checkpoint)
	}
	return func() {}, nil
}

// Snapshotter is a driver that can read what a box has written.
// [Capabilities].Snapshot announces it.
type Snapshotter interface {
	// WriteLayer writes the differences between the box's root filesystem and its image to w, as an
	// uncompressed OCI layer: a tar with whiteouts (".wh.name", ".wh..wh..opq"), without /proc,
	// /sys, /dev, /tmp and the agent's directory. It is consistent: the box is frozen while its
	// tree is read, and goes on, as far as the driver can arrange it, before w has received
	// everything.
	//
	// The guest has written the content: readers must treat it as hostile input. Holes in files
	// become zeros. Errors: NotFound; Conflict when the box is not started; Unavailable when it
	// ended meanwhile; TooLarge when the files, including holes, exceed the box's disk; w's errors.
	WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error

	// WriteNames is WriteLayer without the contents of files: each regular file is empty, and the record
	// [LayerSize] of its header has its size. Nothing is stored on the host, and the box is frozen until w
	// has everything, so w must not wait. The contents are read through nevertheless, which takes about a
	// second per gigabyte. Errors: also [ErrOmitted] when w has everything else; Timeout when the box would be frozen for more than [NamesTimeout],
	// and [ErrBusy] when so many boxes are being read that its turn does not come soon.
	WriteNames(ctx context.Context, id sandbox.ID, w io.Writer) error
}

// ErrOmitted is wrapped by errors of code Unsupported which say that a layer has everything but some names of files.
var ErrOmitted = errors.New("names of files are omitted")

// ErrBusy is wrapped by errors of code Unavailable which say that other boxes have their turn.
var ErrBusy = errors.New("other boxes have their turn")

// NamesTimeout bounds the time for which a box is frozen for [Snapshotter].WriteNames; the wait for its turn does
// not count.
const NamesTimeout = 30 * time.Second

// LayerSize is the PAX record with the size of a regular file, see [Snapshotter].
const LayerSize = "MODBOX.size"

// Furnisher is a driver that can start a box before its root filesystem is known.
// [Capabilities].Furnish announces it.
//
//	h, err := d.Create(ctx, spec)         // spec.RootFS is ""
//	err = d.Start(ctx, id)
//	...
//	n, err := d.Furnish(ctx, id, rootfs)
//	err = agent.Configure(ctx, agentapi.Config{Layers: n, ...})
//
// Until then Checkpoint, WriteLayer and WriteNames of the box return Conflict. Afterwards all methods treat it as a box
// that was created with that root filesystem.
type Furnisher interface {
	// Furnish gives a blank box its root filesystem, and returns the number of layers that the
	// first configuration of the agent must have.
	//
	// Errors: NotFound; Invalid for a rootfs that is no image; Conflict when the box is not started
	// or not blank; Unavailable when it has ended. After an error other than NotFound and
	// Conflict, Destroy is the only useful call. Not idempotent.
	Furnish(ctx context.Context, id sandbox.ID, rootfs string) (layers int, err error)
}

// Networker is a driver that can give a running box a network interface.
// [Capabilities].Network announces it.
type Networker interface {
	// Plug gives a started box the interface nic, or replaces its interface. The driver takes
	// ownership of nic.File, and closes it on errors also. Established connections over a replaced
	// interface break. Takes about a millisecond.
	//
	// Errors: NotFound; Conflict when the box is not started; Unavailable.
	Plug(ctx context.Context, id sandbox.ID, nic NIC) error

	// Unplug removes the interface; established connections break. Without an interface it does
	// nothing. Errors: NotFound; Unavailable.
	Unplug(ctx context.Context, id sandbox.ID) error
}

// NIC is a network interface whose other end belongs to the caller: the peer of File receives what
// the box sends, an Ethernet frame per packet.
type NIC struct {
	// File is an end of a SOCK_DGRAM socket pair, which does not tell the box when its peer has
	// gone. With SOCK_SEQPACKET, gVisor would read the end of file again and again if the peer
	// closed while frames are in transit.
	File *os.File
	// MAC is the interface's address, GatewayMAC the address of the peer.
	MAC, GatewayMAC net.HardwareAddr
	// Address is the interface's address and network; Gateway is the default route.
	Address netip.Prefix
	Gateway netip.Addr
	// MTU in bytes, without the Ethernet header.
	MTU int
}

// Meter is a driver that can measure cheaply what boxes use.
type Meter interface {
	// Usage returns what a started box uses, from the host's own counters, without asking the
	// guest. A box that has ended retains its CPU time until it is destroyed. Values that the host
	// cannot measure are 0. Errors: NotFound.
	Usage(ctx context.Context, id sandbox.ID) (Usage, error)
}

// DiskMeter is a driver that can measure cheaply how much disk boxes use.
type DiskMeter interface {
	// DiskUse returns how many bytes on the disk of the state directory hold data that boxes have
	// written, by box, from the host's own counters, without asking a guest. It includes boxes that
	// are being destroyed, and boxes of which only files remain, but not boxes that write to
	// memory.
	DiskUse() (map[sandbox.ID]int64, error)
}

// Usage is the use of resources by a box.
type Usage struct {
	CPU         time.Duration // of all cores together since the box was made
	MemoryBytes int64         // now
}
