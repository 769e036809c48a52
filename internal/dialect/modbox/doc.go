// Package modbox is the dialect that clients written for Modbox speak: the
// control plane at the server's root ([Control]) and what a sandbox answers on
// its own URL ([DataPlane]). It translates onto the lifecycle service and adds
// no power that /v1 lacks.
//
// docs/dialects/modbox.md says what was decided where the product's own
// documentation is silent.
package modbox
