// Package process has the messages of the service that the .proto file of its name describes.
package process
