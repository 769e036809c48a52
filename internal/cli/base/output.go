package base

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"github.com/dustin/go-humanize"
	"k8s.io/apimachinery/pkg/util/duration"
)

// PrintJSON prints v as JSON.
func (env *Env) PrintJSON(v any) error {
	enc := json.NewEncoder(env.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// PrintTable prints rows as an aligned table without borders.
func (env *Env) PrintTable(headers []string, rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = Clean(row[i])
		}
	}
	gap := lipgloss.NewStyle().PaddingRight(3)
	t := table.New().Headers(headers...).Rows(rows...).Wrap(false).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).
		BorderColumn(false).BorderRow(false).BorderHeader(false).
		StyleFunc(func(int, int) lipgloss.Style { return gap })
	var b strings.Builder
	for line := range strings.Lines(t.Render()) {
		b.WriteString(strings.TrimRight(line, " \n"))
		b.WriteByte('\n')
	}
	_, err := env.Stdout.Write([]byte(b.String()))
	return err
}

// PrintFields prints an object, a line per field, without the empty fields.
func (env *Env) PrintFields(fields [][2]string) error {
	var rows [][]string
	for _, f := range fields[1:] {
		if f[1] != "" {
			rows = append(rows, []string{f[0], f[1]})
		}
	}
	return env.PrintTable(fields[0][:], rows)
}

// Clean removes characters that could move the cursor or change the terminal: names, messages and
// paths come from others, some from inside sandboxes.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Age returns the time since t, shortened.
func Age(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return duration.HumanDuration(time.Since(t))
}

// Until returns the time until t, shortened; "" for nil.
func Until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return duration.HumanDuration(max(time.Until(*t), 0))
}

// Size formats a number of bytes; "" for 0.
func Size(n int64) string {
	if n <= 0 {
		return ""
	}
	return humanize.IBytes(uint64(n))
}
