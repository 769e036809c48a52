package archtest_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/modbox/modbox/"

// pkg is a package of ours, as far as it is built for this machine, without its tests.
type pkg struct {
	path  string // below the module, with slashes
	files []file
}

// file is a parsed source file.
type file struct {
	name      string
	syntax    *ast.File
	positions *token.FileSet
	lines     int
	generated bool
}

// parsed keeps what packages has read: all tests of the package share it.
var parsed = sync.OnceValues(func() ([]pkg, error) {
	root := filepath.Join("..", "..")
	byDir := map[string]*pkg{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && ignored(d.Name()):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		dir, name := filepath.Split(path)
		if ok, err := build.Default.MatchFile(dir, name); err != nil || !ok {
			return err
		}
		f, err := parse(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, filepath.Clean(dir))
		if err != nil {
			return err
		}
		below = filepath.ToSlash(below)
		if byDir[below] == nil {
			byDir[below] = &pkg{path: below}
		}
		byDir[below].files = append(byDir[below].files, f)
		return nil
	})
	var list []pkg
	for _, p := range byDir {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b pkg) int { return strings.Compare(a.path, b.path) })
	return list, err
})

// ignored reports whether the go command ignores a directory of that name, or it has no
// sources of ours.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains([]string{"testdata", "node_modules", "tmp", "bin"}, name)
}

func parse(path string) (file, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return file{}, err
	}
	return parseSource(path, src)
}

func parseSource(path string, src []byte) (file, error) {
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, path, src, parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	return file{
		name: filepath.Base(path), syntax: syntax, positions: positions,
		lines: strings.Count(string(src), "\n"), generated: ast.IsGenerated(syntax),
	}, nil
}

// packages returns the packages of the module, sorted by path. It parses the sources, so
// the cache of test results knows of which files these are.
func packages(t *testing.T) []pkg {
	t.Helper()
	list, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Fatal("the module has no packages")
	}
	return list
}

// resolved returns the package and name of a type of ours that a file of a package names; "" for another.
func resolved(pkg string, f *file, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return pkg + "." + e.Name
	case *ast.SelectorExpr:
		from, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, spec := range f.syntax.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if local, ours := strings.CutPrefix(path, module); ours && (spec.Name != nil && spec.Name.Name == from.Name || strings.HasSuffix(path, "/"+from.Name)) {
				return local + "." + e.Sel.Name
			}
		}
	}
	return ""
}
