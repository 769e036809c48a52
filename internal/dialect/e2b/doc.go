// Package e2b is the dialect of the published E2B clients: the control plane with which they create,
// find and end sandboxes. It translates their requests to the lifecycle service and adds no feature
// that /v1 lacks. Package envd serves the calls into a sandbox, and package gateway finds out for which of the
// two a request is.
//
// The clients decide by the field code of an error's body, so every error has it. IDs must be lower
// case letters and digits, because they are a part of host names: see SandboxID.
// docs/dialects/e2b.md lists the routes, and the decisions where the clients' contract is silent.
package e2b
