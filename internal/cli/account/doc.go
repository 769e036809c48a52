// Package account has the commands about people and their permissions: sign-in, sessions, tokens,
// users, workspaces with their members and quotas.
package account
