// Package mcphttp serves MCP sessions over HTTP (streamable HTTP), with a session of package mcp for
// each client.
//
// A session calls the API of the same server in this process, with the token of the client's latest
// request: the API checks rights and limits, and records each call, as for every other caller. A
// session belongs to the token that began it, and to the workspace of that request.
package mcphttp
