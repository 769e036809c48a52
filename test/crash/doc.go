// Package crash proves that a server killed at any moment loses no running
// sandbox and leaves nothing orphaned: it kills the real server with SIGKILL in
// the middle of storms of creates, commands and destroys on real gVisor.
package crash
