// Package certificate gives the listener of the server its certificates: from files, which may be
// renewed while the server runs ([Files]), or from an ACME server such as Let's Encrypt ([ACME]).
package certificate
