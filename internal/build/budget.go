package build

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
	"sync"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds on what a Dockerfile costs the server, which reads it and replaces its variables
// itself. The parser's library cannot be interrupted, so its inputs are bounded before it
// gets them: docs/design/0011-parsers.md has the worst cases as measured.
const (
	// workMax bounds the steps of reading a Dockerfile and of replacing its variables; a
	// step takes some ten nanoseconds.
	workMax = 32 << 20
	// variablesMax bounds the ARGs, ENVs and LABELs of a build, including the variables of its base
	// image.
	variablesMax = 4096
	// compileSteps is the cost of compiling a pattern, for each of its bytes.
	compileSteps = 64
	// heredocSteps is the cost of finding a here document.
	heredocSteps = 1024
	// replaceSteps is the cost of a replacement, for each byte of the value, in addition to its
	// pattern.
	replaceSteps = 128
)

// budget counts the cost of a build. Only one goroutine at a time may use it.
type budget struct {
	ctx       context.Context // ends the build; each word checks it
	steps     int64           // of the parser and of replacing variables
	words     int             // bytes of words with their variables replaced
	variables int             // ARGs, ENVs and LABELs
}

// spend counts steps. Errors: Invalid when the build exceeds workMax; the context's.
func (b *budget) spend(steps int64) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if b.steps += steps; b.steps > workMax {
		return sandbox.Errorf(sandbox.Invalid, "its variables and patterns take too much work together with those before it; use fewer, or shorter values")
	}
	return nil
}

// declare counts variables. Errors: Invalid.
func (b *budget) declare(n int) error {
	if b.variables += n; b.variables > variablesMax {
		return sandbox.Errorf(sandbox.Invalid, "the Dockerfile has more than %d variables and labels", variablesMax)
	}
	return nil
}

// source counts the cost of parsing a Dockerfile. The parser's work on an instruction grows with
// the instruction's length times its depth of nesting, so source finds the instructions first, and
// counts here documents as instructions.
func (b *budget) source(source []byte) error {
	switch {
	case len(source) > dockerfileMax:
		return sandbox.InvalidField("dockerfile", "has more than %d bytes", dockerfileMax)
	case !utf8.Valid(source) || bytes.IndexByte(source, 0) >= 0:
		return sandbox.InvalidField("dockerfile", "must be UTF-8 text without zero bytes")
	}
	if err := b.spend(int64(heredocSteps * bytes.Count(source, []byte("<<")))); err != nil {
		return cmp.Or(b.ctx.Err(), error(sandbox.InvalidField("dockerfile", "has too many here documents")))
	}
	begin, at, nested := 0, 0, 0
	for line := range bytes.Lines(bytes.ToLower(source)) {
		at += len(line)
		nested += depth(line) + bytes.Count(line, []byte("onbuild"))
		trimmed, inside := bytes.TrimSpace(line), begin < at-len(line)
		goesOn := inside && (len(trimmed) == 0 || trimmed[0] == '#') || bytes.HasSuffix(trimmed, []byte("\\")) || bytes.HasSuffix(trimmed, []byte("`"))
		if goesOn && at < len(source) {
			continue
		}
		if err := b.spend(int64(at-begin) * int64(1+nested)); err != nil {
			return cmp.Or(b.ctx.Err(), error(sandbox.InvalidField("dockerfile", "has too many variables within variables in instructions that are too long")))
		}
		begin, nested = at, 0
	}
	return nil
}

// depth returns an upper bound of the nesting of variables in a text, as in ${A:-${B}}: 0 without
// nesting.
func depth(text []byte) int {
	return bytes.Count(text, []byte("${")) - len(plainVariable().FindAllIndex(text, -1))
}

// Parts of patterns: the name of a variable as the parser accepts it, and text without a character
// that begins or ends a variable.
const (
	name  = `(?:[-@*#?$!]|[\pL\pN_]*)`
	named = `\$\{[\pL\pN_]+`
	text  = "[^$\"'\\\\`}]"
	part  = "[^/$\"'\\\\`}]" // of text, without the slash that ends a pattern
)

var (
	// pattern matches a variable with a pattern: ${name#pattern}, ${name%pattern} or
	// ${name/pattern/replacement}.
	pattern     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{` + name + `[#%/]`) })
	replacement = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{` + name + `/`) })
	// plainPattern matches a variable with a pattern that contains no other variable.
	plainPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(named + `(?:[#%]|/` + part + `+/|//` + part + `*/)` + text + `*\}`)
	})
	// plainVariable matches a variable that contains none but plain variables like $name.
	plainVariable = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(named + `(?:[-:+?#%](?:` + text + `|\$[\pL_])*|/` + part + `+/` + text + `*|//` + part + `*/` + text + `*)?\}`)
	})
)

// wordEnv gives the expansion of a word the values of variables until their cost exceeds the
// budget. Then it gives empty values, with which the rest of the expansion costs nothing.
type wordEnv struct {
	vars     *variables
	length   int64 // of the word
	depth    int64 // the nesting of its variables
	patterns bool
	replaces bool
	plain    int64 // bytes of the longest pattern; 0 when patterns contain variables
	given    int64 // upper bound of the bytes that values have given so far
	err      error // the reason why the budget is exceeded
}

// newWordEnv counts the cost of a word without its values.
func (v *variables) newWordEnv(word string) *wordEnv {
	e := &wordEnv{vars: v, length: int64(len(word)), depth: 1 + int64(depth([]byte(word)))}
	cost := e.length * e.depth
	if all := len(pattern().FindAllStringIndex(word, -1)); all > 0 {
		e.patterns, e.replaces = true, replacement().MatchString(word)
		cost += e.length * compileSteps
		plain := plainPattern().FindAllStringIndex(word, -1)
		for _, at := range plain {
			e.plain = max(e.plain, int64(at[1]-at[0]))
		}
		if len(plain) < all {
			e.plain = 0
		}
	}
	e.err = v.budget.spend(cost)
	return e
}

// Get implements [shell.EnvGetter]. The expansion asks for a variable after it has parsed the
// variable's pattern and before it uses the pattern.
func (e *wordEnv) Get(name string) (string, bool) {
	value, ok := e.vars.Get(name)
	if e.err != nil {
		return "", ok
	}
	size := int64(len(value))
	cost, grown := size*e.depth, size // each enclosing variable copies it
	if e.patterns {
		span := e.plain
		if span == 0 {
			span = e.length + e.given
		}
		if e.replaces {
			grown += (size + 1) * span
			cost = grown*e.depth + (size+compileSteps)*replaceSteps
		}
		cost += (size + compileSteps) * span
	}
	if e.given += grown; e.given > expansionMax {
		e.err = sandbox.Errorf(sandbox.Invalid, "its variables make it too long")
		return "", ok
	}
	if e.err = e.vars.budget.spend(cost); e.err != nil {
		return "", ok
	}
	return value, ok
}

// Keys implements [shell.EnvGetter].
func (e *wordEnv) Keys() []string { return e.vars.Keys() }
