// Package kernel is the supervisor of interpreters inside a sandbox. It runs as a user of the
// sandbox, in a process of its own, because interpreters, which run any code, make it grow or fail.
// It starts Jupyter kernels for Python and R, and harnesses of ours for Bash and Node.js, and
// answers package kernelapi's requests on a Unix socket.
package kernel
