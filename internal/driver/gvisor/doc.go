// Package gvisor runs boxes on this host as gVisor sandboxes, without runsc, a
// daemon, KVM, host mounts or network interfaces.
//
// A box is one process tree: modbox-sandbox, which is gVisor's boot, and the
// processes gVisor runs guest code in. The driver makes it with its own process
// attributes (launch.go) and talks to it over gVisor's control socket
// (control.go). It lives in a session of its own, so it survives the server.
//
// What a box consists of on the host:
//
//	RunDir/boxes/<id>/state.json   what a later driver must know
//	RunDir/boxes/<id>/ctl.sock     gVisor's control socket
//	RunDir/boxes/<id>/boot.log     why gVisor itself failed, if it did
//	StateDir/layers/<id>.*         the writable layer of a box whose disk is large
//	the control group <id>         see package cgroup
//
// # Root filesystem
//
// The root image is an EROFS file that gVisor maps, so all boxes share its page
// cache and no file server process is needed. Writes go to a layer of limited
// size. It is kept in the box's memory when it is small beside the memory limit,
// and in a file on disk otherwise (layer.go). Everything that guests can write
// to and that lives in memory is bounded, together to less than the box's memory.
//
// The agent is an EROFS image of its own, mounted at /.modbox. It is read-only
// by nature and every box of one agent version shares it.
//
// # Network
//
// A box has a network stack with nothing but a loopback. gVisor's port
// forwarding reaches it; it loses bytes when more than about two megabytes are
// under way, so only the agent's port is reached that way, and every other port
// through the agent's tunnel (dial.go).
//
// A box that runs can be given an interface whose other end is a socket in the
// server (network.go). gVisor keeps no interface in a checkpoint.
//
// # Checkpoints
//
// gVisor saves a box into three files: its kernel, an index of memory pages, and
// the pages, those of layers on disk too. A manifest beside them says what they
// need: the same gVisor, its processor's features, the agent and the root image
// (manifest.go). A box is restored by starting gVisor as for a new box, with
// layers of its own, and loading the files instead of starting the agent.
//
// A forwarded connection cannot be saved, so none exists while a box is saved
// (save in checkpoint.go). A box that is to stop is held still from before it is
// saved to its end, and let go on when anything fails (hold.go).
//
// # Layers of what was written
//
// gVisor writes the upper layer as a tar into a pipe; package ocilayer makes it
// a layer of an image on the way into a file without a name. Since gVisor reads
// each file whole into its own memory, the box's limit is lifted meanwhile
// (raise.go). What is lifted or held is written down first, so that a server that
// comes after a crash puts it right.
//
// # Privileges
//
// Every box has a user namespace in which its root is nobody special outside:
// the host's user nobody when the server is root, and the server's own user
// otherwise. gVisor gives up all capabilities before a guest runs.
package gvisor
