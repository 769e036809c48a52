// Package filesystem has the messages of the service that the .proto file of its name describes.
package filesystem
