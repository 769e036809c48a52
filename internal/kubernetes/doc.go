// Package kubernetes supplies workers as Pods: each box has a Pod of its own, with the resources of the box as its limits. [Pods] implements
// [fleet.Supplier]. docs/design/0058-pod-per-sandbox.md has the reasons.
//
// A Pod is made from a template, and has the id of its worker as a label. [Pods] watches the Pods that have its label, so it learns from
// Kubernetes that a Pod cannot start or has ended. Pods that it does not know, of a server that ended in between, are deleted.
package kubernetes
