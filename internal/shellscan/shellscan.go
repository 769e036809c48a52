// Package shellscan finds constructs in shell code that deserve a look, and the programs in other
// languages inside it. It parses hostile input, and so it runs in the sandbox, as a process of the
// agent's program; see package codescan for what the server does with its answer.
package shellscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/modbox/modbox/internal/program"
)

const (
	// findingsMax is more than the server reads of an answer, so that it sees that there are more.
	findingsMax = 201
	// programsMax bounds the programs of an answer.
	programsMax = 17
	// nameMax bounds a name in a reason.
	nameMax = 60
	// variable stands for the part of a word that is not constant. No word of a script contains it.
	variable = "\x00"
)

// Request is the input of Run.
type Request struct {
	Code string `json:"code"`
}

// Answer is the output of Run.
type Answer struct {
	Findings []Finding `json:"findings"`
	// Programs are the programs in the code that it gives to interpreters.
	Programs []Program `json:"programs,omitempty"`
}

// Finding is a construct that deserves a look.
type Finding struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Rule   string `json:"rule"`
	Reason string `json:"reason"`
}

// Program is code inside the code.
type Program struct {
	Language string `json:"language"`
	Code     string `json:"code"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
}

// Run scans the code of the request in r, and writes the answer to w.
func Run(r io.Reader, w io.Writer) error {
	var req Request
	if err := json.NewDecoder(r).Decode(&req); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	return json.NewEncoder(w).Encode(Scan(req.Code))
}

// Scan returns the findings in shell code. The findings of a command come before the findings in its arguments.
func Scan(code string) Answer {
	s := &scan{}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(code), "")
	if file != nil && err == nil {
		syntax.Walk(file, s.visit)
	}
	if err != nil {
		s.fault(err)
	}
	s.answer.Findings = append([]Finding{}, s.answer.Findings[:min(len(s.answer.Findings), findingsMax)]...)
	return s.answer
}

// scan is a scan under way.
type scan struct{ answer Answer }

// fault adds the finding that the code cannot be parsed.
func (s *scan) fault(err error) {
	f := Finding{Line: 1, Column: 1, Rule: "syntax", Reason: "it cannot be parsed: " + err.Error()}
	var parse syntax.ParseError
	if errors.As(err, &parse) {
		f.Line, f.Column, f.Reason = max(1, int(parse.Pos.Line())), max(1, int(parse.Pos.Col())), parse.Text
	}
	s.answer.Findings = append(s.answer.Findings, f)
}

func (s *scan) add(pos syntax.Pos, rule, reason string, args ...any) {
	if len(s.answer.Findings) < findingsMax*8 {
		s.answer.Findings = append(s.answer.Findings, Finding{
			Line: max(1, int(pos.Line())), Column: max(1, int(pos.Col())), Rule: rule, Reason: fmt.Sprintf(reason, args...),
		})
	}
}

// nested adds a program inside the code.
func (s *scan) nested(pos syntax.Pos, language, code string) {
	if strings.Contains(code, variable) {
		s.add(pos, "eval", "runs %s code that is not constant", language)
		return
	}
	if len(s.answer.Programs) == programsMax {
		return // the server sees that there are too many
	}
	s.answer.Programs = append(s.answer.Programs, Program{Language: language, Code: code, Line: max(1, int(pos.Line())), Column: max(1, int(pos.Col()))})
}

// visit looks at a node.
func (s *scan) visit(node syntax.Node) bool {
	switch n := node.(type) {
	case *syntax.Stmt:
		if n.Background {
			s.add(n.Position, "process", "runs a command in the background")
		}
		if call, ok := n.Cmd.(*syntax.CallExpr); ok {
			s.call(call, n.Redirs)
		}
	case *syntax.CoprocClause:
		s.add(n.Coproc, "process", "runs a command in the background")
	case *syntax.BinaryCmd:
		if n.Op == syntax.Pipe || n.Op == syntax.PipeAll {
			s.pipe(n)
		}
	case *syntax.DeclClause:
		s.declaration(n)
	case *syntax.Assign:
		if n.Name != nil && strings.HasPrefix(n.Name.Value, "LD_") {
			s.add(n.Pos(), "native", "sets %s", name(n.Name.Value))
		}
	case *syntax.Redirect:
		s.redirect(n)
	}
	return true
}

// declaration finds lists of all variables: export and declare without names.
func (s *scan) declaration(n *syntax.DeclClause) {
	for _, arg := range n.Args {
		if arg.Name != nil {
			return
		}
	}
	s.add(n.Pos(), "environment", "%s lists variables", n.Variant.Value)
}

func (s *scan) redirect(n *syntax.Redirect) {
	if n.Word == nil {
		return
	}
	switch target := text(n.Word); {
	case strings.HasPrefix(target, "/dev/tcp/") || strings.HasPrefix(target, "/dev/udp/"):
		s.add(n.OpPos, "network", "connects to %s", name(target))
	case strings.HasPrefix(target, "/proc/") && strings.HasSuffix(target, "/environ"):
		s.add(n.OpPos, "environment", "reads %s", name(target))
	}
}

// pipe finds interpreters that get their program from another command.
func (s *scan) pipe(n *syntax.BinaryCmd) {
	call, ok := n.Y.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	if use := program.Of(words(call.Args)); use.Stdin && len(n.Y.Redirs) == 0 {
		s.add(call.Pos(), "eval", "runs %s code that another command prints", use.Language)
	}
}

// call looks at a command.
func (s *scan) call(n *syntax.CallExpr, redirs []*syntax.Redirect) {
	if len(n.Args) == 0 {
		return
	}
	argv := words(n.Args)
	s.interpreter(n, argv, redirs)
	for i := 0; i < len(argv); i = s.wrapped(argv, n.Args, i) {
		if strings.Contains(argv[i], variable) {
			if i == 0 {
				s.add(n.Args[i].Pos(), "eval", "runs a program whose name is not constant")
			}
			return
		}
		s.program(n.Args[i].Pos(), argv[i:], n.Args[i:])
		if !program.Wraps(program.Name(argv[i])) {
			return
		}
	}
}

// wrapped returns the place of the program that the program at i runs. The word after an option may be
// its value or the program, and counts as both.
func (s *scan) wrapped(argv []string, args []*syntax.Word, i int) int {
	option := false
	for i++; i < len(argv); i++ {
		arg := argv[i]
		switch {
		case strings.HasPrefix(arg, "-"):
			option = true
			continue
		case strings.Contains(arg, "=") || number(arg):
		case !option:
			return i
		case program.Wraps(program.Name(arg)):
			return i
		case !strings.Contains(arg, variable):
			s.program(args[i].Pos(), argv[i:], args[i:])
		}
		option = false
	}
	return i
}

// interpreter looks for the program that a command gives to an interpreter.
func (s *scan) interpreter(n *syntax.CallExpr, argv []string, redirs []*syntax.Redirect) {
	use := program.Of(argv)
	for _, source := range use.Sources {
		s.nested(place(n.Args, source), use.Language, source)
	}
	if strings.Contains(use.File, variable) && slices.ContainsFunc(n.Args, substitutes) {
		s.add(n.Pos(), "eval", "runs %s code that another command prints", use.Language)
	}
	if !use.Stdin {
		return
	}
	for _, r := range redirs {
		switch {
		case r.Hdoc != nil:
			s.nested(r.Hdoc.Pos(), use.Language, document(r))
		case r.Op == syntax.WordHdoc && r.Word != nil:
			s.nested(r.Word.Pos(), use.Language, text(r.Word))
		}
	}
}

// substitutes reports whether a word is <(…).
func substitutes(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(p syntax.WordPart) bool { _, ok := p.(*syntax.ProcSubst); return ok })
}

// place returns the position of the word with a text.
func place(args []*syntax.Word, source string) syntax.Pos {
	for _, w := range args {
		if text(w) == source {
			return w.Pos()
		}
	}
	return args[0].Pos()
}
