// Package program finds the code in a command: the source that its arguments give to an interpreter. It
// knows the usual interpreters and their options, and runs nothing.
package program

import (
	"path"
	"slices"
	"strings"
)

// The languages that have a scanner. Other languages have the name of their interpreter.
const (
	Python     = "python"
	JavaScript = "javascript"
	TypeScript = "typescript"
	Bash       = "bash"
)

// Use is how a command uses an interpreter.
type Use struct {
	// Language is the language of the interpreter; "" if the command runs no interpreter that is known.
	Language string
	// Sources are the programs that the arguments contain.
	Sources []string
	// File is the program's file, if the arguments name one.
	File string
	// Stdin means that the interpreter reads its program from standard input.
	Stdin bool
}

// interpreter is how an interpreter finds its program.
type interpreter struct {
	language string
	// code are the letters of the options whose argument is source; so are the arguments of long options in codeLong.
	code     string
	codeLong []string
	// value are the letters of other options with an argument, and valueLong such long options.
	value     string
	valueLong []string
	// after means that the source is the first argument after all options, not after its own option.
	after bool
	// module is the letter of the option that names a program elsewhere; 0 for none.
	module byte
	// subcommands precede source, as in "deno eval SOURCE".
	subcommands []string
}

var (
	python = &interpreter{language: Python, code: "c", value: "WX", valueLong: []string{"--check-hash-based-pycs"}, module: 'm'}
	node   = &interpreter{
		language: JavaScript, code: "ep", codeLong: []string{"--eval", "--print"}, value: "rC",
		valueLong: []string{"--require", "--import", "--loader", "--experimental-loader", "--conditions", "--input-type", "--env-file", "--title", "--cwd", "--preload"},
	}
	deno  = &interpreter{language: TypeScript, subcommands: []string{"eval"}, value: "c", valueLong: []string{"--config", "--ext", "--import-map"}}
	shell = &interpreter{language: Bash, code: "c", after: true, value: "oO", valueLong: []string{"--rcfile", "--init-file"}}
	perl  = &interpreter{language: "perl", code: "eE", value: "IMm"}
	ruby  = &interpreter{language: "ruby", code: "e", value: "rICE"}
	php   = &interpreter{language: "php", code: "rBRE", codeLong: []string{"--run", "--process-begin", "--process-code", "--process-end"}, value: "cdfz"}
	rlang = &interpreter{language: "r", code: "e", codeLong: []string{"--eval"}}
	lua   = &interpreter{language: "lua", code: "e", value: "l"}
	tsx   = &interpreter{language: TypeScript, code: "ep", codeLong: []string{"--eval", "--print"}, value: "rC", valueLong: node.valueLong}

	interpreters = map[string]*interpreter{
		"python": python, "pypy": python, "ipython": python, "node": node, "nodejs": node, "bun": node, "deno": deno, "tsx": tsx, "ts-node": tsx,
		"sh": shell, "bash": shell, "dash": shell, "ash": shell, "ksh": shell, "mksh": shell, "zsh": shell, "rbash": shell,
		"perl": perl, "ruby": ruby, "php": php, "Rscript": rlang, "R": rlang, "lua": lua, "luajit": lua,
	}

	// wrappers run the command in their arguments.
	wrappers = []string{
		"env", "timeout", "nice", "ionice", "nohup", "setsid", "stdbuf", "sudo", "doas", "su", "runuser", "chroot", "unshare", "exec", "command",
		"builtin", "time", "xargs", "busybox", "strace", "xvfb-run", "flock", "script", "watch", "uv", "uvx", "npx", "poetry", "pipenv", "tini", "dumb-init", "gosu",
	}
)

// Name returns the name of a program without its directory and its version, such as python for /usr/bin/python3.13.
func Name(program string) string {
	name := path.Base(program)
	if trimmed := strings.TrimRight(name, "0123456789."); interpreters[trimmed] != nil {
		return trimmed
	}
	return name
}

// Interpreter returns the language of the interpreter of that name; "" if there is none.
func Interpreter(name string) string {
	if in := interpreters[Name(name)]; in != nil {
		return in.language
	}
	return ""
}

// Language returns the language of a file by its name; "" if it is not known.
func Language(file string) string {
	switch strings.ToLower(path.Ext(file)) {
	case ".py", ".pyw":
		return Python
	case ".js", ".mjs", ".cjs":
		return JavaScript
	case ".ts", ".mts", ".cts":
		return TypeScript
	case ".sh", ".bash":
		return Bash
	}
	return ""
}

// Wraps reports whether a program runs the command in its arguments, as env does.
func Wraps(name string) bool { return slices.Contains(wrappers, name) }

// Of returns how a command uses an interpreter. It looks through programs that run another, such as env
// and timeout.
func Of(argv []string) Use {
	for len(argv) > 0 {
		name := Name(argv[0])
		if in := interpreters[name]; in != nil {
			return in.use(argv[1:])
		}
		if !Wraps(name) {
			return Use{}
		}
		next := slices.IndexFunc(argv[1:], func(arg string) bool { return interpreters[Name(arg)] != nil || Wraps(Name(arg)) })
		if next < 0 {
			return Use{}
		}
		argv = argv[1+next:]
	}
	return Use{}
}

// use reads the arguments of the interpreter.
func (in *interpreter) use(args []string) Use {
	u := Use{Language: in.language}
	pending := false // the source comes after the options
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			if len(args) > 0 {
				return in.operand(u, pending, args)
			}
		case arg == "-" && !pending:
			u.Stdin = len(u.Sources) == 0
			return u
		case strings.HasPrefix(arg, "--"):
			name, value, given := strings.Cut(arg, "=")
			switch {
			case slices.Contains(in.codeLong, name) && given:
				u.Sources = append(u.Sources, value)
			case slices.Contains(in.codeLong, name) && len(args) > 0:
				u.Sources, args = append(u.Sources, args[0]), args[1:]
			case slices.Contains(in.valueLong, name) && !given && len(args) > 0:
				args = args[1:]
			}
		case len(arg) > 1 && (arg[0] == '-' || arg[0] == '+' && in.after):
			var done bool
			if args, done = in.cluster(&u, &pending, arg[1:], args); done {
				return u
			}
		default:
			return in.operand(u, pending, append([]string{arg}, args...))
		}
	}
	u.Stdin = len(u.Sources) == 0 && !pending
	return u
}

// cluster reads options of a letter each. done means that no program follows.
func (in *interpreter) cluster(u *Use, pending *bool, letters string, args []string) (rest []string, done bool) {
	for i := 0; i < len(letters); i++ {
		letter, attached := letters[i], letters[i+1:]
		switch {
		case strings.IndexByte(in.code, letter) >= 0 && in.after:
			*pending = true
		case strings.IndexByte(in.code, letter) >= 0 && strings.Trim(attached, in.code) == "" && attached != "" && in.language != Python:
			continue // as in node -pe SOURCE
		case strings.IndexByte(in.code, letter) >= 0 && attached != "":
			u.Sources = append(u.Sources, attached)
			return args, in.language == Python
		case strings.IndexByte(in.code, letter) >= 0:
			if len(args) > 0 {
				u.Sources, args = append(u.Sources, args[0]), args[1:]
			}
			return args, in.language == Python // further arguments are arguments of the program
		case in.module != 0 && letter == in.module:
			return args, true
		case in.after && letter == 's':
			u.Stdin = true
		case strings.IndexByte(in.value, letter) >= 0:
			if attached == "" && len(args) > 0 {
				args = args[1:]
			}
			return args, false
		}
	}
	return args, false
}

// operand reads the first argument that is no option.
func (in *interpreter) operand(u Use, pending bool, args []string) Use {
	switch {
	case pending:
		u.Sources, u.Stdin = append(u.Sources, args[0]), false
	case u.Stdin: // the arguments of the program
	case slices.Contains(in.subcommands, args[0]):
		for _, arg := range args[1:] {
			if !strings.HasPrefix(arg, "-") {
				u.Sources = append(u.Sources, arg)
				break
			}
		}
	case len(u.Sources) == 0:
		u.File = args[0]
	}
	return u
}
