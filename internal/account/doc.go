// Package account defines accounts: users, their sessions and tokens, and the workspaces of which
// they are members. It stores nothing and checks no rights; see packages store and auth.
package account
