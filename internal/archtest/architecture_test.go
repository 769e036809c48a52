package archtest_test

import (
	"go/ast"
	"os"
	"regexp"
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

// namedFile finds files and what the text says is in them: a name in code, with the file in parentheses after it, if there is a name.
var namedFile = regexp.MustCompile("(?:`([\\w.]+)`\\s+\\()?`([\\w/.-]+\\.go)`")

// TestArchitectureNamesFiles: the files that docs/architecture.md names exist, and functions and types are in the file that follows them in parentheses.
func TestArchitectureNamesFiles(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]map[string]bool{} // by the path of a file, and by its name alone
	add := func(path, name string) {
		if declared[path] == nil {
			declared[path] = map[string]bool{}
		}
		declared[path][name] = true
	}
	for _, p := range packages(t) {
		for _, f := range p.files {
			for _, name := range declaredNames(f.syntax) {
				add(p.path+"/"+f.name, name)
				add(f.name, name)
			}
		}
	}
	found := 0
	for _, m := range namedFile.FindAllStringSubmatch(string(page), -1) {
		what, path := m[1][strings.LastIndex(m[1], ".")+1:], m[2]
		in := declared[path]
		if in == nil {
			in = declared["internal/"+path]
		}
		switch {
		case in == nil:
			t.Errorf("docs/architecture.md names %s, which does not exist", path)
		case what == strings.ToUpper(what): // none, or an instruction of a Dockerfile
		case !in[what]:
			t.Errorf("docs/architecture.md says that %s is in %s, which has no %s", m[1], path, what)
		default:
			found++
		}
	}
	if found < 20 {
		t.Errorf("docs/architecture.md names %d functions and types with their files: the expression of this test misses them", found)
	}
}

// declaredNames returns the names of the functions, methods, types and methods of interfaces in a file; "" is always there.
func declaredNames(f *ast.File) []string {
	names := []string{""}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name.Name)
			return false
		case *ast.TypeSpec:
			names = append(names, n.Name.Name)
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				for _, name := range m.Names {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})
	return names
}
