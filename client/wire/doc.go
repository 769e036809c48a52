// Package wire has the JSON shapes of requests and answers of /v1, for the server and for package client,
// which gives most of them names of its own. The tags of the fields carry the bounds and descriptions
// from which the OpenAPI document is made.
package wire
