package code

import "strings"

// goesOn reports whether code that was typed so far goes on in the next line: a bracket or a quote
// is open, the last line ends with a backslash, or a block of Python has no empty line at its end.
func goesOn(language, code string) bool {
	python := language == "" || language == "python"
	if strings.HasSuffix(code, "\\\n") || open(language, code) {
		return true
	}
	lines := strings.Split(strings.TrimSuffix(code, "\n"), "\n")
	if !python || lines[len(lines)-1] == "" {
		return false
	}
	first, _, _ := strings.Cut(lines[0], "#")
	return strings.HasSuffix(strings.TrimSpace(first), ":") || strings.HasPrefix(lines[0], "@")
}

// open reports whether a bracket, or a quote that may span lines, is open at the end of code.
func open(language, code string) bool {
	comment, long := "#", []string{`"""`, "'''"}
	switch language {
	case "javascript", "typescript":
		comment, long = "//", []string{"`"}
	case "java":
		comment, long = "//", []string{`"""`}
	case "bash", "r":
		long = []string{`"`, "'"}
	}
	depth := 0
	for i := 0; i < len(code); i++ {
		rest := code[i:]
		if q := prefix(rest, long); q != "" {
			end := closing(rest[len(q):], q)
			if end < 0 {
				return true
			}
			i += len(q) + end + len(q) - 1
			continue
		}
		switch {
		case strings.HasPrefix(rest, comment) && (language != "bash" || i == 0 || strings.ContainsRune(" \t\n", rune(code[i-1]))):
			i += strings.IndexByte(rest, '\n') - 1 // each line has its end
		case rest[0] == '"' || rest[0] == '\'':
			line, _, _ := strings.Cut(rest[1:], "\n")
			end := closing(line, rest[:1])
			if end < 0 {
				return false // an error, which the interpreter explains
			}
			i += end + 1
		case strings.IndexByte("([{", rest[0]) >= 0:
			depth++
		case strings.IndexByte(")]}", rest[0]) >= 0:
			depth--
		}
	}
	return depth > 0
}

// prefix returns the first of list that s begins with; "" for none.
func prefix(s string, list []string) string {
	for _, p := range list {
		if strings.HasPrefix(s, p) {
			return p
		}
	}
	return ""
}

// closing returns the index of the quote that ends a string; -1 without one.
func closing(s, quote string) int {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		if strings.HasPrefix(s[i:], quote) {
			return i
		}
	}
	return -1
}
