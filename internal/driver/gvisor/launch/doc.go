// Package launch describes a box to gVisor and starts its process: in namespaces and a control group
// of its own, as a user that owns nothing, with the files that it needs and no other.
//
// The guest does not run until package control starts it or loads a saved state.
package launch
