package config

import (
	"net/url"
	"strings"
)

func oneOf(bad func(name, format string, args ...any), name, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	bad(name, "%q is none of %s", value, strings.Join(allowed, ", "))
}

func within[T interface {
	int | Duration | Bytes | CPU | Count | Factor
}](bad func(name, format string, args ...any), name string, value, low, high T) {
	if value < low || value > high {
		bad(name, "%v is not between %v and %v", value, low, high)
	}
}

// checkPipIndex checks the address of an index of Python packages; "" is none.
func checkPipIndex(bad func(name, format string, args ...any), address string) {
	at, err := url.Parse(address)
	switch {
	case address == "":
	case err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Hostname() == "":
		bad("build.pip_index_url", "%q is not an http or https URL such as https://pypi.org/simple", address)
	case at.User != nil:
		bad("build.pip_index_url", "it must not have a user or password: packages could read them while they are installed")
	}
}
