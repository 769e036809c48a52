// Package forward carries requests that a server gets to another server: from a standby to an active server, and from an active server to the
// server that works on the sandbox of the request.
//
// A standby has a [Forwarder], to which it gives the addresses of the active servers ([Forwarder.Lead]). The forwarder passes each request on as it came, by
// [httputil.ReverseProxy]. The active server has a handler for these requests ([Accept]) on a listener of its own, to which only other servers can connect.
// There a header names the address from which the request came to the standby; headers of the client with this name are dropped. Everything else, such as
// X-Forwarded-For, is as the client has sent it, so the active server treats the request as if it had come there: the same tokens, limits, and lines in the logs.
//
// With several active servers, each has a forwarder around its handlers ([Forwarder.Late]). The handlers answer a request unless they find that another server
// works on its sandbox; then that server answers. A request that was forwarded in this way is not forwarded again (see [hop]).
//
// While no active server is known, or it accepts no connection, requests wait, some seconds and some hundred of them. A request that may have been executed is sent again only
// if that does no harm (see [call.again]).
package forward
