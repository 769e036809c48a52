// Package accounts has the SQL of accounts: users, workspaces and their members, invitations, sessions and
// tokens. The rules of package store hold for it.
package accounts
