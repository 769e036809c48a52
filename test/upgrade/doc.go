// Package upgrade has the test of an upgrade in place: an older version of the program, built from the
// history of the repository, and the program under test on the same state.
package upgrade
