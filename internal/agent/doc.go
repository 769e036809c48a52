// Package agent is what runs inside every sandbox: it starts processes, keeps
// their output, moves files and reaches ports, as package agentapi says.
//
// As PID 1 ([Options].Init) it also is the sandbox's init: it reaps every
// process nobody waits for, and it outlives whatever runs beside it, a full disk
// and the loss of its own files. Everything it keeps is bounded, because its
// memory is the sandbox's.
//
// A process runs in its own session, so ending it can reach what it started:
// its process group, its session, and its living descendants. What left all
// three is out of reach; it ends with the sandbox.
//
// A process has ended for its caller when it exited and all it had written was
// read. What it left running in the background may hold its output open: the end
// is then told [drainGrace] after the exit, and what such processes write
// later is read and dropped, so that they never block or break on it.
package agent
