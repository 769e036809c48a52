package api_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

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
