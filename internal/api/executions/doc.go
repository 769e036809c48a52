// Package executions has the routes of /v1 that run commands in sandboxes: commands within a request,
// executions that outlive it, and their streams.
package executions
