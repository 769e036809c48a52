// Package worker lets workers of a control plane join it, and connects them.
//
// The control plane has a certificate authority of its own ([Authority]) and a token, which is a secret and the
// digest of the authority's certificate. A worker that has the token knows the control plane by the digest. It
// sends the secret and a request for a certificate, and gets one for an hour. The control plane keeps the id and the key of each worker
// ([Record]): a worker proves later that it has the same key. With the certificate the worker opens a
// connection, on which both sides have proved who they are. Both happen on one address: the protocol of a connection is
// chosen within TLS 1.3. A connection may outlive its certificate.
package worker
