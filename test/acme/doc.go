// Package acme has the tests of certificates from an ACME server, against Let's Encrypt's test server
// Pebble, which is built from its module, and a DNS server of the tests.
package acme
