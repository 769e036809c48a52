package build

import (
	"bytes"
	"context"
	"io"
	"path"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/modbox/modbox/internal/sandbox"
)

// scriptDir is the directory of a RUN script that begins with #!. It is in memory and not part of
// the image.
const scriptDir = "/dev/shm"

// run executes RUN.
func (r *run) run(ctx context.Context, st *state, c *instructions.RunCommand, cached func()) error {
	if st.digest == "" {
		return sandbox.Errorf(sandbox.Invalid, "there is nothing to run in an image without files")
	}
	cmd := Command{
		Env: st.vars.all(), Cwd: path.Join("/", st.config.WorkingDir), User: st.config.User,
		Network: r.req.Network && instructions.GetNetwork(c) != instructions.NetworkNone, Resources: r.resources,
	}
	if err := st.argv(&cmd, c); err != nil {
		return err
	}
	// The directory of an image's configuration need not exist.
	if err := r.makeDir(ctx, st, cmd.Cwd, codeOf(c), func() {}); err != nil {
		return err
	}
	cmd.Base = st.digest
	var failed error
	key := []any{"run", cmd.Argv, cmd.Env, cmd.Cwd, cmd.User, cmd.Script, cmd.Network}
	err := r.layer(ctx, st, codeOf(c), key, cached, func(ctx context.Context, w io.Writer) error {
		exit, err := r.builder.host.Run(ctx, cmd, r.output, w)
		switch {
		case err != nil:
			return err
		case exit.Code != 0:
			failed = &Failure{ExitCode: exit.Code}
			return sandbox.Errorf(sandbox.Invalid, "the command ended with exit code %d", exit.Code)
		}
		return nil
	})
	if f, ok := failed.(*Failure); ok && err != nil {
		f.Err = err
		return f
	}
	return err
}

// argv sets the command line, including here documents.
func (st *state) argv(cmd *Command, c *instructions.RunCommand) error {
	args := c.CmdLine
	if len(c.Files) > 0 {
		if len(args) != 1 || !c.PrependShell {
			return sandbox.Errorf(sandbox.Invalid, "a here document needs the shell form of RUN")
		}
		first := c.Files[0]
		if first.Chomp {
			first.Data = parser.ChompHeredocContent(first.Data)
		}
		switch {
		case parser.MustParseHeredoc(args[0]) == nil: // a here document among other words: the shell parses it
			full := args[0]
			for _, f := range c.Files {
				full += "\n" + f.Data + f.Name
			}
			args = []string{full}
		case strings.HasPrefix(first.Data, "#!"):
			cmd.Script, cmd.ScriptPath = first.Data, path.Join(scriptDir, "build-script")
			cmd.Argv = []string{cmd.ScriptPath}
			return nil
		default:
			args = []string{first.Data}
		}
	}
	cmd.Argv = args
	if c.PrependShell {
		cmd.Argv = append(shellOf(&st.config), strings.Join(args, " "))
	}
	return nil
}

// output reports the output of a command, up to the limit.
func (r *run) output(p []byte) {
	if r.reported > outputMax {
		return
	}
	if r.reported += len(p); r.reported > outputMax {
		r.report(Event{Kind: KindWarning, Warning: "the build writes too much: no more of its output is shown"})
		return
	}
	r.report(Event{Kind: KindOutput, Output: bytes.Clone(p)}) // the receiver reads it later
}
