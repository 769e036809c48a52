// Package storm kills the real server with SIGKILL at random moments while callers create, use,
// pause, resume, fork, snapshot and destroy sandboxes on real gVisor. Every answer that a caller
// got before a kill must hold after the restart, and when all sandboxes are destroyed nothing may
// remain.
//
// A storm is short unless MODBOX_TEST_STORM_MINUTES sets its length, as `make storm MINUTES=30`
// does. MODBOX_TEST_STORM_SEED repeats the choices of a storm and its moments, as far as the
// machine is as fast.
package storm
