// Package agentuity is the dialect of the published Agentuity clients. It translates their requests
// to the lifecycle service and adds no feature that /v1 lacks.
//
// An organization is a workspace, and IDs are Modbox IDs with a prefix: see sandboxID and its
// siblings. Properties of a sandbox that the dialect needs beyond our record are stored in its
// labels, under "agentuity/".
//
// The clients are strict: optional fields must be omitted and never null, every success is 200 or
// 201 with a JSON object, and errors for which the clients have types arrive with status 200.
// docs/dialects/agentuity.md lists the decisions where their contract is silent.
package agentuity
