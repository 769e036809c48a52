// Package images has the routes of /v1 about images: pulled, built and pushed images, the catalogue of a
// workspace and its registries.
package images
