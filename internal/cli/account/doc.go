// Package account has the commands about people and what they may do: sign-in, sessions,
// tokens, users, workspaces with their members and quotas.
package account
