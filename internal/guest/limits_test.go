package guest

import (
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/agentapi"
)

// TestMetadataOfAHostileAgent describes files with more metadata than an agent answers.
func TestMetadataOfAHostileAgent(t *testing.T) {
	few, many := map[string]string{}, map[string]string{}
	for i := range agentapi.MaxMetadata + 1 {
		if many[strconv.Itoa(i)] = ""; i > 0 {
			few[strconv.Itoa(i)] = ""
		}
	}
	for _, m := range []map[string]string{nil, few, {"k": strings.Repeat("v", agentapi.MaxMetadataBytes-1)}} {
		if got := limited(agentapi.FileInfo{Name: "f", Metadata: m}); got.Name != "f" || !maps.Equal(got.Metadata, m) {
			t.Errorf("%d entries became %d", len(m), len(got.Metadata))
		}
	}
	for _, m := range []map[string]string{many, {"k": strings.Repeat("v", agentapi.MaxMetadataBytes)}} {
		if got := limited(agentapi.FileInfo{Name: "f", Metadata: m}); got.Name != "f" || got.Metadata != nil {
			t.Errorf("%d entries are %d", len(m), len(got.Metadata))
		}
	}
}
