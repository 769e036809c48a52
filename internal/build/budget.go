package build

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
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
	// variablesMax bounds the ARGs, ENVs and LABELs of a build, and the variables of an
	// image that it begins with.
	variablesMax = 4096
	// compileSteps is what a pattern costs for each of its bytes before it is used.
	compileSteps = 64
	// heredocSteps is what finding a here document costs.
	heredocSteps = 1024
	// replaceSteps is what a replacement costs for each byte of the value beside its pattern.
	replaceSteps = 128
)

// budget counts what a build has cost so far. It is used by one goroutine at a time.
type budget struct {
	ctx       context.Context // ends the build; each word looks at it
	steps     int64           // of the parser and of replacing variables
	words     int             // bytes of words with their variables replaced
	variables int             // ARGs, ENVs and LABELs
}

// spend counts steps. Errors: Invalid when there were too many; that of a context that
// has ended.
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

// source counts what the parser does with a Dockerfile. Its work on one instruction grows
// with the instruction's length times the depth of what is nested in it, so instructions
// are found first, here documents taken for instructions.
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

// depth returns in how many variables, as in ${A:-${B}}, a part of a text is at most beside
// the innermost.
func depth(text []byte) int {
	return bytes.Count(text, []byte("${")) - len(plainVariable.FindAllIndex(text, -1))
}

// What the parser takes for the name of a variable, and text in which nothing ends or
// begins but what the text says.
const (
	name  = `(?:[-@*#?$!]|[\pL\pN_]*)`
	named = `\$\{[\pL\pN_]+`
	text  = "[^$\"'\\\\`}]"
	part  = "[^/$\"'\\\\`}]" // of text, without the slash that ends a pattern
)

var (
	// pattern is where a word may have a variable with a pattern: ${name#pattern},
	// ${name%pattern} or ${name/pattern/replacement}.
	pattern     = regexp.MustCompile(`\$\{` + name + `[#%/]`)
	replacement = regexp.MustCompile(`\$\{` + name + `/`)
	// plainPattern is such a variable that has no other one in it.
	plainPattern = regexp.MustCompile(named + `(?:[#%]|/` + part + `+/|//` + part + `*/)` + text + `*\}`)
	// plainVariable is any variable with none in it but such as $name, which cannot have
	// others in them.
	plainVariable = regexp.MustCompile(named + `(?:[-:+?#%](?:` + text + `|\$[\pL_])*|/` + part + `+/` + text + `*|//` + part + `*/` + text + `*)?\}`)
)

// wordEnv gives the values of variables to the expansion of one word as long as these do
// not cost too much, and then no more: with empty values the rest costs nothing.
type wordEnv struct {
	vars     *variables
	length   int64 // of the word
	depth    int64 // of what is nested in it
	patterns bool
	replaces bool
	plain    int64 // bytes of the longest pattern; 0 when patterns have variables themselves
	held     int64 // bytes at most that values have given so far
	err      error // what was too much
}

// newWordEnv counts what a word costs without its values.
func (v *variables) newWordEnv(word string) *wordEnv {
	e := &wordEnv{vars: v, length: int64(len(word)), depth: 1 + int64(depth([]byte(word)))}
	cost := e.length * e.depth
	if all := len(pattern.FindAllStringIndex(word, -1)); all > 0 {
		e.patterns, e.replaces = true, replacement.MatchString(word)
		cost += e.length * compileSteps
		plain := plainPattern.FindAllStringIndex(word, -1)
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

// Get implements [shell.EnvGetter]. The expansion asks for a variable when it has all of
// the variable's pattern, and before it uses the pattern.
func (e *wordEnv) Get(name string) (string, bool) {
	value, ok := e.vars.Get(name)
	if e.err != nil {
		return "", ok
	}
	size := int64(len(value))
	cost, grown := size*e.depth, size // each variable around it copies it
	if e.patterns {
		span := e.plain
		if span == 0 {
			span = e.length + e.held
		}
		if e.replaces {
			grown += (size + 1) * span
			cost = grown*e.depth + (size+compileSteps)*replaceSteps
		}
		cost += (size + compileSteps) * span
	}
	if e.held += grown; e.held > expansionMax {
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
