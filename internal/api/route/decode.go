package route

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// BodyError describes the mistake in a JSON body and names its field.
func BodyError(err error) error {
	var tooLarge *http.MaxBytesError
	var wrongType *json.UnmarshalTypeError
	var coded *sandbox.Error
	switch {
	case errors.As(err, &coded):
		return err
	case errors.As(err, &tooLarge):
		return sandbox.Errorf(sandbox.TooLarge, "the body has more than %d bytes", tooLarge.Limit)
	case errors.As(err, &wrongType) && wrongType.Field != "":
		return sandbox.InvalidField(wrongType.Field, "must be %s, not %s", jsonType(wrongType.Type.Kind().String()), wrongType.Value)
	case errors.Is(err, io.EOF):
		return sandbox.InvalidField("body", "is missing")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return sandbox.InvalidField("body", "ends in the middle of the JSON")
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return sandbox.InvalidField(strings.Trim(name, `"`), "is not a field of this request")
	}
	return sandbox.InvalidField("body", "is not the JSON that this route takes")
}

// jsonType returns the JSON name for a kind of Go value.
func jsonType(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "an integer"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "an array"
	case kind == "map", kind == "struct":
		return "an object"
	default:
		return "a " + kind
	}
}
