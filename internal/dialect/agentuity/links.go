package agentuity

import "github.com/modbox/modbox/internal/sandbox"

// URLs returns the URLs of the server and of sandboxes.
type URLs interface {
	// Server returns the URL of the server, without a slash at the end.
	Server() string
	// Sandbox returns the URL for the label of a published port, without a slash at the end.
	Sandbox(label string) string
}

// links makes the URLs in answers, and the descriptions and environment variables that contain them.
type links struct{ urls URLs }

// published returns the published port of a sandbox and its URL; 0 and "" for none.
func (h *links) published(sb *sandbox.Sandbox) (int, string) {
	if len(sb.Published) == 0 || sb.Published[0].Label == "" {
		return 0, ""
	}
	port := sb.Published[0]
	return int(port.Port), h.urls.Sandbox(port.Label)
}

// streamURL returns the URL of an output, with the time before every line if that was requested; ""
// for an output that was not requested.
func (h *links) streamURL(s sandbox.StreamRef, times bool) string {
	if s.Off {
		return ""
	}
	url := h.urls.Server() + "/streams/" + string(s.ID)
	if times {
		url += "?timestamps=true"
	}
	return url
}
