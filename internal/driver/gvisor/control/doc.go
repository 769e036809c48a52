// Package control calls the gVisor of a box over its control socket. It implements gVisor's
// protocol, which is JSON: gVisor's own client has no deadlines, and while it works it has
// descriptors open that another box started at that moment would inherit.
//
// Every call ends with its context, and after a time that is far above all measured times: a guest
// can delay some answers. Answers are bounded. Files that a call passes to gVisor still belong to
// the caller, in the mode that they had.
//
// Errors are gVisor's own ([IsRemote]), the end of the context, or a connection that gVisor closed
// ([HungUp]) or did not accept ([ErrNotAsked]).
package control
