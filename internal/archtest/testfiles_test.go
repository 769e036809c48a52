package archtest_test

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// namedTests are packages whose test files have the names of the source files that they test, alone or
// with a topic: end_test.go, or record_quota_test.go for record.go. Files named harness have the
// fixtures. A package can only be added.
var namedTests = []string{"internal/creation", "internal/diskuse", "internal/lifecycle", "internal/teardown"}

func TestTestFilesAreNamedAfterSources(t *testing.T) {
	for _, p := range namedTests {
		entries, err := os.ReadDir(filepath.Join("..", "..", filepath.FromSlash(p)))
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{"export": true, "harness": true}
		for _, e := range entries {
			if source, ok := strings.CutSuffix(e.Name(), ".go"); ok && !strings.HasSuffix(source, "_test") {
				known[source] = true
			}
		}
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), "_test.go")
			source, _, _ := strings.Cut(name, "_")
			if ok && !known[source] {
				t.Errorf("%s/%s is named after no source file of the package: there is no %s.go", p, e.Name(), source)
			}
		}
	}
}

// TestFuzzTestsAreWithoutGVisor: a test program that links gVisor cannot be built with the instrumentation of go test
// -fuzz, so that its fuzz tests only run their seeds.
func TestFuzzTestsAreWithoutGVisor(t *testing.T) {
	linked := []string{module + "internal/driver/gvisor", module + "internal/driver/gvisor/gvisortest"}
	fuzzed := 0
	for _, p := range packages(t) {
		names, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(p.path), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var fuzz, imports bool
		for _, name := range names {
			f, err := parse(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				fuzz = fuzz || ok && strings.HasPrefix(fn.Name.Name, "Fuzz")
			}
			for _, i := range f.syntax.Imports {
				imports = imports || slices.Contains(linked, strings.Trim(i.Path.Value, `"`))
			}
		}
		if fuzz {
			fuzzed++
		}
		if fuzz && imports {
			t.Errorf("the tests of %s have a fuzz test and import gVisor's driver: move one of them to another package", p.path)
		}
	}
	if fuzzed == 0 {
		t.Error("there are no fuzz tests any more: remove this test")
	}
}
