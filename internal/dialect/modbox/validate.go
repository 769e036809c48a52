package modbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/sandbox"
)

// bodyMax bounds JSON bodies.
const bodyMax = 1 << 20

// fault is an error in a request, in the form that clients of the product expect.
type fault struct {
	Loc  []any  `json:"loc"`
	Msg  string `json:"msg"`
	Type string `json:"type"`
}

// validationError is answered with status 422.
type validationError struct{ faults []fault }

func (e *validationError) Error() string {
	f := e.faults[0]
	return fmt.Sprintf("%v: %s", f.Loc, f.Msg)
}

// input has the fields of a JSON object, to be read individually. Other fields are ignored, and
// null counts as absent.
type input struct {
	fields map[string]json.RawMessage
	faults []fault
}

// readInput reads the body of a request. The content type does not matter: the product's own
// examples send none.
func readInput(w http.ResponseWriter, r *http.Request, max int64) (*input, error) {
	body, done := edge.Body(w, r, max)
	defer done()
	b, err := io.ReadAll(body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, sandbox.Errorf(sandbox.TooLarge, "the body has more than %d bytes", max)
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, &validationError{[]fault{{[]any{"body"}, "Field required", "missing"}}}
	}
	in := &input{}
	if err := json.Unmarshal(b, &in.fields); err != nil {
		if syntax, ok := err.(*json.SyntaxError); ok {
			return nil, &validationError{[]fault{{[]any{"body", syntax.Offset}, "JSON decode error", "json_invalid"}}}
		}
		return nil, &validationError{[]fault{{[]any{"body"}, "Input should be a valid dictionary or object to extract fields from", "model_attributes_type"}}}
	}
	return in, nil
}

// err returns all errors in the fields read so far.
func (in *input) err() error {
	if len(in.faults) == 0 {
		return nil
	}
	return &validationError{in.faults}
}

func (in *input) fault(field, kind, format string, args ...any) {
	in.faults = append(in.faults, fault{[]any{"body", field}, fmt.Sprintf(format, args...), kind})
}

// raw returns a field that is present and not null.
func (in *input) raw(field string, required bool) (json.RawMessage, bool) {
	v, there := in.fields[field]
	if there && (required || string(v) != "null") {
		return v, true
	}
	if required {
		in.fault(field, "missing", "Field required")
	}
	return nil, false
}

// str reads a string of min to max characters; max 0 means any number.
func (in *input) str(field string, required bool, min, max int) string {
	v, ok := in.raw(field, required)
	if !ok {
		return ""
	}
	var s string
	if string(v) == "null" || json.Unmarshal(v, &s) != nil {
		in.fault(field, "string_type", "Input should be a valid string")
		return ""
	}
	switch n := utf8.RuneCountInString(s); {
	case n < min:
		in.fault(field, "string_too_short", "String should have at least %d character%s", min, plural(min))
	case max > 0 && n > max:
		in.fault(field, "string_too_long", "String should have at most %d character%s", max, plural(max))
	}
	return s
}

// uuid reads a UUID.
func (in *input) uuid(field string) string {
	v, ok := in.raw(field, false)
	if !ok {
		return ""
	}
	var s string
	if json.Unmarshal(v, &s) != nil {
		in.fault(field, "uuid_type", "UUID input should be a string, bytes or UUID object")
		return ""
	}
	u, err := uuid.Parse(s)
	if err != nil {
		in.fault(field, "uuid_parsing", "Input should be a valid UUID")
		return ""
	}
	return u.String()
}

// integer reads an integer between min and max; like the product it accepts numbers in strings and
// numbers like 5.0.
func (in *input) integer(field string, otherwise, min, max int) int {
	v, ok := in.raw(field, false)
	if !ok {
		return otherwise
	}
	f, err := strconv.ParseFloat(strings.Trim(string(v), `"`), 64)
	switch {
	case err != nil && strings.HasPrefix(string(v), `"`):
		in.fault(field, "int_parsing", "Input should be a valid integer, unable to parse string as an integer")
	case err != nil:
		in.fault(field, "int_type", "Input should be a valid integer")
	case f != math.Trunc(f):
		in.fault(field, "int_from_float", "Input should be a valid integer, got a number with a fractional part")
	case f < float64(min):
		in.fault(field, "greater_than_equal", "Input should be greater than or equal to %d", min)
	case f > float64(max):
		in.fault(field, "less_than_equal", "Input should be less than or equal to %d", max)
	default:
		return int(f)
	}
	return otherwise
}

// boolean reads true or false.
func (in *input) boolean(field string) bool {
	v, ok := in.raw(field, false)
	if !ok {
		return false
	}
	var b bool
	if json.Unmarshal(v, &b) != nil {
		in.fault(field, "bool_type", "Input should be a valid boolean")
	}
	return b
}

// dict reads an object of strings.
func (in *input) dict(field string) map[string]string {
	v, ok := in.raw(field, false)
	if !ok {
		return nil
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal(v, &raw) != nil {
		in.fault(field, "dict_type", "Input should be a valid dictionary")
		return nil
	}
	out := make(map[string]string, len(raw))
	for k, v := range raw {
		var s string
		if string(v) == "null" || json.Unmarshal(v, &s) != nil {
			in.faults = append(in.faults, fault{[]any{"body", field, k}, "Input should be a valid string", "string_type"})
			continue
		}
		out[k] = s
	}
	return out
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
