// Package power asserts on real gVisor that every change answered with success survives a loss of
// power, and that neither a database that does not fit the files beside it nor a second server
// costs a sandbox. It needs what package testserver needs, and loop devices.
package power
