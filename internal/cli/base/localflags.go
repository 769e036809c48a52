package base

import (
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/config"
)

// LocalFlags are the flags of commands that work on the directories of a server on this machine.
// Before Load, call Add or set File and Flags.
type LocalFlags struct {
	File  string        // YAML file with settings; "" means none
	Flags *config.Flags // flags of single settings
}

// Add adds --config, --state-dir and --run-dir to cmd.
func (l *LocalFlags) Add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.File, "config", "", "the server's YAML file with settings")
	l.Flags = config.AddFlags(cmd.Flags(), "state_dir", "run_dir")
}

// ChoiceFlags are the flags of commands that work over the API, or with --local on the directories of a server on this machine.
type ChoiceFlags struct {
	LocalFlags
	local bool
}

// Add adds --local, --config and the flags of settings to cmd.
func (c *ChoiceFlags) Add(cmd *cobra.Command, settings ...string) {
	cmd.Flags().BoolVar(&c.local, "local", false, "work on the state directory of this machine, whose server need not run")
	cmd.Flags().StringVar(&c.File, "config", "", "the server's YAML file with settings")
	c.Flags = config.AddFlags(cmd.Flags(), settings...)
}

// Here reports whether the command works on this machine's directories: --config or the flag of a setting implies it.
func (c *ChoiceFlags) Here() bool { return c.local || c.File != "" || c.Flags.Given() }

// Load returns the settings of the flags, the variables and the file. Errors are about usage.
func (l *LocalFlags) Load(env *Env) (config.Config, error) {
	cfg, err := config.Load(config.Source{File: l.File, Environ: env.Environ, Flags: l.Flags})
	if err != nil {
		return cfg, &ExitError{Code: ExitUsage, Err: err}
	}
	return cfg, nil
}
