// Package files has the routes of /v1 about the files in a sandbox.
package files
