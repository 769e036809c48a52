package sandbox

import "time"

// Runtime is a built-in image with what people want to know before they choose it.
type Runtime struct {
	// ID is that of the image, the same on every installation.
	ID ImageID
	// Name is how a request names it, such as "node:lts"; Image is the image's whole
	// reference.
	Name, Image string
	Description string
	// IconURL, Color (as "#rrggbb") and URL are the project's; empty when unknown.
	IconURL, Color, URL string
	Tags                []string
	// Requires is what a sandbox needs to be of use: what is 0 does not matter.
	Requires Resources
	// NeedsNetwork says that it is of little use without a network.
	NeedsNetwork bool
	// Readme is Markdown.
	Readme string
	// Digest and SizeBytes are those of its root filesystem; empty and 0 as long as
	// it is not built, which its first use does.
	Digest    string
	SizeBytes int64
	CreatedAt time.Time // when it was first built; zero when it is not
}

// ImagePhase is a step of making an image available, in the order in which they come.
type ImagePhase string

// ImageEvent is a moment of making an image available, for people to watch.
type ImageEvent struct {
	Phase ImagePhase
	// Done and Total count what Message is about; Total is 0 when unknown, and may
	// grow within a phase.
	Done, Total int64
	// Message is one short line.
	Message string
}
