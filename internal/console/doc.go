// Package console serves the web console: its pages, its sign-in, and the API for its pages, at a
// host of its own that no page of a sandbox shares (docs/design/0040-console.md).
//
// The pages hold no token. A sign-in sets a cookie that no script can read; for a request of the
// console's own pages the package puts its content into the header Authorization, and passes the
// request to the API, which checks it as all others. Requests of pages of other origins are refused
// before anything reads the cookie.
//
// The files of the pages are built from the folder console of the repository into dist, and are part of
// the program. A program built without them serves a page that says how to build them.
package console
