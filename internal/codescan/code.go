package codescan

import (
	"context"
	"io"
	"strings"

	"github.com/modbox/modbox/internal/program"
)

// Code is code that is about to run.
type Code struct {
	// Language is the language, perhaps by another name.
	Language string
	source   string
	input    *strings.Reader // the source is its content
	find     func(context.Context) (language string, err error)
}

// Source returns code in a language.
func Source(language, code string) Code { return Code{Language: language, source: code} }

// SourceIn returns code in a language that find returns.
func SourceIn(find func(context.Context) (language string, err error), code string) Code {
	return Code{find: find, source: code}
}

// size returns the number of bytes.
func (c *Code) size() int64 {
	if c.input != nil {
		return c.input.Size()
	}
	return int64(len(c.source))
}

// text returns the source, or enough of it to be too large.
func (c *Code) text() string {
	if c.input == nil {
		return c.source
	}
	var b strings.Builder
	_, _ = io.Copy(&b, io.NewSectionReader(c.input, 0, CodeMax+1)) // neither can fail
	return b.String()
}

// The values of contexts.
type (
	stdinKey  struct{}
	sourceKey struct{}
	exemptKey struct{}
	argvKey   struct{}
)

// WithStdin returns a context for a command that will be fed all of stdin; nil is no input.
func WithStdin(ctx context.Context, stdin *strings.Reader) context.Context {
	if stdin == nil {
		return ctx
	}
	return context.WithValue(ctx, stdinKey{}, stdin)
}

// WithSource returns a context for a command of the server's that runs code, in a language, from its
// input. Only the code is scanned then, not the command.
func WithSource(ctx context.Context, language string, code *strings.Reader) context.Context {
	return context.WithValue(ctx, sourceKey{}, Code{Language: language, input: code})
}

// WithArgv returns a context for commands of the server's that run a command of the caller's, or none if argv is
// empty. Only the caller's command is scanned then.
func WithArgv(ctx context.Context, argv []string) context.Context {
	return context.WithValue(ctx, argvKey{}, argv)
}

// Exempt returns a context for commands and code that are the server's own, which are not scanned.
func Exempt(ctx context.Context) context.Context { return context.WithValue(ctx, exemptKey{}, true) }

// OfCommand returns the code that a command runs, as far as the request contains it.
func OfCommand(ctx context.Context, argv []string) []Code {
	if source, ok := ctx.Value(sourceKey{}).(Code); ok {
		return []Code{source}
	}
	if own, ok := ctx.Value(argvKey{}).([]string); ok {
		argv = own
	}
	use := program.Of(argv)
	var codes []Code
	for _, source := range use.Sources {
		codes = append(codes, Source(use.Language, source))
	}
	if stdin, ok := ctx.Value(stdinKey{}).(*strings.Reader); ok && use.Stdin {
		codes = append(codes, Code{Language: use.Language, input: stdin})
	}
	return codes
}

// File returns the code in a file that is written before a command runs: a file with the ending of a
// language that can be scanned, or that the command runs. ok is false for other files.
func File(argv []string, path, content string) (code Code, ok bool) {
	language := program.Language(path)
	if use := program.Of(argv); language == "" && use.File == path {
		language = use.Language
	}
	return Source(language, content), language != ""
}
