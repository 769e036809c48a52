// Package fake is a complete driver in memory, for tests. Everything above the
// driver boundary is tested on it.
//
// WARNING: it isolates nothing. A box is the real agent of package agent, running
// in this process and rooted at a temporary directory: commands run as ordinary
// processes of THIS machine, as this process's user, with its network. Never run
// anything on it that you would not run in your own shell.
//
// A [Host] holds the boxes, as a machine would; a [Driver] is one server's view
// of it. Closing a driver and making another over the same host is a restart of
// the server. A host also does what machines do to boxes: [Host.End] ends one
// from inside, [Host.SetFaults] makes calls fail or hang.
//
// A box's loopback is this machine's. [Host.Listen] gives one box a server on a
// port of its own choice, which is needed for fixed ports such as 8080.
//
// A checkpoint with Stop keeps the box's processes on this machine, stopped. The
// first Restore of it under the same id lets them go on; every other Restore
// makes a box that has the files only. A network interface is noted and nothing
// else ([Host.NIC]).
package fake
