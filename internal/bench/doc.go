// Package bench measures a Modbox server by its API and its command line, and reports the times, as
// text, JSON, Markdown and a page with plots. It makes nothing that it does not remove.
package bench
