package config

import (
	"fmt"
	"slices"
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
	var group []string // the names of the settings around the last one
	for _, s := range Settings() {
		names := strings.Split(s.Name, ".")
		within, key := names[:len(names)-1], names[len(names)-1]
		if len(within) < 2 && !slices.Equal(within, group) || len(within) == 0 {
			b.WriteByte('\n')
		}
		for i, name := range within {
			if i >= len(group) || !slices.Equal(within[:i+1], group[:i+1]) {
				fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", i), name)
			}
		}
		group = within
		indent := strings.Repeat("  ", len(within))
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
