// Package proxy serves the URLs of sandboxes.
//
// A URL names a sandbox by its host label, which has 80 random bits, or a published
// port by the port's label, which leads to the port and to nothing else. A client that
// knows a host label may request the management routes and the sandbox's servers. A
// private port also requires a token or a signed link, whichever label leads to it.
// URLs have two forms:
//
//	https://{label}.{domain}/…             with a base domain and wildcard DNS
//	{public URL}/s/{label}/…               on the server's own address, without any DNS
//
// and in both "{port}--{label}" in place of the label leads to another port than
// the sandbox's own:
//
//	https://3000--{label}.{domain}/…
//	{public URL}/s/3000--{label}/…
//
// # Path form
//
// Pages in path form would share an origin with the API. They are therefore
// answered with a Content-Security-Policy that gives them an opaque origin, and
// what a server could do to the whole origin is taken out: cookies in both
// directions, and headers such as Clear-Site-Data, also in trailers. Sites that need
// cookies need a base domain. Informational answers (103) are dropped in both forms.
//
// # What passes
//
// Requests and answers of any size, streaming both ways, WebSockets. Other
// upgrades are refused: an upgraded connection is out of the proxy's hands, and
// HTTP/2 on it would carry requests past every rule here. Our own tokens and
// headers never reach a sandbox. A sandbox's server is hostile: its headers and
// its time to answer are bounded, and so is the number of requests under way.
package proxy
