package archtest_test

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// The bounds of hand-written code without tests.
const (
	maxFileLines        = 500
	maxFunctionLines    = 80
	maxPackageLines     = 4000
	maxReceiverMethods  = 40
	maxInterfaceMethods = 10
)

// split is the advice for what is too large.
const split = "find the noun in it that wants a type or a package of its own"

// exceptions are what is over a bound, by name, with the value that it has. It can only
// shrink: a test fails when a value is lower than its exception says, too.
type exceptions map[string]int

// check fails the test for each value over most that is no exception, and for each
// exception that is not what the code has. What names the values; advice says what to do.
func (x exceptions) check(t *testing.T, values map[string]int, most int, what, advice string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		n := values[name]
		allowed, excepted := x[name]
		switch {
		case n > most && !excepted:
			t.Errorf("%s has %d %s, more than %d: %s", name, n, what, most, advice)
		case n > allowed && excepted:
			t.Errorf("%s has %d %s, more than the %d that it may have at most: it must shrink", name, n, what, allowed)
		case excepted && n <= most:
			t.Errorf("%s has %d %s, which is within the bound: remove its exception", name, n, what)
		case excepted && n < allowed:
			t.Errorf("%s has %d %s: lower its exception from %d", name, n, what, allowed)
		}
	}
	for name := range x {
		if _, ok := values[name]; !ok {
			t.Errorf("there is no %s any more: remove its exception", name)
		}
	}
}

func TestFileAndFunctionSizes(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.generated {
				continue
			}
			if f.lines > maxFileLines {
				t.Errorf("%s/%s has %d lines, more than %d: split it by noun", p.path, f.name, f.lines, maxFileLines)
			}
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if n := f.positions.Position(fn.End()).Line - f.positions.Position(fn.Pos()).Line + 1; n > maxFunctionLines {
					t.Errorf("%s/%s: function %s has %d lines, more than %d", p.path, f.name, fn.Name.Name, n, maxFunctionLines)
				}
			}
		}
	}
}

func TestPackageSizes(t *testing.T) {
	lines := map[string]int{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			if !f.generated {
				lines[p.path] += f.lines
			}
		}
	}
	// Lines are counted in hundreds here, so that not each change of a large package must
	// change the list.
	hundreds := map[string]int{}
	for path, n := range lines {
		hundreds[path] = (n + 99) / 100
	}
	largePackages.check(t, hundreds, maxPackageLines/100, "hundred lines", split)
}

func TestReceiverSizes(t *testing.T) {
	methods := map[string]int{}
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.generated {
				continue
			}
			for _, d := range f.syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
					methods[p.path+"."+receiver(fn.Recv.List[0].Type)]++
				}
			}
		}
	}
	largeReceivers.check(t, methods, maxReceiverMethods, "methods", split)
}

// receiver returns the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

// named is an interface type and where it is declared.
type named struct {
	pkg  *pkg
	file *file
	typ  *ast.InterfaceType
}

// interfaces returns the hand-written interface types of the module, by package and name.
func interfaces(t *testing.T) map[string]named {
	t.Helper()
	all := map[string]named{}
	list := packages(t)
	for i := range list {
		p := &list[i]
		for j := range p.files {
			f := &p.files[j]
			if f.generated {
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if it, ok := spec.Type.(*ast.InterfaceType); ok {
					all[p.path+"."+spec.Name.Name] = named{pkg: p, file: f, typ: it}
				}
				return true
			})
		}
	}
	return all
}

func TestInterfaceSizes(t *testing.T) {
	all := interfaces(t)
	methods := map[string]int{}
	for name, n := range all {
		methods[name] = n.count(all)
	}
	largeInterfaces.check(t, methods, maxInterfaceMethods, "methods", split)
}

// count returns the number of methods, with those of embedded interfaces of ours.
func (n named) count(all map[string]named) int {
	total := 0
	for _, m := range n.typ.Methods.List {
		if len(m.Names) > 0 {
			total += len(m.Names)
			continue
		}
		if embedded, ok := all[resolved(n.pkg.path, n.file, m.Type)]; ok {
			total += embedded.count(all)
		}
	}
	return total
}

func TestInterfaceMethodsAreDocumented(t *testing.T) {
	bare := map[string]int{}
	for name, n := range interfaces(t) {
		pkg := name[:strings.LastIndex(name, ".")]
		bare[pkg] += 0
		for _, m := range n.typ.Methods.List {
			if len(m.Names) > 0 && m.Doc == nil && m.Comment == nil {
				bare[pkg] += len(m.Names)
			}
		}
	}
	undocumentedMethods.check(t, bare, 0, "interface methods without a comment", "write what the method does and which errors it returns")
}
