// Package gvisor runs boxes on this host as gVisor sandboxes, without runsc, a daemon, KVM, host
// mounts or network interfaces.
//
// A box is a process tree: modbox-sandbox, which is gVisor's boot, and the processes in which
// gVisor runs guest code. The driver makes it with its own process attributes (package launch) and
// talks to it over gVisor's control socket (package control). It has a session of its own, so it survives the
// server.
//
// On the host a box consists of:
//
//	RunDir/boxes/<id>/state.json   what a later driver needs to know
//	RunDir/boxes/<id>/ctl.sock     gVisor's control socket
//	RunDir/boxes/<id>/agent.sock   the agent receives its connections here
//	RunDir/boxes/<id>/boot.log     why gVisor itself failed, if it did
//	StateDir/layers/<id>.*         the writable layer of a box whose disk is large
//	the control group <id>         see package cgroup
//
// # Root filesystem
//
// The root image is an EROFS file that gVisor maps, so that all boxes share its page cache and no
// file server process is needed. Writes go to a layer of limited size. It is in the box's memory
// when it is small relative to the memory limit, and in a file on disk otherwise (package layer). All
// guest-writable storage in memory is bounded, together to less than the box's memory.
//
// A root filesystem may be a layer over others, see package stack. gVisor knows only one image below a
// writable layer, so such a box boots with a frame, an image of mount points alone, in which the
// layers and the writable layer are mounted. The agent makes an overlay of them its root before it
// answers, and the frame disappears. Everything else is as in other boxes, also for checkpoints and
// for the reading of the writable layer.
//
// The agent is an EROFS image of its own, mounted at /.modbox. EROFS is read-only, and all boxes
// with the same agent version share the image.
//
// # Network
//
// A box has a network stack with nothing but a loopback. gVisor's port forwarding reaches it; it
// loses bytes when more than about two megabytes are in transit. Therefore only the agent's port is
// reached that way, and every other port through the agent's tunnel (dial.go).
//
// A running box can be given an interface whose other end is a socket in the server (network.go).
// gVisor does not save interfaces in a checkpoint.
//
// # Checkpoints
//
// gVisor saves a box into three files: its kernel, an index of memory pages, and the pages,
// including the pages of layers on disk. A manifest beside them lists what they need: the same
// gVisor, its processor's features, the agent and the root image (package saved). A box is restored
// by starting gVisor as for a new box, with layers of its own, and loading the files instead of
// starting the agent.
//
// A forwarded connection cannot be saved, so all are closed before a box is saved (save in
// checkpoint.go). A box that should stop is frozen from before it is saved to its end, and thawed
// when anything fails (freeze.go).
//
// # Layers of written files
//
// gVisor writes the upper layer as a tar into a pipe; package ocilayer converts it to a layer of an
// image on the way into an unlinked file. Since gVisor reads each file whole into its own memory,
// the box's limit is raised meanwhile (raise.go). A raised limit and a frozen box are recorded
// first, so that the next server can undo them after a crash.
//
// # Privileges
//
// Every box has a user namespace in which its root is an unprivileged user outside: the host's user
// nobody when the server is root, and the server's own user otherwise. gVisor gives up all
// capabilities before a guest runs.
package gvisor
