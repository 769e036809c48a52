// Package filesystemconnect has the handler of the service of package filesystem.
package filesystemconnect
