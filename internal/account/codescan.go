package account

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// CodeScan says whether the code of a workspace is scanned before it runs.
type CodeScan string

// The policies: with CodeScanWarn findings are reported, with CodeScanBlock code with findings does not run.
const (
	CodeScanOff   CodeScan = "off"
	CodeScanWarn  CodeScan = "warn"
	CodeScanBlock CodeScan = "block"
)

// Valid reports whether c is one of the policies.
func (c CodeScan) Valid() bool { return c == CodeScanOff || c == CodeScanWarn || c == CodeScanBlock }

// KnownScanRules are the rules of scans.
var KnownScanRules = []string{"process", "network", "file_delete", "eval", "native", "environment", "import", "syntax"}

// ScanRules are rules of scans. They are stored as text, with spaces between them.
type ScanRules []string

// Check checks rules of a request, and removes duplicates. Errors: Invalid, naming the field.
func (r *ScanRules) Check(field string) error {
	var list ScanRules
	for i, rule := range *r {
		if !slices.Contains(KnownScanRules, rule) {
			return sandbox.InvalidField(fmt.Sprintf("%s.%d", field, i), "%q is no rule; the rules are %s", sandbox.OneLine(rule), strings.Join(KnownScanRules, ", "))
		}
		if !slices.Contains(list, rule) {
			list = append(list, rule)
		}
	}
	*r = list
	return nil
}

// Value returns the text of the rules.
func (r ScanRules) Value() (driver.Value, error) { return strings.Join(r, " "), nil }

// Scan sets the rules to the rules of a text.
func (r *ScanRules) Scan(text any) error {
	s, ok := text.(string)
	if !ok {
		return fmt.Errorf("rules of scans are stored as %T, not as text", text)
	}
	*r = strings.Fields(s)
	return nil
}
