package client

import (
	"time"
)

// Runtime is a built-in image with what people want to know before they choose it.
type Runtime struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`  // what create takes as its image, e.g. "node:lts"
	Image        string       `json:"image"` // its whole reference
	Description  string       `json:"description"`
	IconURL      string       `json:"icon_url,omitempty"`
	Color        string       `json:"color,omitempty"` // "#rrggbb"
	URL          string       `json:"url,omitempty"`
	Tags         []string     `json:"tags"`
	Requirements Requirements `json:"requirements"`
	Readme       string       `json:"readme,omitempty"` // Markdown
	Built        bool         `json:"built"`            // else its first use builds it
	Digest       string       `json:"digest,omitempty"`
	SizeBytes    int64        `json:"size_bytes"`
	CreatedAt    *time.Time   `json:"created_at"` // nil while it is not built
}

// Requirements are what a sandbox of a runtime needs at least; "" does not matter.
type Requirements struct {
	Memory  string `json:"memory,omitempty"`
	CPU     string `json:"cpu,omitempty"`
	Disk    string `json:"disk,omitempty"`
	Network bool   `json:"network"`
}

// Runtimes lists the built-in images that sandboxes can be made from, by name. One
// that is not built is built by its first use.
func (c *Client) Runtimes() *List[Runtime] { return newList[Runtime](c, "/v1/runtimes", nil) }
