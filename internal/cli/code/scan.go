package code

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewScanCommand returns the command "modbox scan".
func NewScanCommand(env *base.Env) *cobra.Command {
	var text, language string
	var allowed []string
	cmd := &cobra.Command{
		Use: "scan SANDBOX [FILE | -c CODE]", Short: "Scan code without running it",
		Long: `Parse code by the interpreter in the sandbox, without running it, and print the
constructs that deserve a look: processes, network, deleted files, evaluated and
native code, environment variables, imports that are not allowed. The code is in
FILE, in -c, or is read from standard input. The exit code is 1 when there are
findings. A scan catches mistakes and is no boundary.`,
		Example: "  modbox scan my-agent program.py\n  modbox scan my-agent --language javascript --allow-import fs,path program.js",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := source(env, args[1:], text, cmd.Flags().Changed("code"))
			if err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("allow-import") {
				allowed = nil
			}
			scan, err := c.Sandboxes.ScanCode(cmd.Context(), args[0], source, language, allowed)
			if err != nil {
				return err
			}
			return printScan(env, scan)
		},
	}
	cmd.Flags().StringVarP(&text, "code", "c", "", "the code")
	cmd.Flags().StringVar(&language, "language", "", "python or javascript (default: python)")
	cmd.Flags().StringSliceVar(&allowed, "allow-import", nil, "package that the code may import (repeatable; default: all)")
	return cmd
}

// printScan prints the findings. Its error carries the exit code.
func printScan(env *base.Env, scan *client.CodeScan) error {
	if env.JSON {
		if err := env.PrintJSON(scan); err != nil {
			return err
		}
	} else {
		for _, f := range scan.Findings {
			if _, err := fmt.Fprintf(env.Stdout, "%d:%d: %s (%s): %s\n", f.Line, f.Column, f.Rule, f.Severity, base.Clean(f.Reason)); err != nil {
				return err
			}
		}
		if scan.Truncated {
			fmt.Fprintln(env.Stderr, "There are more findings.")
		}
	}
	if len(scan.Findings) > 0 {
		return &base.ExitError{Code: base.ExitFailure}
	}
	return nil
}
