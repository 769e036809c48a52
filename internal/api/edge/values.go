package edge

import "github.com/modbox/modbox/internal/sandbox"

const (
	// valuesMax is how many values a JSON body may have: a command may have some 65,000
	// arguments, everything else has fewer.
	valuesMax = 100_000
	// depthMax is how deep they may lie in each other.
	depthMax = 64
)

// values counts the values of JSON as its text goes by, because decoding makes more of
// each than of other bytes. Text that is no JSON has some number of values.
type values struct {
	total, depth   int
	quoted, escape bool // inside of a string; after a backslash in it
}

// count returns the number of values that begin in the next piece of text, members of objects
// twice. Errors: Invalid for too many or too deeply nested values.
func (v *values) count(text []byte) (n int64, err error) {
	for _, c := range text {
		switch {
		case v.escape:
			v.escape = false
		case c == '\\':
			v.escape = v.quoted
		case c == '"':
			v.quoted = !v.quoted
		case v.quoted:
		case c == '{', c == '[':
			v.depth++
			n++
		case c == '}', c == ']':
			v.depth--
		case c == ',', c == ':':
			n++
		}
		if v.depth > depthMax {
			return n, sandbox.InvalidField("body", "has more than %d objects and arrays within each other", depthMax)
		}
	}
	if v.total += int(n); v.total > valuesMax {
		return n, sandbox.InvalidField("body", "has more than %d values", valuesMax)
	}
	return n, nil
}
