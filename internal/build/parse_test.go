package build

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestRefusals: what is not supported is refused before anything runs, by line.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		dockerfile string
		line       int
		want       string
	}{
		"onbuild":         {"FROM a\nONBUILD RUN x", 2, "ONBUILD is not supported"},
		"mount":           {"FROM a\nENV A=1\nRUN --mount=type=cache,target=/x x", 3, "RUN --mount is not supported"},
		"security":        {"FROM a\nRUN --security=insecure x", 2, "RUN --security is not supported"},
		"host-network":    {"FROM a\nRUN --network=host x", 2, "RUN --network=host is not supported"},
		"url":             {"FROM a\nADD https://example.com/x /", 2, "ADD of a URL is not supported"},
		"git":             {"FROM a\nADD git@example.com:a/b.git /", 2, "ADD of a URL is not supported"},
		"parents":         {"FROM a\nCOPY --parents x /", 2, "COPY --parents is not supported"},
		"exclude":         {"FROM a\nCOPY --exclude=y x /", 2, "COPY --exclude is not supported"},
		"platform":        {"FROM --platform=linux/s390x a", 1, "images can be built for"},
		"later-stage":     {"FROM a\nCOPY --from=1 x /\nFROM b", 2, "the stages before this one"},
		"own-stage":       {"FROM a AS x\nCOPY --from=x y /", 2, "is this stage itself"},
		"unknown":         {"FROM a\nFROB x", 2, "unknown instruction: FROB"},
		"no-arguments":    {"FROM a\nRUN x\nCOPY x", 3, "COPY requires at least two arguments"},
		"empty-from":      {"ARG X\nFROM $X", 2, "FROM names nothing"},
		"first":           {"RUN x", 1, "no build stage in current context"},
		"unfinished-word": {"FROM a${", 1, "syntax error"},
		"nothing":         {"# only words", 1, "file with no instructions"},
		"unused-stage":    {"FROM a\nONBUILD RUN x\nFROM b\nRUN y", 2, "ONBUILD is not supported"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(&budget{ctx: t.Context()}, []byte(c.dockerfile), nil, "")
			var failure *Failure
			line := 0
			if errors.As(err, &failure) {
				line = failure.Line
			}
			if sandbox.CodeOf(err) != sandbox.Invalid || line != c.line || !strings.Contains(err.Error(), c.want) {
				t.Errorf("parse: %v on line %d, want %q on line %d", err, line, c.want, c.line)
			}
		})
	}
}

func TestTargetNeedsOnlyItsStages(t *testing.T) {
	source := "FROM a AS one\nRUN x\nFROM b AS two\nFROM one\nCOPY --from=TWO x /\nFROM c AS last\nCOPY --from=0 x /"
	for target, want := range map[string][]bool{
		"": {true, false, false, true}, "2": {true, true, true, false}, "Two": {false, true, false, false},
	} {
		p, err := parse(&budget{ctx: t.Context()}, []byte(source), nil, target)
		if err != nil {
			t.Fatal(err)
		}
		for i, needed := range p.needed {
			if needed != want[i] {
				t.Errorf("target %q: stage %d needed: %t, want %t", target, i, needed, want[i])
			}
		}
	}
	if _, err := parse(&budget{ctx: t.Context()}, []byte(source), nil, "nosuch"); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "target: ") {
		t.Errorf("an unknown target: %v", err)
	}
}

// TestGrowth: variables that name each other do not take all memory.
func TestGrowth(t *testing.T) {
	source := "ARG A0=" + strings.Repeat("x", 1000) + "\n"
	for range 30 {
		source += "ARG A0=$A0$A0$A0$A0\n"
	}
	if _, err := parse(&budget{ctx: t.Context()}, []byte(source+"FROM $A0"), nil, ""); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "its variables make it") {
		t.Errorf("parse: %.300v", err)
	}
	many := "ARG A=" + strings.Repeat("x", 50_000) + "\nARG B=$A$A\nARG"
	for i := range 1000 {
		many += fmt.Sprintf(" C%d=$B", i)
	}
	if _, err := parse(&budget{ctx: t.Context()}, []byte(many+"\nFROM a"), nil, ""); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "longer than 16 MiB") {
		t.Errorf("parse of many long arguments: %.300v", err)
	}
	long := strings.Repeat("x", 20_000)
	if _, err := parse(&budget{ctx: t.Context()}, []byte("ARG A\nFROM ${A//x/$A}"), map[string]string{"A": long}, ""); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "too long") {
		t.Errorf("parse of a replacement: %.300v", err)
	}
}

func TestGlobalArguments(t *testing.T) {
	p, err := parse(&budget{ctx: t.Context()}, []byte("ARG V=1\nARG NAME=app:$V\nFROM $NAME\nARG V"), map[string]string{"V": "2"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.stages[0].base; got != "app:2" {
		t.Errorf("FROM is %q, want app:2", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("FROM a AS b\nRUN <<EOF\nx\nEOF\nCOPY --from=b <<X /y\nz\nX\n")
	f.Fuzz(func(t *testing.T, source string) {
		_, _ = parse(&budget{ctx: t.Context()}, []byte(source), map[string]string{"A": "b"}, "")
	})
}
