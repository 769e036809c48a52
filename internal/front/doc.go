// Package front is the HTTP server of modbox/sandbox and modbox/sandbox-lite, inside the sandbox: all
// requests to the sandbox's URL come to it.
//
//	/                  200 when the programs behind the other paths answer, else 503
//	/cdp/              Chromium's DevTools protocol
//	/vnc/              a viewer of the screen, and the WebSocket that it uses
//	/terminal/         a terminal in a page, and the WebSocket that it uses
//	/mcp/shell         an MCP server with commands and files
//	/mcp/browser       an MCP server with the browser's pages
//
// Pages in the sandbox's own browser reach the same port. So everything that controls the sandbox
// answers only requests that came through the proxy of the server, which sets a header that pages
// cannot set.
package front
