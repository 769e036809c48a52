// Package base has the parts that all commands share: the environment of an invocation with its
// streams and flags, the client for the server that the user means, logins that last between
// invocations, questions to the user, output, and errors with exit codes.
package base
