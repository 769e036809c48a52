package shellscan

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/modbox/modbox/internal/program"
)

// programs are programs with the rule that their use is a finding of.
var programs = rulesOf(map[string]string{
	"process":     "kill killall pkill nohup setsid disown at batch crontab systemctl service",
	"network":     "curl wget nc ncat netcat socat ssh scp sftp ftp tftp telnet nmap dig nslookup host ping traceroute aria2c rclone http https",
	"file_delete": "rm rmdir unlink shred truncate wipefs mkfs",
	"eval":        "eval",
	"native":      "insmod modprobe kexec",
	"environment": "printenv",
})

// installers load packages from the network by these commands.
var (
	installers = strings.Fields("pip pip3 pipx npm yarn pnpm bun gem cargo apt apt-get apk dnf yum uv conda mamba brew go poetry")
	installing = strings.Fields("install add i ci get download update upgrade sync")
	// remote are the commands of git for the network.
	remote = strings.Fields("clone fetch pull push ls-remote submodule")
)

func rulesOf(names map[string]string) map[string]string {
	rules := map[string]string{}
	for rule, list := range names {
		for _, n := range strings.Fields(list) {
			rules[n] = rule
		}
	}
	return rules
}

// program looks at a program with its arguments.
func (s *scan) program(pos syntax.Pos, argv []string, args []*syntax.Word) {
	called := program.Name(argv[0])
	if rule := programs[called]; rule != "" {
		s.add(pos, rule, "runs %s", name(called))
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(argv[1:], func(arg string) bool { return slices.Contains(words, arg) })
	}
	switch {
	case slices.Contains(installers, called) && has(installing...), called == "git" && has(remote...):
		s.add(pos, "network", "runs %s %s", name(called), name(first(argv[1:])))
	case called == "rsync" && slices.ContainsFunc(argv[1:], func(arg string) bool { return strings.Contains(arg, ":") }):
		s.add(pos, "network", "runs rsync with another machine")
	case called == "find" && has("-delete"):
		s.add(pos, "file_delete", "runs find -delete")
	case called == "find" && has("-exec", "-execdir", "-ok", "-okdir"):
		s.afterFlag(argv, args, "-exec", "-execdir", "-ok", "-okdir")
	case called == "dd" && slices.ContainsFunc(argv[1:], func(arg string) bool { return strings.HasPrefix(arg, "of=/dev/") }):
		s.add(pos, "file_delete", "overwrites a device")
	case called == "env" && bare(argv[1:]), called == "set" && len(argv) == 1:
		s.add(pos, "environment", "lists variables")
	case called == "source" || called == ".":
		if len(argv) > 1 && strings.Contains(argv[1], variable) {
			s.add(pos, "eval", "runs a file whose name is not constant")
		}
	case called == "trap" && len(argv) > 2:
		s.nested(args[1].Pos(), program.Bash, argv[1])
	}
	for i, arg := range argv[1:] {
		if strings.HasPrefix(arg, "/proc/") && strings.HasSuffix(arg, "/environ") {
			s.add(args[i+1].Pos(), "environment", "reads %s", name(arg))
		}
	}
}

// afterFlag looks at the commands that follow a flag, as for find.
func (s *scan) afterFlag(argv []string, args []*syntax.Word, flags ...string) {
	for i := 1; i < len(argv)-1; i++ {
		if slices.Contains(flags, argv[i]) {
			rest := argv[i+1:]
			s.program(args[i+1].Pos(), rest, args[i+1:])
			if use := program.Of(rest); len(use.Sources) > 0 {
				s.nested(args[i+1].Pos(), use.Language, strings.Join(use.Sources, "\n"))
			}
		}
	}
}

// bare reports whether the arguments of env name no program.
func bare(args []string) bool {
	return !slices.ContainsFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") })
}

// first returns the first argument that is no option.
func first(args []string) string {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			return arg
		}
	}
	return ""
}

// number reports whether an argument is a number, perhaps with a unit, as timeout has it.
func number(arg string) bool {
	return arg != "" && strings.Trim(strings.TrimRight(arg, "smhd"), "0123456789.") == ""
}

// name shortens a name for a reason.
func name(s string) string {
	s = strings.ReplaceAll(s, variable, "…")
	if len(s) > nameMax {
		return strings.ToValidUTF8(s[:nameMax], "") + "…"
	}
	return s
}

func words(args []*syntax.Word) []string {
	argv := make([]string, len(args))
	for i, w := range args {
		argv[i] = text(w)
	}
	return argv
}

// text returns the text of a word, with [variable] for each part that is not constant.
func text(w *syntax.Word) string {
	var b strings.Builder
	for _, p := range w.Parts {
		part(&b, p, false)
	}
	return b.String()
}

func part(b *strings.Builder, p syntax.WordPart, quoted bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		b.WriteString(unescaped(p.Value, quoted))
	case *syntax.SglQuoted:
		if p.Dollar && strings.Contains(p.Value, `\`) {
			b.WriteString(variable)
			return
		}
		b.WriteString(p.Value)
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			part(b, inner, true)
		}
	default:
		b.WriteString(variable)
	}
}

// unescaped removes the backslashes of a literal.
func unescaped(s string, quoted bool) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) || quoted && !strings.ContainsRune("$`\"\\\n", rune(s[i+1])) {
			b.WriteByte(s[i])
			continue
		}
		if i++; s[i] != '\n' {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// document returns the text of a here-document.
func document(r *syntax.Redirect) string {
	var b strings.Builder
	raw := slices.ContainsFunc(r.Word.Parts, func(p syntax.WordPart) bool { _, plain := p.(*syntax.Lit); return !plain })
	for _, p := range r.Hdoc.Parts {
		if lit, ok := p.(*syntax.Lit); ok && raw {
			b.WriteString(lit.Value)
			continue
		}
		part(&b, p, true)
	}
	return b.String()
}
