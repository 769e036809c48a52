// Package account defines users, their sessions and tokens, workspaces and their members. Package
// store stores them, and package auth checks permissions.
package account
