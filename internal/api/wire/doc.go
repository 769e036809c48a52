// Package wire is what travels on /v1: the JSON shapes of requests and answers,
// and [Problem], the shape of errors, with the one table between error codes
// and HTTP statuses. It holds no behaviour beyond that; struct tags carry the
// descriptions that end up in the OpenAPI document.
package wire
