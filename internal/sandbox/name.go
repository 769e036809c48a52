package sandbox

import (
	"regexp"
	"strings"
	"sync"
)

var (
	namePattern    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })
	notInName      = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9._-]+`) })
	notInNameBegin = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[^A-Za-z0-9]+`) })
)

// CheckName accepts a name of a sandbox as /v1 takes it: "", for which the server chooses a name, or 1 to [NameMax] letters, digits, ".", "_" and "-" that begin with a
// letter or digit. The dialects accept more, as their clients do. Errors: Invalid, naming field, with a similar name that is
// accepted, if there is one.
func CheckName(field, name string) error {
	if name == "" || len(name) <= NameMax && namePattern().MatchString(name) {
		return nil
	}
	instead := ""
	if s := similarName(name); s != "" {
		instead = "; for example " + s
	}
	return InvalidField(field, "must be 1 to %d of A-Z, a-z, 0-9, dots, underscores and dashes, and begin with a letter or digit%s", NameMax, instead)
}

// similarName returns the name with dashes instead of characters that are not accepted; "" if nothing of it is.
func similarName(name string) string {
	s := notInNameBegin().ReplaceAllString(notInName().ReplaceAllString(name, "-"), "")
	return strings.TrimRight(s[:min(len(s), NameMax)], "-")
}
