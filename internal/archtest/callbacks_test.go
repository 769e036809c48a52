package archtest_test

import (
	"go/ast"
	"strings"
	"testing"
)

// storePackages are the packages with the SQL of the records. Package internal/store/database is not one of them:
// its Write and Note exist to run functions of these packages in transactions.
func storePackages(t *testing.T) (list []pkg) {
	t.Helper()
	for _, p := range packages(t) {
		switch {
		case p.path != "internal/store" && !strings.HasPrefix(p.path, "internal/store/"):
		case p.path == "internal/store/database" || p.path == "internal/store/migrations" || p.path == "internal/store/storetest":
		default:
			list = append(list, p)
		}
	}
	if len(list) < 2 {
		t.Fatalf("found %d packages of the store", len(list))
	}
	return list
}

// TestStoreCallsNobodyBack finds exported methods of the store that take a function, or a value with functions in
// it: code of a caller that could run, and wait, in a transaction. There are no exceptions: a caller reads, decides
// and replaces what it has read, or describes the change as data.
func TestStoreCallsNobodyBack(t *testing.T) {
	c := callbacks{types: declarations(t)}
	for _, p := range storePackages(t) {
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil || !fn.Name.IsExported() {
					continue
				}
				for _, param := range fn.Type.Params.List {
					if why := c.in(p.path, &f, param.Type); why != "" {
						t.Errorf("%s: %s.%s takes %s, which can run code of the caller in a transaction: take the record that was read and its replacement, or a struct of the fields to set",
							f.positions.Position(param.Pos()), p.path, fn.Name, why)
					}
				}
			}
		}
	}
}

// TestCallbacksAreFound runs the search of [TestStoreCallsNobodyBack] over types that it must find, and others.
func TestCallbacksAreFound(t *testing.T) {
	const source = `package x
type plain struct { A []string; B map[string]*plain; C error }
type visitor func(int) error
type inner struct { F func() }
type outer struct { In []*inner }
type caller interface { Call() }
type rows[T any] struct { List []T }
func (plain) Finds(a func(int), b visitor, c *outer, d caller, e map[string]visitor, f rows[visitor], g iter.Seq[int], h ...func()) {}
func (plain) Passes(ctx context.Context, a plain, b []*plain, c rows[string], d time.Time, e error, f any) {}
`
	f, err := parseSource("x.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	c := callbacks{types: map[string]declared{}}
	c.add("x", &f)
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		for _, param := range fn.Type.Params.List {
			if why := c.in("x", &f, param.Type); (why != "") != (fn.Name.Name == "Finds") {
				t.Errorf("parameter %s of %s: %q", param.Names[0].Name, fn.Name.Name, why)
			}
		}
	}
}

// declared is a type of ours and where it is declared.
type declared struct {
	pkg  string
	file *file
	typ  ast.Expr
}

// callbacks finds types that hold functions, among the types of ours by package and name.
type callbacks struct {
	types map[string]declared
}

// declarations returns all types of the module.
func declarations(t *testing.T) map[string]declared {
	t.Helper()
	c := callbacks{types: map[string]declared{}}
	list := packages(t)
	for i := range list {
		for j := range list[i].files {
			c.add(list[i].path, &list[i].files[j])
		}
	}
	return c.types
}

func (c callbacks) add(pkg string, f *file) {
	for _, d := range f.syntax.Decls {
		if g, ok := d.(*ast.GenDecl); ok {
			for _, spec := range g.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok {
					c.types[pkg+"."+ts.Name.Name] = declared{pkg: pkg, file: f, typ: ts.Type}
				}
			}
		}
	}
}

// in returns what of a type in a file is a function or an interface of ours; "" if nothing is.
func (c callbacks) in(pkg string, f *file, e ast.Expr) string {
	return c.search(pkg, f, e, map[string]bool{})
}

func (c callbacks) search(pkg string, f *file, e ast.Expr, seen map[string]bool) (why string) {
	switch e := e.(type) {
	case *ast.FuncType:
		return "a function"
	case *ast.Ident:
		return c.named(resolved(pkg, f, e), seen)
	case *ast.SelectorExpr:
		if from, ok := e.X.(*ast.Ident); ok && from.Name == "iter" {
			return "an iterator"
		}
		return c.named(resolved(pkg, f, e), seen)
	case *ast.StructType:
		for _, field := range e.Fields.List {
			if why := c.search(pkg, f, field.Type, seen); why != "" {
				return why + " in a struct"
			}
		}
		return ""
	case *ast.InterfaceType:
		if len(e.Methods.List) > 0 {
			return "an interface"
		}
		return ""
	}
	for _, part := range parts(e) {
		if why := c.search(pkg, f, part, seen); why != "" {
			return why
		}
	}
	return ""
}

// parts returns the types that a composite or generic type is made of.
func parts(e ast.Expr) []ast.Expr {
	switch e := e.(type) {
	case *ast.StarExpr:
		return []ast.Expr{e.X}
	case *ast.ParenExpr:
		return []ast.Expr{e.X}
	case *ast.ArrayType:
		return []ast.Expr{e.Elt}
	case *ast.Ellipsis:
		return []ast.Expr{e.Elt}
	case *ast.ChanType:
		return []ast.Expr{e.Value}
	case *ast.MapType:
		return []ast.Expr{e.Key, e.Value}
	case *ast.IndexExpr:
		return []ast.Expr{e.X, e.Index}
	case *ast.IndexListExpr:
		return append([]ast.Expr{e.X}, e.Indices...)
	}
	return nil
}

// named is search for a type of ours by its name; a type of another module has none, and is data.
func (c callbacks) named(name string, seen map[string]bool) string {
	d, ours := c.types[name]
	if !ours || seen[name] {
		return ""
	}
	seen[name] = true
	if why := c.search(d.pkg, d.file, d.typ, seen); why != "" {
		return why + " (" + name + ")"
	}
	return ""
}
