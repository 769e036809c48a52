package sandbox

import (
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// bestShell is the command line that becomes a login shell: bash where it is installed.
const bestShell = `exec "$(command -v bash || command -v sh)" -l`

// NewShellCommand returns the command "modbox shell".
func NewShellCommand(env *base.Env) *cobra.Command {
	var cwd, user, program string
	cmd := &cobra.Command{
		Use:   "shell SANDBOX",
		Short: "Open a shell in a sandbox",
		Long: `Open a shell in a sandbox: bash if it is installed, or else sh. A paused sandbox is
resumed. The exit code is the shell's; 125 means that Modbox itself failed. The shell
goes on when the connection is lost: "modbox attach" connects to it again.`,
		Example: "  modbox shell my-agent\n  modbox shell --shell zsh --user root my-agent",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !env.Interactive() {
				return base.UsageError("standard input is no terminal: use \"modbox exec\"")
			}
			run := client.Command{Shell: bestShell, Cwd: cwd, User: user}
			if program != "" {
				run.Shell, run.Argv = "", []string{program}
			}
			if term := env.Getenv("TERM"); term != "" {
				run.Env = map[string]string{"TERM": term}
			}
			c, err := env.Client()
			if err != nil {
				return &base.ExitError{Code: base.ExitInternal, Err: err}
			}
			return startTerminal(cmd.Context(), env, c, args[0], run)
		},
	}
	cmd.Flags().StringVar(&program, "shell", "", "program to run instead")
	cmd.Flags().StringVarP(&cwd, "cwd", "w", "", "working directory (default: the image's)")
	cmd.Flags().StringVarP(&user, "user", "u", "", "user to run it as (default: the image's)")
	return cmd
}
