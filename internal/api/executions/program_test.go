package executions

import (
	"errors"
	"strings"
	"testing"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestProgramsOfRequests(t *testing.T) {
	allowed := []string{"math"}
	for _, tc := range []struct {
		in   wire.Exec
		want string // the end of the command, or the field of the error
		ok   bool
	}{
		{wire.Exec{Program: &wire.Program{Path: "/a/main.py"}}, "/a/main.py null", true},
		{wire.Exec{Program: &wire.Program{Path: "/a/main.py", AllowedImports: &allowed}}, `/a/main.py ["math"]`, true},
		{wire.Exec{Program: &wire.Program{Path: "/a/main.js", Language: "javascript", AllowedImports: &[]string{}}}, "/a/main.js []", true},
		{wire.Exec{Program: &wire.Program{Path: "/a/main.sh", Language: "bash"}}, "bash /a/main.sh", true},
		{wire.Exec{Program: &wire.Program{Path: "/a/main.sh", Language: "bash", AllowedImports: &allowed}}, "program.allowed_imports", false},
		{wire.Exec{Program: &wire.Program{Path: "/a", AllowedImports: &[]string{""}}}, "program.allowed_imports", false},
		{wire.Exec{Program: &wire.Program{Path: "/a", Language: "cobol"}}, "program.language", false},
		{wire.Exec{Program: &wire.Program{Path: "main.py"}}, "program.path", false},
		{wire.Exec{Program: &wire.Program{Path: "/a/../b"}}, "program.path", false},
		{wire.Exec{Program: &wire.Program{Path: "/a\x00"}}, "program.path", false},
		{wire.Exec{Program: &wire.Program{Path: "/a", Code: strings.Repeat("x", codescan.CodeMax+1)}}, "program.code", false},
		{wire.Exec{Program: &wire.Program{Path: "/a"}, Shell: "true"}, "program", false},
		{wire.Exec{Program: &wire.Program{Path: "/a"}, Command: []string{"true"}}, "program", false},
	} {
		argv, err := programArgv(&tc.in)
		if !tc.ok {
			var refused *sandbox.Error
			if !errors.As(err, &refused) || refused.Code != sandbox.Invalid || refused.Field != tc.want {
				t.Errorf("%+v: %v, want an error that names %s", tc.in.Program, err, tc.want)
			}
			continue
		}
		if err != nil || !strings.HasSuffix(strings.Join(argv, " "), tc.want) {
			t.Errorf("%+v: %q, %v, want the end %q", tc.in.Program, argv, err, tc.want)
		}
	}
}
