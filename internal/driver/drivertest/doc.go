// Package drivertest is the contract of package driver as tests. Every driver
// runs them whole:
//
//	func TestDriver(t *testing.T) { drivertest.Run(t, newEnv) }
//
// A test is skipped only when the driver's Capabilities say that it lacks what
// the test is about. What runs in the boxes is a static program built from
// ./guest, which the tests put there through the agent: the root filesystem may
// be any that holds a directory to write to.
package drivertest
