package audit

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	// CommandMax bounds the bytes of a recorded command, and commandArgs its arguments.
	CommandMax  = 4 << 10
	commandArgs = 256

	hidden = "[redacted]"
	// tailMax bounds the bytes that are dropped from a word that the limit cuts: the rest of a secret
	// might not look like a secret.
	tailMax = 256
	// The value of a variable is hidden everywhere if it has at least valueMin bytes;
	// secretValueMin applies to variables whose names suggest secrets.
	valueMin, secretValueMin = 6, 4
)

// ordinary are variables whose values are not secret and occur in many commands.
var ordinary = map[string]bool{
	"PATH": true, "HOME": true, "PWD": true, "OLDPWD": true, "LANG": true, "LC_ALL": true, "LANGUAGE": true, "TERM": true, "USER": true,
	"SHELL": true, "TZ": true, "HOSTNAME": true, "NODE_ENV": true, "PYTHONPATH": true, "DEBIAN_FRONTEND": true, "TMPDIR": true,
}

const (
	// names are words in the names of secrets.
	names = `(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|token|passwd|password|passphrase|pwd|credentials?)`
	// value matches a word, or everything between quotes, which are preceded by backslashes inside
	// of others.
	value = `(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\+"(?:[^"\\]|\\+[^"\\])*(?:\\+")?|[^\s"'&;|)]+)`
)

var (
	secretName = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:` + names + `|(?:^|_)(?:key|auth|pass)(?:_|$))`)
	})
	secretFlag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^--?[a-z0-9-]*` + names + `$`) })

	// inNames are words. Each match of names contains at least one of them.
	inNames = []string{"key", "secret", "token", "pass", "pwd", "credential"}

	// patterns match the forms of secrets.
	patterns = sync.OnceValue(func() []pattern {
		return []pattern{
			{regexp.MustCompile(`()-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`), []string{"private key-----"}},
			// Authorization: Bearer …, token …, Basic …
			{regexp.MustCompile(`(?i)\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:[a-z]+\s+)?)[^\s"',]+`), []string{"authorization"}},
			{regexp.MustCompile(`(?i)\b((?:bearer|basic)\s+)[a-z0-9+/=._~-]{8,}`), []string{"bearer", "basic"}},
			{regexp.MustCompile(`(?i)\b((?:set-)?cookie["']?\s*[:=]\s*)[^"'\r\n]+`), []string{"cookie"}},
			// NAME=value, "name": "value", name: value, --name=value
			{regexp.MustCompile(`(?i)([a-z0-9_.-]*` + names + `[a-z0-9_-]*\\*["']?\s*[:=]\s*)` + value), inNames},
			{regexp.MustCompile(`(?i)([a-z0-9_.-]*_key\\*["']?\s*[:=]\s*)` + value), []string{"_key"}},
			{regexp.MustCompile(`(?i)(--?[a-z0-9-]*` + names + `\s+)` + value), inNames},
			// user:password in URLs, and as curl and others take it
			{regexp.MustCompile(`([a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(@)`), []string{"://"}},
			{regexp.MustCompile(`((?:^|\s)(?:-u|--user)[\s=]+["']?[^\s:"']+:)[^\s"']+`), []string{"-u"}},
			// Tokens with known prefixes: ours and others'.
			{regexp.MustCompile(`()\b(?:mb[a-z]_[a-z2-9]{16,}|str_[a-z2-7]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|xox[a-z]-[A-Za-z0-9-]{10,}|npm_[A-Za-z0-9]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?)`), []string{"mb", "str_", "sk-", "gh", "github_pat_", "glpat-", "xox", "npm_", "akia", "asia", "aiza", "eyj"}},
		}
	})
)

// pattern matches a form of secrets.
type pattern struct {
	form *regexp.Regexp // its groups remain in the text
	// has are texts in lower case. A text in ASCII that form matches contains one of them, and to search
	// for them takes a small part of the time of form.
	has []string
}

// mayMatch reports whether the form can match in a text that is ASCII and in lower case here.
func (p pattern) mayMatch(lower string) bool {
	return slices.ContainsFunc(p.has, func(part string) bool { return strings.Contains(lower, part) })
}

// Redact returns s without parts that look like secrets.
func Redact(s string) string {
	lower, ascii := strings.ToLower(s), isASCII(s) // some letters that are not ASCII match as ASCII letters
	for _, p := range patterns() {
		if ascii && !p.mayMatch(lower) {
			continue
		}
		if redacted := p.form.ReplaceAllString(s, "${1}"+hidden+"${2}"); redacted != s {
			s, lower = redacted, strings.ToLower(redacted)
		}
	}
	return s
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// secrets are values that must not appear, the longest first.
type secrets []string

// secretsOf returns the values of variables that must be hidden.
func secretsOf(envs []map[string]string) secrets {
	var list secrets
	for _, env := range envs {
		for name, v := range env {
			if len(v) >= valueMin && !ordinary[name] || len(v) >= secretValueMin && secretName().MatchString(name) {
				list = append(list, v)
			}
		}
	}
	// A value may be part of another.
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(list)
}

// hide returns s without the values. When s was cut off at its end, hide also removes a possible
// beginning of a value there.
func (list secrets) hide(s string, cut bool) string {
	for _, v := range list {
		s = strings.ReplaceAll(s, v, hidden)
	}
	if !cut {
		return s
	}
	most := 0
	for _, v := range list {
		for n := min(len(v)-1, len(s)); n > most; n-- {
			if strings.HasSuffix(s, v[:n]) {
				most = n
				break
			}
		}
	}
	return s[:len(s)-most]
}

// command returns the part of a command to record, and whether it was truncated, regardless of
// hidden values.
func command(argv []string, envs []map[string]string) (kept []string, truncated bool) {
	values := secretsOf(envs)
	space := CommandMax
	hideNext := false
	for i, arg := range argv {
		if space <= 0 || i == commandArgs {
			return kept, true
		}
		cut := len(arg) > space
		if cut {
			arg = arg[:space]
		}
		space -= len(arg) + 1
		if hideNext && arg != "" {
			kept, hideNext, truncated = append(kept, hidden), false, truncated || cut
			continue
		}
		hideNext = secretFlag().MatchString(arg)
		if user, _, ok := strings.Cut(arg, ":"); ok && i > 0 && (argv[i-1] == "-u" || argv[i-1] == "--user") {
			arg = user + ":" + hidden
		}
		arg = values.hide(arg, cut)
		if cut {
			arg = withoutTail(arg)
			truncated = true
		}
		kept = append(kept, Redact(valid(arg)))
	}
	return kept, truncated
}

// withoutTail returns s without its last word, which is incomplete.
func withoutTail(s string) string {
	from := max(len(s)-tailMax, 0)
	if i := strings.LastIndexAny(s[from:], " \t\r\n"); i >= 0 {
		return s[:from+i+1]
	}
	return s[:from]
}

// valid returns s as valid UTF-8 without NUL, which PostgreSQL cannot store.
func valid(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// text returns the part to record of a text that a caller or a sandbox chose: valid UTF-8 without NUL and
// secrets, and at most max bytes.
func text(s string, max int) string {
	rest := ""
	if len(s) > max {
		s, rest = withoutTail(s[:max]), "…"
	}
	return Redact(valid(s)) + rest
}
