package executions

import (
	"cmp"
	"context"
	_ "embed" // for the runners
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/route"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/program"
	"github.com/modbox/modbox/internal/sandbox"
)

// importsMax bounds the length of the name of an import.
const importsMax = 256

//go:embed program.py
var pythonRunner string

//go:embed program.js
var nodeRunner string

// runners are the commands that run a program. Two arguments follow: the path of its file and, but for a shell, the
// JSON of its allowed imports.
var runners = map[string][]string{
	program.Python:     {"python3", "-c", pythonRunner},
	program.JavaScript: {"node", "-e", nodeRunner, "--"},
	program.Bash:       {"bash"},
}

// programArgv checks the program of a request, and returns the command that runs it.
func programArgv(e *wire.Exec) ([]string, error) {
	p := e.Program
	language := cmp.Or(p.Language, program.Python)
	runner, known := runners[language]
	switch {
	case len(e.Command) > 0 || e.Shell != "":
		return nil, sandbox.InvalidField("program", "give only one of command, shell and program")
	case !known:
		return nil, sandbox.InvalidField("program.language", "must be python, javascript or bash")
	case len(p.Code) > codescan.CodeMax:
		return nil, sandbox.InvalidField("program.code", "must have at most %d bytes", codescan.CodeMax)
	case !path.IsAbs(p.Path) || path.Clean(p.Path) != p.Path || strings.ContainsRune(p.Path, 0):
		return nil, sandbox.InvalidField("program.path", "must be an absolute path of a file, without .. and NUL characters")
	case p.AllowedImports != nil && language == program.Bash:
		return nil, sandbox.InvalidField("program.allowed_imports", "has no meaning for bash, which has no imports")
	}
	if p.AllowedImports != nil {
		if i := slices.IndexFunc(*p.AllowedImports, func(name string) bool { return name == "" || len(name) > importsMax }); i >= 0 {
			return nil, sandbox.InvalidField("program.allowed_imports", "item %d must have 1 to %d bytes", i, importsMax)
		}
	}
	allowed, err := json.Marshal(p.AllowedImports)
	if err != nil {
		return nil, err
	}
	argv := append(slices.Clone(runner), p.Path)
	if language != program.Bash {
		argv = append(argv, string(allowed))
	}
	return argv, sandbox.CheckArgv(argv)
}

// prepare scans the program of a request, if it has one, as the policy of the workspace demands, and writes it to its
// file. The context is for the command that runs the file: the command is the server's, and is not scanned.
func (h *Commands) prepare(ctx context.Context, ref string, e *wire.Exec, cmd agentapi.Command) (context.Context, error) {
	p := e.Program
	if p == nil {
		return ctx, nil
	}
	audit.FromContext(ctx).Code(p.Code)
	scanned := codescan.WithSource(ctx, cmp.Or(p.Language, program.Python), strings.NewReader(p.Code))
	if _, err := h.Guest.CheckCommand(scanned, route.Caller(ctx), ref, cmd); err != nil {
		return ctx, err
	}
	opts := agentapi.WriteOptions{Parents: true, User: e.User}
	if _, err := h.Guest.WriteFile(ctx, route.Caller(ctx), ref, p.Path, strings.NewReader(p.Code), opts); err != nil {
		return ctx, err
	}
	return codescan.Exempt(ctx), nil
}
