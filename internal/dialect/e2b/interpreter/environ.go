package interpreter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/dialect/e2b"
	"github.com/modbox/modbox/internal/sandbox"
)

// accessKind is the kind of the credential for code.
const accessKind = e2b.Access

// environ returns the code that sets environment variables in an interpreter, and the code that
// takes them back: a variable of the sandbox gets its value again. Errors: Unsupported.
func environ(language string, env, own map[string]string) (set, unset string, err error) {
	var before, after strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		add, remove, ok := assignment(language, name)
		if !ok {
			return "", "", sandbox.Errorf(sandbox.Unsupported, "environment variables of one run are not available in %s; set them when the sandbox is created", sandbox.OneLine(language))
		}
		before.WriteString(add(env[name]) + "\n")
		if value, ok := own[name]; ok {
			after.WriteString(add(value) + "\n")
		} else {
			after.WriteString(remove + "\n")
		}
	}
	return before.String(), after.String(), nil
}

// assignment returns the statements that set and remove a variable in a language. They leave no name
// behind and have no value.
func assignment(language, name string) (add func(value string) string, remove string, ok bool) {
	switch key := literal(name); language {
	case python:
		return func(v string) string { return fmt.Sprintf(`__import__("os").environ[%s] = %s`, key, literal(v)) },
			fmt.Sprintf(`(__import__("os").environ.pop(%s, None), None)[1]`, key), true
	case javascript, "typescript":
		return func(v string) string { return fmt.Sprintf("void (process.env[%s] = %s);", key, literal(v)) }, fmt.Sprintf("void (delete process.env[%s]);", key), true
	case "bash":
		quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		return func(v string) string { return "export " + quoted(name+"="+v) }, "unset " + quoted(name), true
	}
	return nil, "", false
}

// literal returns a text as JSON, which is a literal of Python and JavaScript as well.
func literal(s string) string {
	raw, err := json.Marshal(s)
	if err != nil { // every text has a form in JSON
		panic(err)
	}
	return string(raw)
}
