package archtest_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unnamedTests are packages with test files that have other names than those that TestTestFilesAreNamedAfterSources permits. A package can only be removed.
// The tests of api and cli, and of the dialect e2b, are about the packages below them, by their handlers and commands together.
var unnamedTests = []string{
	"internal/api", "internal/archtest", "internal/cli", "internal/dialect/e2b", "internal/driver/fleet", "internal/driver/gvisor",
	"internal/driver/remote", "internal/egress", "internal/image",
}

// TestTestFilesAreNamedAfterSources: a test file has the name of the source file that it tests, alone or with a topic: end_test.go, or
// record_quota_test.go for record.go. Files that have the name of the package test it as a whole, and files named harness have fixtures.
func TestTestFilesAreNamedAfterSources(t *testing.T) {
	list := packages(t)
	paths := make([]string, len(list))
	for i, p := range list {
		paths[i] = p.path
		names, err := os.ReadDir(filepath.Join("..", "..", filepath.FromSlash(p.path)))
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{"export": true, "harness": true, path.Base(p.path): true}
		var tests []string
		for _, e := range names {
			name, ok := strings.CutSuffix(e.Name(), ".go")
			test, isTest := strings.CutSuffix(name, "_test")
			switch {
			case isTest:
				tests = append(tests, test)
			case ok:
				known[name] = true
				known[strings.SplitN(name, "_", 2)[0]] = true // process_linux.go
			}
		}
		if strings.HasPrefix(p.path, "test/") || strings.HasPrefix(p.path, "bench") {
			continue // what is tested is the server
		}
		bad := slices.DeleteFunc(tests, func(name string) bool { return known[name] || known[strings.SplitN(name, "_", 2)[0]] })
		if slices.Contains(unnamedTests, p.path) {
			if len(bad) == 0 {
				t.Errorf("the test files of %s are named after source files: remove it from unnamedTests", p.path)
			}
			continue
		}
		for _, name := range bad {
			t.Errorf("%s/%s_test.go is named after no source file of the package", p.path, name)
		}
	}
	for _, p := range unnamedTests {
		if !slices.Contains(paths, p) {
			t.Errorf("unnamedTests has %s, which does not exist", p)
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
