// Package modbox is the dialect of clients written for Modbox: the control plane at the server's
// root ([Control]) and the API on a sandbox's own URL ([DataPlane]). It translates requests to the
// lifecycle service and adds no feature that /v1 lacks.
//
// docs/dialects/modbox.md lists the decisions where the product's own documentation is silent.
package modbox
