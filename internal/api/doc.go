// Package api is /v1: its routes, and what belongs to the server around them
// (health, metrics, the OpenAPI document). A handler decodes, calls lifecycle,
// encodes; rules are elsewhere.
//
// JSON routes are declared to huma, which validates requests and describes
// answers. Routes whose bodies are streams (files, exec streams, attach)
// are plain handlers on the same mux, described by hand in the document.
//
// Package wire has the shapes, package edge the wrapper around all handlers,
// package execution the routes that run commands.
package api
