// Package sandboxes has the routes of /v1 about sandboxes: their states, checkpoints, environments,
// networks, events and use.
package sandboxes
