// Package mcp gives AI applications sandboxes through the Model Context Protocol (MCP). A [Session] is
// a server of tools over the Go client: it does what the client's token may do, and nothing else.
//
// A session has a sandbox of its own, which the first call that needs it makes, and which ends with
// the session. A short ttl, which use extends, ends it when this program cannot. The argument
// "sandbox" of a tool names another sandbox.
package mcp
