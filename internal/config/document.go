package config

import (
	"fmt"
	"strings"
)

// Example returns a configuration file with every setting at its default,
// commented out and explained.
func Example() string {
	var b strings.Builder
	b.WriteString(`# Settings of "modbox server --config FILE". Every line is a default; remove the
# "#" to change it. A setting can also be given as environment variable or flag:
# sandbox.max_memory is MODBOX_SANDBOX_MAX_MEMORY and --sandbox-max-memory.
`)
	section := ""
	for _, s := range Settings() {
		indent, key := "", s.Name
		if sec, rest, ok := strings.Cut(s.Name, "."); ok {
			indent, key = "  ", rest
			if sec != section {
				fmt.Fprintf(&b, "\n%s:\n", sec)
				section = sec
			}
		} else {
			b.WriteByte('\n')
		}
		for _, line := range wrap(s.Doc, 76-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		value := s.String()
		if value == "" {
			value = `""`
		}
		fmt.Fprintf(&b, "%s#%s: %s\n", indent, key, value)
	}
	return b.String()
}

// Table returns the settings as a table in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| setting | variable | flag | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range Settings() {
		value := s.String()
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | `--%s` | %s | %s |\n", s.Name, s.Env(), s.Flag(), value, s.Doc)
	}
	return b.String()
}

// wrap breaks text at spaces into lines of at most width characters, longer words excepted.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
