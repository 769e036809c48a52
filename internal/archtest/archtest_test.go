package archtest_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/modbox/modbox/"

// mayImport is the import table: for each package of ours the packages of ours
// that its non-test files may import. A package that is missing fails the test,
// so a new one must be placed here first. Packages below a listed one share its
// row and may import each other; internal/server wires everything and has no limit.
var mayImport = map[string][]string{
	"internal/sandbox":   {},
	"internal/agentapi":  {},
	"internal/agent":     {"internal/agentapi"},
	"cmd/modbox-agent":   {"internal/agent", "internal/agentapi"},
	"cmd/modbox-sandbox": {},
	"internal/driver":    {"internal/sandbox"},
	"internal/config":    {"internal/sandbox", "internal/installation"},
	"internal/ballast":   {},
	"internal/eviction":  {"internal/sandbox"},
	"internal/capacity":  {"internal/sandbox"},
	"internal/embedded":  {},
	"internal/statedir":  {"internal/ballast", "internal/durable"},
	"internal/durable":   {},
	"internal/egress":    {"internal/sandbox"},
	"internal/share":     {},
	"internal/image":     {"internal/sandbox", "internal/share", "internal/durable"},
	"images":             {},
	"internal/store":     {"internal/sandbox", "internal/durable"},
	"internal/audit":     {"internal/sandbox"},
	"internal/access":    {"internal/sandbox"},
	"internal/conns":     {"internal/sandbox"},
	"internal/auth":      {"internal/sandbox", "internal/audit", "internal/access"},
	"internal/secret":    {"internal/sandbox", "internal/durable"},
	"internal/preview":   {"internal/sandbox"},
	"internal/registry":  {"internal/sandbox", "internal/audit"},
	"internal/catalogue": {"internal/sandbox", "internal/audit"},
	"internal/stream":    {"internal/sandbox", "internal/durable"},
	"internal/backup":    {"internal/sandbox", "internal/durable"},
	"internal/lifecycle": {"internal/sandbox", "internal/audit", "internal/ballast", "internal/durable", "internal/stream", "internal/quarantine", "internal/driver", "internal/agentapi"},
	"internal/build":     {"internal/sandbox", "internal/lifecycle", "internal/agentapi", "internal/image"},
	"internal/proxy":     {"internal/sandbox", "internal/auth", "internal/access", "internal/preview"},
	"internal/api":       {"internal/sandbox", "internal/audit", "internal/access", "internal/lifecycle", "internal/agentapi", "internal/auth", "internal/image", "internal/registry", "internal/catalogue", "internal/build", "internal/preview"},
	"internal/dialect":   {"internal/sandbox", "internal/audit", "internal/access", "internal/lifecycle", "internal/agentapi", "internal/auth", "internal/image", "internal/api", "internal/registry", "internal/catalogue"},
	"client":             {},
	"internal/archtest":  {},
	"internal/deps":      {},

	// What is on disk beside the database.
	"internal/installation": {"internal/sandbox", "internal/durable"},
	"internal/quarantine":   {"internal/sandbox", "internal/durable"},

	// The drivers, and what proves them.
	"internal/driver/gvisor":     {"internal/driver", "internal/sandbox", "internal/agentapi", "internal/durable"},
	"internal/driver/fake":       {"internal/driver", "internal/sandbox", "internal/agentapi", "internal/agent"},
	"internal/driver/drivertest": {"internal/driver", "internal/sandbox", "internal/agentapi"},

	// A whole server for the tests of the HTTP interfaces.
	"internal/api/apitest": {
		"internal/sandbox", "internal/audit", "internal/lifecycle", "internal/auth", "internal/store", "internal/proxy", "internal/stream",
		"internal/driver/fake", "internal/dialect", "internal/api", "internal/registry", "internal/catalogue", "internal/secret",
		"internal/image", "internal/build", "internal/preview",
	},
}

// wiring packages may import everything.
var wiring = []string{"cmd/modbox", "internal/server", "internal/doctor", "bench", "test", "scripts", "examples"}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// packages lists the packages of the module. It reads the sources itself, by
// go list, and is therefore only as fresh as the test cache: the runner passes
// -count=1 to this package.
func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := dec.Decode(&p); err {
		case nil:
			pkgs = append(pkgs, p)
			continue
		case io.EOF:
			return pkgs
		default:
			t.Fatalf("go list output: %v", err)
		}
	}
}

// row returns the longest entry of names that is path or a parent of it.
func row(path string, names []string) (string, bool) {
	best, found := "", false
	for _, n := range names {
		if (path == n || strings.HasPrefix(path, n+"/")) && len(n) > len(best) {
			best, found = n, true
		}
	}
	return best, found
}

func TestImportDirection(t *testing.T) {
	rows := make([]string, 0, len(mayImport))
	for name := range mayImport {
		rows = append(rows, name)
	}
	all := append(slices.Clone(rows), wiring...)
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		name, ok := row(path, all)
		if !ok {
			t.Errorf("package %s is not in the import table; decide what it may import", path)
			continue
		}
		if slices.Contains(wiring, name) {
			continue
		}
		for _, imp := range p.Imports {
			target, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			targetRow, _ := row(target, all)
			if targetRow != name && !slices.Contains(mayImport[name], targetRow) {
				t.Errorf("%s imports %s, which its row in the import table does not allow", path, target)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		n := 0
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil && len(f.Doc.List) > 0 && !ast.IsGenerated(f) {
				n++
			}
		}
		if n != 1 && len(p.GoFiles) > 0 {
			t.Errorf("package %s has %d package comments, want 1", p.ImportPath, n)
		}
	}
}

// The bounds of the style guide for hand-written code.
const (
	maxFileLines     = 500
	maxFunctionLines = 80
)

func TestSizes(t *testing.T) {
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			path := filepath.Join(p.Dir, file)
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(f) {
				continue
			}
			if n := strings.Count(string(src), "\n"); n > maxFileLines {
				t.Errorf("%s/%s has %d lines, more than %d: split it by noun", p.ImportPath, file, n, maxFileLines)
			}
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
					t.Errorf("%s/%s: function %s has %d lines, more than %d", p.ImportPath, file, fn.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
}
