// Package agentuity is the dialect that the published Agentuity clients speak.
// It translates onto the lifecycle service and adds no power that /v1 lacks.
//
// An organization is a workspace, and the ids are ours with a prefix: see
// sandboxID and its siblings. What the dialect must remember of a sandbox beyond
// what we record is kept in its labels, under "agentuity/".
//
// The clients are strict: optional fields are left out and never null, every
// success is 200 or 201 with a JSON object, and the errors they turn into typed
// ones arrive with status 200. docs/dialects/agentuity.md says what was decided
// where their contract is silent.
package agentuity
