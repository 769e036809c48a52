package archtest_test

import (
	"go/ast"
	"os"
	"path/filepath"
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

// runsGVisor reports whether a package of gVisor has the code that runs boxes; its network stack and small helpers have not.
func runsGVisor(path string) bool {
	return strings.HasPrefix(path, "gvisor.dev/gvisor/runsc/") || strings.HasPrefix(path, "gvisor.dev/gvisor/pkg/sentry/")
}

// linksGVisor returns the packages of ours that import gVisor, directly or by another package of ours.
func linksGVisor(list []pkg) map[string]bool {
	linked := map[string]bool{}
	for {
		before := len(linked)
		for _, p := range list {
			for _, f := range p.files {
				for _, i := range f.syntax.Imports {
					path := strings.Trim(i.Path.Value, `"`)
					if runsGVisor(path) || linked[strings.TrimPrefix(path, module)] {
						linked[p.path] = true
					}
				}
			}
		}
		if len(linked) == before {
			return linked
		}
	}
}

// TestFuzzTestsAreWithoutGVisor: a test program that links gVisor cannot be built with the instrumentation of go test
// -fuzz, so that its fuzz tests only run their seeds.
func TestFuzzTestsAreWithoutGVisor(t *testing.T) {
	list := packages(t)
	linked := linksGVisor(list)
	for _, path := range []string{"internal/driver/gvisor", "internal/server"} {
		if !linked[path] {
			t.Errorf("%s does not import gVisor, as this test sees it", path)
		}
	}
	fuzzed := 0
	for _, p := range list {
		names, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(p.path), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		fuzz, by := false, ""
		if linked[p.path] {
			by = p.path
		}
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
				if path := strings.Trim(i.Path.Value, `"`); runsGVisor(path) || linked[strings.TrimPrefix(path, module)] {
					by = path
				}
			}
		}
		if fuzz {
			fuzzed++
		}
		if fuzz && by != "" {
			t.Errorf("the tests of %s have a fuzz test and link gVisor, by %s: move the fuzz test to another package", p.path, by)
		}
	}
	if fuzzed == 0 {
		t.Error("there are no fuzz tests any more: remove this test")
	}
}
