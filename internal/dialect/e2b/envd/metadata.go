package envd

import (
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// metadataHeader begins the names of the headers of an upload that have the metadata of its files.
	metadataHeader = "X-Metadata-"
	// metadataKey begins the keys of this metadata in the sandbox, where its attributes are user.e2b.KEY as E2B's are.
	metadataKey = "e2b."
)

// metadataOf returns the metadata that the headers of an upload have, by its keys in the sandbox. The names of
// headers are the same in lower and upper case, so that keys are in lower case. Errors: Invalid, naming the header.
func metadataOf(h http.Header) (map[string]string, error) {
	metadata := map[string]string{}
	size := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok {
			continue
		}
		key, value := metadataKey+strings.ToLower(key), values[0] // of a header that is given twice E2B takes the first
		if key == metadataKey || len(key) > agentapi.MaxMetadataKey {
			return nil, sandbox.InvalidField(sandbox.Excerpt(name), "must have a key of 1 to %d characters", agentapi.MaxMetadataKey-len(metadataKey))
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, sandbox.InvalidField(name, "must be printable ASCII")
		}
		metadata[key] = value
		size += len(key) + len(value)
	}
	if len(metadata) > agentapi.MaxMetadata || size > agentapi.MaxMetadataBytes {
		return nil, sandbox.InvalidField(metadataHeader+"*", "must be at most %d headers whose keys, each with %q before it, and values have %d bytes",
			agentapi.MaxMetadata, metadataKey, agentapi.MaxMetadataBytes)
	}
	return metadata, nil
}

// shownMetadata returns the part of a file's metadata that a client of E2B sees.
func shownMetadata(metadata map[string]string) map[string]string {
	var shown map[string]string
	for key, value := range metadata {
		if key, ok := strings.CutPrefix(key, metadataKey); ok {
			if shown == nil {
				shown = map[string]string{}
			}
			shown[key] = value
		}
	}
	return shown
}
