package sandbox

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckEnv checks environment variables. No message holds a value: values are secrets.
// Errors: Invalid, naming env or the variable.
func CheckEnv(env map[string]string) error {
	if len(env) > EnvMax {
		return InvalidField("env", "must hold at most %d variables", EnvMax)
	}
	size := 0
	for name, value := range env {
		size += len(name) + len(value)
		if !validEnvName(name) {
			return InvalidField(FieldOf("env", name), "names of variables are letters, digits and underscores and do not begin with a digit")
		}
		if !IsText(value) {
			return InvalidField("env."+name, "must be valid UTF-8 without NUL")
		}
	}
	if size > EnvBytesMax {
		return InvalidField("env", "names and values together must be at most %d bytes", EnvBytesMax)
	}
	return nil
}

func validEnvName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// CheckPlace checks the working directory and the user of a command, as far as that is
// possible without its sandbox; "" is the default of each. Errors: Invalid, naming cwd or user.
func CheckPlace(cwd, user string) error {
	if cwd != "" && (!path.IsAbs(cwd) || !IsText(cwd)) {
		return InvalidField("cwd", "%.100q is not an absolute path", cwd)
	}
	if strings.ContainsFunc(user, unicode.IsControl) || !utf8.ValidString(user) || user == ":" {
		return InvalidField("user", "%.100q is neither a name nor a number, with a group after a colon or without", user)
	}
	return nil
}

// CheckArgv checks a program and its arguments, as far as that is possible without its sandbox.
// Errors: Invalid, naming command.
func CheckArgv(argv []string) error {
	size := 0
	for _, arg := range argv {
		size += len(arg)
		if err := checkArgument("command", arg); err != nil {
			return err
		}
	}
	if len(argv) == 0 || argv[0] == "" {
		return InvalidField("command", "must name a program")
	}
	if size > CommandMax {
		return InvalidField("command", "must be at most %d bytes; write longer input to a file", CommandMax)
	}
	return nil
}

// CheckScript checks a script that a shell gets as an argument. Errors: Invalid, naming shell.
func CheckScript(script string) error { return checkArgument("shell", script) }

// checkArgument checks an argument of a command in a field.
func checkArgument(field, arg string) error {
	if strings.ContainsRune(arg, 0) {
		return InvalidField(field, "must not hold NUL characters")
	}
	if len(arg) > ArgumentMax {
		return InvalidField(field, "has an argument of %d bytes, at most %d are allowed; write longer input to a file", len(arg), ArgumentMax)
	}
	return nil
}

// CheckMetadata checks the description and the metadata of an object. Errors: Invalid, naming the
// field.
func CheckMetadata(description string, metadata map[string]string) error {
	if len(description) > DescriptionMax || !IsText(description) {
		return InvalidField("description", "must be at most %d bytes of UTF-8 without NUL", DescriptionMax)
	}
	size := 0
	for key, value := range metadata {
		if key == "" || !IsText(key) || !IsText(value) {
			return InvalidField(FieldOf("metadata", key), "keys and values must be UTF-8 without NUL, keys not empty")
		}
		size += len(key) + len(value)
	}
	if len(metadata) > MetadataMax || size > MetadataByteMax {
		return InvalidField("metadata", "must hold at most %d entries and %d bytes", MetadataMax, MetadataByteMax)
	}
	return nil
}

// CheckLabels checks the labels of a  Errors: Invalid, naming the field.
func CheckLabels(labels map[string]string) error {
	if len(labels) > LabelsMax {
		return InvalidField("labels", "must hold at most %d labels", LabelsMax)
	}
	for key, value := range labels {
		bad := func(s string) bool {
			return len(s) > LabelMax || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl)
		}
		if key == "" || bad(key) {
			return InvalidField(FieldOf("labels", key), "keys must be 1 to %d bytes of UTF-8 without control characters", LabelMax)
		}
		if bad(value) {
			return InvalidField("labels."+key, "must be at most %d bytes of UTF-8 without control characters", LabelMax)
		}
	}
	return nil
}
