package driver

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// Optional powers are interfaces of their own. A driver that has one implements
// it and says so in [Capabilities]; callers ask by type assertion. The rules of
// the package comment hold for their methods too.

// Checkpointer is a driver that can save a box, memory included, and make boxes
// from what was saved. [Capabilities].Checkpoint announces it.
//
// A checkpoint is a directory that the driver fills. It is whole or it is not
// there: it appears under its name only when everything is on disk. It says
// itself what it can be restored on, so it may be moved and copied, never edited.
//
//	err := d.Checkpoint(ctx, id, dir, driver.CheckpointOptions{Stop: true})  // pause
//	err = d.Destroy(ctx, id)
//	...
//	err = d.CanRestore(dir)
//	h, err := d.Restore(ctx, spec, dir)     // resume: spec.ID == id; fork: a new id
//
// Connections from Dial do not outlive a checkpoint of their box, stopped or
// not; the caller dials again. Processes, open files, listening sockets and
// connections within the box do. Connections over an interface look broken after
// a restore. The wall clock of a restored box is right; what the agent must be
// told anew (hostname, environment, fresh entropy) is the caller's matter.
//
// A server that dies in the midst of Checkpoint leaves a directory whose name
// begins with ".new-" beside dir, for the caller to remove; the box goes on once
// it is recovered. With Stop it may be that dir is there and the box still lives:
// what it did since does not count.
type Checkpointer interface {
	// Checkpoint saves a started box into dir, which must not exist and whose parent
	// must. The box stands still meanwhile. Without Stop it goes on afterwards;
	// with Stop it has ended when nil is returned, and is to be destroyed; Wait says
	// CauseDestroyed. Dial to the agent waits until the box is saved.
	//
	// What was written is looked at as [Checkpointer.CanRestore] does while the box
	// still stands: one that this driver could not restore is refused.
	//
	// Errors: NotFound; Conflict when the box is not started; Exists when dir does;
	// Unsupported with the reason why it could not be restored; Unavailable when the
	// box ended meanwhile; DiskFull. After an error dir does not exist and the box
	// goes on as if nothing had happened. Not idempotent.
	Checkpoint(ctx context.Context, id sandbox.ID, dir string, opts CheckpointOptions) error

	// CanRestore says whether Restore would take dir on this host with this
	// driver: nil, or Unsupported with the reason (another runtime build, CPU
	// features that are missing), or NotFound when dir is no whole checkpoint.
	// It is cheap and reads no memory image.
	CanRestore(dir string) error

	// Restore makes a running box of spec.ID from a checkpoint, like Create and
	// Start in one. spec.RootFS must be the image of the box that was saved, and
	// Resources.DiskBytes what it was; MaxProcesses stays what it was, whatever the
	// spec says; the other fields may differ. The box has no network interface. One
	// checkpoint may be restored many times, at once too.
	//
	// Errors: as Create and CanRestore, Unsupported also when what was saved turns out
	// to be damaged, which is found whatever was damaged; Invalid, naming resources.memory, when what was saved does not
	// fit into it; DiskFull. On any error nothing of the box is left and
	// dir is untouched. Not idempotent.
	Restore(ctx context.Context, spec Spec, dir string) (Handle, error)

	// OpenLayer returns the files that were saved with a checkpoint, in the form and
	// with the warnings of [Snapshotter.WriteLayer]. It works whether or not the
	// checkpoint can be restored, also where other parts of it are damaged. The
	// caller closes it. Errors: NotFound when dir holds none; Unsupported when it is
	// damaged, also from a Read of it, which returns nothing that is damaged.
	OpenLayer(dir string) (io.ReadCloser, error)

	// Verify reads a checkpoint whole and says of its memory, and of the files beside
	// it, whether it is as it was written: nil, or the error that Restore or OpenLayer
	// has for what is damaged or missing. It does not say whether this host can restore
	// it. What was saved by versions of Modbox without digests passes as long as it is
	// there. Errors: also the context's.
	Verify(ctx context.Context, dir string) (memory, files error)
}

// CheckpointOptions say what happens to the box. The zero value lets it go on.
type CheckpointOptions struct {
	// Stop ends the box with the checkpoint.
	Stop bool
	// Layer saves what the box has written as files too, at the same standstill, for
	// the day when the memory cannot be restored any more. When that cannot be had,
	// because the files are larger than the box's disk or the host's is full, the
	// checkpoint is made without.
	Layer bool
	// Volatile says that the checkpoint need not survive a failure of the host, which
	// saves waiting for its disk.
	Volatile bool
}

// Tidier is a driver that keeps things for boxes and checkpoints of earlier servers.
type Tidier interface {
	// Tidy removes what neither a box on the host nor one of the checkpoints, which
	// are all there are, needs any more. It is called before anything is made.
	Tidy(checkpoints []string) error
}

// Snapshotter is a driver that can read what a box has written.
// [Capabilities].Snapshot announces it.
type Snapshotter interface {
	// WriteLayer writes everything by which the box's root filesystem differs from
	// its image to w, as an uncompressed OCI layer: a tar with whiteouts (".wh.name",
	// ".wh..wh..opq"), without /proc, /sys, /dev, /tmp and the agent's directory. It
	// is consistent: the box stands still while its tree is read, and goes on
	// before w has taken everything as far as the driver can arrange it.
	//
	// What comes out was written by the guest: it is hostile input to whoever reads
	// it. Holes in files come out as zeros. Errors: NotFound; Conflict when the box is
	// not started; Unavailable when it ended meanwhile; TooLarge when the files, holes
	// included, exceed the box's disk; w's errors.
	WriteLayer(ctx context.Context, id sandbox.ID, w io.Writer) error
}

// Networker is a driver that can give a running box a network interface.
// [Capabilities].Network announces it.
type Networker interface {
	// Plug gives a started box the interface nic, or replaces the one it has. The
	// driver takes over nic.File, and closes it on an error too. Established
	// connections over a replaced interface are broken. Takes about a millisecond.
	//
	// Errors: NotFound; Conflict when the box is not started; Unavailable.
	Plug(ctx context.Context, id sandbox.ID, nic NIC) error

	// Unplug takes the interface away; established connections are broken. Without
	// one it does nothing. Errors: NotFound; Unavailable.
	Unplug(ctx context.Context, id sandbox.ID) error
}

// NIC is a network interface whose other end is in the caller's hands: what the
// box sends can be read from the peer of File, one Ethernet frame a packet.
type NIC struct {
	// File is one end of a SOCK_DGRAM socket pair, which does not tell the box when
	// its peer has gone: of a SOCK_SEQPACKET that ends while frames are under way,
	// gVisor reads the end again and again.
	File *os.File
	// MAC is the interface's address, GatewayMAC that of the peer.
	MAC, GatewayMAC net.HardwareAddr
	// Address is the interface's address and network; Gateway the next hop for all else.
	Address netip.Prefix
	Gateway netip.Addr
	// MTU in bytes, without the Ethernet header.
	MTU int
}

// Meter is a driver that can tell cheaply what boxes use.
type Meter interface {
	// Usage returns what a started box uses, from the host's own counters, without
	// asking the guest. A box that has ended keeps its CPU time until it is
	// destroyed. What the host cannot tell is 0. Errors: NotFound.
	Usage(ctx context.Context, id sandbox.ID) (Usage, error)
}

// DiskMeter is a driver that can tell cheaply what boxes take on the disk.
type DiskMeter interface {
	// DiskUse returns the bytes on the disk of the state directory that are taken by
	// what boxes have written, by box, from the host's own counters, without asking a
	// guest. It includes boxes that are being destroyed, and boxes of which only files
	// are left. Boxes that write to memory are missing.
	DiskUse() (map[sandbox.ID]int64, error)
}

// Usage is what a box uses.
type Usage struct {
	CPU         time.Duration // of all cores together since the box was made
	MemoryBytes int64         // now
}
