// Package agent runs inside every sandbox: it starts processes, keeps their output, transfers files
// and connects to ports, as specified by package agentapi.
//
// As PID 1 ([Options].Init) it is also the sandbox's init: it reaps every orphaned process, and it
// survives failures of other processes, a full disk and the loss of its own files. Everything that
// it stores is bounded, because it uses the sandbox's memory.
//
// Each process runs in a session of its own, so that ending it also ends the processes that it
// started: its process group, its session, and its living descendants. A process that has left all
// three is out of reach; it ends with the sandbox.
//
// For callers, a process has ended when it exited and all its output was read. Processes that it
// left running in the background may keep its output open: then the end is reported [drainGrace]
// after the exit, and their later output is read and discarded, so that they neither block nor get
// SIGPIPE.
package agent
