// Package sshd is a server for SSH clients: a login names a sandbox and a user of Modbox, and its
// sessions are commands, terminals, file transfers and connections to ports of that sandbox. All of
// it goes through the same calls into sandboxes as the requests of the HTTP API, with the same
// permissions.
//
// A login's rights are checked again for each channel, and the connection ends when the login loses
// them. Commands end when their channel or connection ends.
package sshd
