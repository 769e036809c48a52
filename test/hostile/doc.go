// Package hostile proves, on real gVisor and the real server, that code which
// means harm stays harmless: each test lets a sandbox misbehave in one way and
// then asserts that the host, the server and a neighbour are healthy, that the
// caller got a clear answer, and that destroying the sandbox leaves nothing.
package hostile
