package ssh

import (
	"os/exec"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/modbox/modbox/internal/cli/base"
)

// NewSSHCommand returns the command "modbox ssh".
func NewSSHCommand(env *base.Env) *cobra.Command {
	var identity string
	var options, forwards []string
	var tty, none bool
	cmd := &cobra.Command{
		Use:   "ssh SANDBOX [COMMAND [ARG...]]",
		Short: "Connect to a sandbox with OpenSSH's client",
		Long: `Connect to a sandbox with OpenSSH's client, "ssh", which must be installed. A paused
sandbox is resumed. The command knows the server's address and host key from the API, and
logs in with a key of its own, which it makes and adds to your keys when it has none
("modbox ssh-key ls"); it works for 90 days and is then added again. --identity names
another key. The exit code is ssh's.`,
		Example: "  modbox ssh my-agent\n  modbox ssh my-agent ls -l /workspace\n  modbox ssh -N -L 3000:localhost:3000 my-agent",
		Args:    cobra.MinimumNArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := exec.LookPath("ssh")
			if err != nil {
				return &base.ExitError{Code: base.ExitFailure, Err: base.UsageError("there is no program ssh: install OpenSSH's client, or use \"modbox shell\"")}
			}
			a, err := open(cmd.Context(), env, identity)
			if err != nil {
				return err
			}
			sb, err := a.client.Sandboxes.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			argv := []string{"ssh"}
			for _, o := range options { // the first of an option counts
				argv = append(argv, "-o", o)
			}
			for _, o := range a.options(*sb) {
				argv = append(argv, "-o", o[0]+"="+o[1])
			}
			for _, f := range forwards {
				argv = append(argv, "-L", f)
			}
			if tty {
				argv = append(argv, "-t")
			}
			if none {
				argv = append(argv, "-N")
			}
			return unix.Exec(program, append(append(argv, "--", a.host), args[1:]...), env.Environ)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVarP(&identity, "identity", "i", "", "file of the private key to log in with (default: the key of this machine)")
	cmd.Flags().StringArrayVarP(&options, "option", "o", nil, "option for ssh, as in its configuration file (repeatable)")
	cmd.Flags().StringArrayVarP(&forwards, "local-forward", "L", nil, "forward a port of this machine, [ADDRESS:]PORT:localhost:PORT (repeatable)")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	cmd.Flags().BoolVarP(&none, "no-command", "N", false, "run no command, for forwarding only")
	return cmd
}
