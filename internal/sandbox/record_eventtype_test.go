package sandbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestEventTypes checks that EventTypes lists every constant of the type.
func TestEventTypes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "sandbox.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "EventType" {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !sandbox.EventType(value).Valid() {
			t.Errorf("EventTypes does not have %s, %v", spec.Names[0], err)
		}
		n++
		return true
	})
	if n != len(sandbox.EventTypes) || n == 0 {
		t.Errorf("EventTypes has %d types, and there are %d constants", len(sandbox.EventTypes), n)
	}
	if slices.Contains(sandbox.EventTypes, "") || sandbox.EventType("nonsense").Valid() {
		t.Error("a type that does not exist is valid")
	}
}
