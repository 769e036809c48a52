package build

import (
	"cmp"
	"maps"
	"runtime"
	"slices"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds on the expansion of variables: each may name others many times.
const (
	wordMax      = 128 << 10 // bytes of an expanded word
	expansionMax = 4 << 20   // bytes that the variables of one word may give
	wordsMax     = 16 << 20  // bytes of all expanded words of a build
)

// variables are the variables that an instruction may name.
type variables struct {
	lex *shell.Lex
	// env are the variables of the image, which take precedence over args.
	env, args map[string]string
	budget    *budget // of the whole build
}

var _ shell.EnvGetter = (*wordEnv)(nil)

// Get returns the value of a variable, and whether it has one.
func (v *variables) Get(name string) (string, bool) {
	if value, ok := v.env[name]; ok {
		return value, true
	}
	value, ok := v.args[name]
	return value, ok
}

// Keys returns the names of all variables, in order.
func (v *variables) Keys() []string { return slices.Sorted(maps.Keys(v.all())) }

// all returns the variables of commands.
func (v *variables) all() map[string]string {
	all := maps.Clone(v.args)
	maps.Copy(all, v.env)
	return all
}

// predefined returns the arguments that need no default.
func predefined() map[string]string {
	m := map[string]string{}
	for _, side := range []string{"BUILD", "TARGET"} {
		m[side+"PLATFORM"], m[side+"OS"], m[side+"ARCH"], m[side+"VARIANT"] = hostPlatform, "linux", runtime.GOARCH, ""
	}
	return m
}

// freeArgs are arguments that may be given without an ARG instruction.
var freeArgs = []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "FTP_PROXY", "ftp_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"}

// globals returns the variables that FROM may name: the ARGs before the first one.
func (p *plan) globals(b *budget, given map[string]string) (*variables, error) {
	v := &variables{lex: shell.NewLex(p.escape), env: map[string]string{}, args: predefined(), budget: b}
	for i := range p.global {
		for _, a := range p.global[i].Args {
			if err := v.declare(a, given, nil); err != nil {
				return nil, at(p.global[i].Location(), shown(p.global[i].String()), err)
			}
		}
	}
	return v, nil
}

// declare executes ARG. The value is the given argument, else the default, else the value of the
// ARG of the same name before the first FROM.
func (v *variables) declare(arg instructions.KeyValuePairOptional, given, global map[string]string) error {
	if err := v.budget.declare(1); err != nil {
		return err
	}
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

// expand replaces the variables in a word. Errors: Invalid, also when the result is too long or
// costs too much; the context's.
func (v *variables) expand(word string) (string, error) {
	env := v.newWordEnv(word)
	out := ""
	if env.err == nil {
		var err error
		out, _, err = v.lex.ProcessWord(word, env)
		env.err = cmp.Or(env.err, lexError(err))
	}
	switch b := v.budget; {
	case env.err != nil:
		return "", env.err
	case len(out) > wordMax:
		return "", sandbox.Errorf(sandbox.Invalid, "its variables make it longer than %d bytes", wordMax)
	default:
		if b.words += len(out); b.words > wordsMax {
			return "", sandbox.Errorf(sandbox.Invalid, "its variables and those before it make the Dockerfile longer than %d MiB", wordsMax>>20)
		}
	}
	return out, nil
}

// words is expand for a word that may expand to several words.
func (v *variables) words(word string) ([]string, error) {
	if _, err := v.expand(word); err != nil {
		return nil, err
	}
	env := v.newWordEnv(word)
	if env.err != nil {
		return nil, env.err
	}
	words, err := v.lex.ProcessWords(word, env)
	if err := cmp.Or(env.err, lexError(err)); err != nil {
		return nil, err
	}
	return words, nil
}

// lexError translates an error of the expansion.
func lexError(err error) error {
	if err == nil {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "%.300s", err)
}
