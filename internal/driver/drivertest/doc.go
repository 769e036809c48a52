// Package drivertest is the contract of package driver as tests. Every driver runs all of them:
//
//	func TestDriver(t *testing.T) { drivertest.Run(t, newEnv) }
//
// A test is skipped only when the driver's Capabilities lack the feature that it tests. The program
// in the boxes is static, built from ./guest, and the tests copy it into the box through the agent:
// any root filesystem with a writable directory will do.
package drivertest
