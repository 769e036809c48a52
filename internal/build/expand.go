package build

import (
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds on what variables may grow to: each may name others many times.
const (
	wordMax      = 128 << 10 // bytes of a word with its variables replaced
	expansionMax = 4 << 20   // what replacing them may take
	wordsMax     = 64 << 20  // bytes of all words of a build with their variables replaced
)

// variables are those that an instruction may name. It is an environment for the
// parser's expansion.
type variables struct {
	lex *shell.Lex
	// env are those of the image, which win over args.
	env, args map[string]string
	// spent counts the bytes of words with their variables replaced, of the whole build.
	spent *int
}

var _ shell.EnvGetter = (*variables)(nil)

// Get implements [shell.EnvGetter].
func (v *variables) Get(name string) (string, bool) {
	if value, ok := v.env[name]; ok {
		return value, true
	}
	value, ok := v.args[name]
	return value, ok
}

// Keys implements [shell.EnvGetter].
func (v *variables) Keys() []string { return slices.Sorted(maps.Keys(v.all())) }

// all returns the variables that commands get.
func (v *variables) all() map[string]string {
	all := maps.Clone(v.args)
	maps.Copy(all, v.env)
	return all
}

// predefined are the arguments that need no default.
func predefined() map[string]string {
	m := map[string]string{}
	for _, side := range []string{"BUILD", "TARGET"} {
		m[side+"PLATFORM"], m[side+"OS"], m[side+"ARCH"], m[side+"VARIANT"] = hostPlatform, "linux", runtime.GOARCH, ""
	}
	return m
}

// freeArgs are arguments that may be given without an ARG that names them.
var freeArgs = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"}

// globals returns the variables that FROM may name: the ARGs before the first one.
func (p *plan) globals(given map[string]string) (*variables, error) {
	v := &variables{lex: shell.NewLex(p.escape), env: map[string]string{}, args: predefined(), spent: new(int)}
	for i := range p.global {
		for _, a := range p.global[i].Args {
			if err := v.declare(a, given, nil); err != nil {
				return nil, at(p.global[i].Location(), shown(p.global[i].String()), err)
			}
		}
	}
	return v, nil
}

// declare is ARG: the value that is given, else the default, else that of the ARG of
// the same name before the first FROM.
func (v *variables) declare(arg instructions.KeyValuePairOptional, given, global map[string]string) error {
	name, err := v.expand(arg.Key)
	if err != nil {
		return err
	}
	if value, ok := given[name]; ok {
		v.args[name] = value
		return nil
	}
	if arg.Value != nil {
		value, err := v.expand(*arg.Value)
		if err != nil {
			return err
		}
		v.args[name] = value
		return nil
	}
	if value, ok := global[name]; ok {
		v.args[name] = value
	}
	return nil
}

// replacement is an expansion that may make a value grow by the square.
var replacement = regexp.MustCompile(`\$\{\w+/`)

// expand replaces the variables in a word. Errors: Invalid, also for one that grows
// too long.
func (v *variables) expand(word string) (string, error) {
	longest := 0
	for _, m := range []map[string]string{v.args, v.env} {
		for _, value := range m {
			longest = max(longest, len(value))
		}
	}
	refs := strings.Count(word, "$")
	if cost := refs * longest; cost > expansionMax || replacement.MatchString(word) && cost*longest > expansionMax {
		return "", sandbox.Errorf(sandbox.Invalid, "its variables make it too long")
	}
	out, _, err := v.lex.ProcessWord(word, v)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "%.300s", err)
	}
	if len(out) > wordMax {
		return "", sandbox.Errorf(sandbox.Invalid, "its variables make it longer than %d bytes", wordMax)
	}
	if *v.spent += len(out); *v.spent > wordsMax {
		return "", sandbox.Errorf(sandbox.Invalid, "its variables and those before it make the Dockerfile longer than %d MiB", wordsMax>>20)
	}
	return out, nil
}

// words is expand for a word that may become several.
func (v *variables) words(word string) ([]string, error) {
	if _, err := v.expand(word); err != nil {
		return nil, err
	}
	words, err := v.lex.ProcessWords(word, v)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "%.300s", err)
	}
	return words, nil
}
