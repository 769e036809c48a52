// Package fake is a complete driver in memory, for tests. Everything above the driver boundary is
// tested on it.
//
// WARNING: it isolates nothing. A box is the real agent of package agent, running in this process
// and rooted at a temporary directory: commands run as ordinary processes of THIS machine, as this
// process's user, with its network. Never run anything on it that you would not run in your own
// shell.
//
// A [Host] holds the boxes, as a machine would; a [Driver] is a server's view of it. Closing a
// driver and making another over the same host is a restart of the server. A host can also do to
// boxes what machines do: [Host.End] ends a box from inside, [Host.SetFaults] makes calls fail or
// hang.
//
// A box's loopback is this machine's. [Host.Listen] gives a box a server on a port of its choice,
// which tests need for fixed ports such as 8080.
//
// A checkpoint with Stop leaves the box's processes stopped on this machine. The first Restore of
// it under the same ID continues them; every other Restore makes a box with the files only. A
// network interface is recorded and not used ([Host.NIC]).
package fake
