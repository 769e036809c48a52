package api_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/internal/api"
)

var update = flag.Bool("update", false, "write generated files instead of comparing them")

func TestOpenAPIDocument(t *testing.T) {
	got, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", "api", "openapi.yaml")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("api/openapi.yaml is out of date; run go generate ./internal/api (-file +code):\n%s", d)
	}
}

// An answer's list that is empty is [], so that clients need no case for null.
func TestListsOfAnswersAreNeverNull(t *testing.T) {
	document, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(document, &v); err != nil {
		t.Fatal(err)
	}
	var nullable []string
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if kinds, ok := v["type"].([]any); ok && slices.Contains(kinds, any("array")) && slices.Contains(kinds, any("null")) {
				nullable = append(nullable, at)
			}
			for key, child := range v {
				walk(at+"/"+key, child)
			}
		case []any:
			for i, child := range v {
				walk(fmt.Sprintf("%s/%d", at, i), child)
			}
		}
	}
	walk("", v)
	// Properties of requests may be null.
	if diff := cmp.Diff([]string{"/components/schemas/Exec/properties/command"}, nullable); diff != "" {
		t.Errorf("arrays that may be null (-want +got):\n%s", diff)
	}
}
