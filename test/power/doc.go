// Package power asserts on real gVisor that what was answered with success is there
// after a loss of power, and that a database which does not fit what lies beside it, or a
// second server, costs no sandbox. It needs what package testserver says, and loop devices.
package power
