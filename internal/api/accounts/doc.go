// Package accounts has the routes of /v1 about accounts: sign-ins, tokens, users, workspaces, their
// members and quotas.
package accounts
