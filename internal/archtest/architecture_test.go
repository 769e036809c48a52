package archtest_test

import (
	"os"
	"strings"
	"testing"
)

// TestArchitectureNamesPackages: docs/architecture.md names each package of the import table that lies directly below internal/.
func TestArchitectureNamesPackages(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| package | knows | does not know |")
	if !ok {
		t.Fatal("docs/architecture.md has no table of packages")
	}
	for name := range mayImport {
		below, ok := strings.CutPrefix(name, "internal/")
		if !ok || strings.Contains(below, "/") {
			continue
		}
		if !strings.Contains(table, "`"+name+"`") && !strings.Contains(table, "`"+name+"/") {
			t.Errorf("the table of packages in docs/architecture.md lacks %s", name)
		}
	}
}
