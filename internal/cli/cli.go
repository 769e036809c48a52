package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/account"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/code"
	"github.com/modbox/modbox/internal/cli/desktop"
	"github.com/modbox/modbox/internal/cli/image"
	"github.com/modbox/modbox/internal/cli/mcp"
	"github.com/modbox/modbox/internal/cli/operator"
	"github.com/modbox/modbox/internal/cli/sandbox"
	"github.com/modbox/modbox/internal/cli/snapshot"
	"github.com/modbox/modbox/internal/cli/ssh"
	"github.com/modbox/modbox/internal/cli/webhook"
)

// Main runs the command line of this process, a program of the version, built from the commit,
// and returns its exit code. SIGINT and SIGTERM end the context of the command.
func Main(version, commit string) int {
	mustKeepDescriptors()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	env := base.NewEnv(version)
	env.Commit = commit
	return execute(ctx, env, os.Args[1:])
}

// Commands returns the tree of commands, for their manual pages. They are not to be run.
func Commands() *cobra.Command { return root(base.NewEnv("")) }

// execute runs the command line and returns its exit code.
func execute(ctx context.Context, env *base.Env, args []string) int {
	root := root(env)
	running := false // the arguments are valid and the command has begun
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// The library checks these flags only later.
		if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return err
		}
		running = true
		return nil
	}
	root.SetArgs(args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	cmd, err := unknownCommand(root, args)
	if err == nil {
		cmd, err = root.ExecuteContextC(ctx)
	}
	if err == nil {
		return 0
	}
	code := base.ExitFailure
	if !running {
		code = base.ExitUsage
	}
	var ec *base.ExitError
	if errors.As(err, &ec) {
		code = ec.Code
		if ec.Err == nil {
			return code
		}
	}
	printError(env, err)
	switch {
	case code == base.ExitUsage && cmd.HasParent():
		fmt.Fprintf(env.Stderr, "Usage: %s\nSee \"%s --help\".\n", cmd.UseLine(), cmd.CommandPath())
	case code == base.ExitUsage:
		fmt.Fprintln(env.Stderr, `See "modbox help" or "modbox COMMAND --help".`)
	}
	return code
}

// unknownCommand returns an error, and its command, for an unknown subcommand of a group. The
// library would print the group's help and exit with 0.
func unknownCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	group, rest, err := root.Find(args)
	if err != nil || group.Runnable() || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return nil, nil
	}
	err = base.UsageError("unknown command %q for %q", rest[0], group.CommandPath())
	if group.SuggestionsMinimumDistance <= 0 {
		group.SuggestionsMinimumDistance = 2 // the library's default, which it sets for the root only
	}
	if names := group.SuggestionsFor(rest[0]); len(names) > 0 {
		err = base.UsageError("%w\n\nDid you mean this?\n\t%s", err, strings.Join(names, "\n\t"))
	}
	return group, err
}

// printError prints an error, with its code if the server gave one.
func printError(env *base.Env, err error) {
	text := base.Clean(strings.ReplaceAll(strings.TrimRight(err.Error(), "\n"), "\t", "  "))
	var e *client.Error
	if errors.As(err, &e) {
		text = fmt.Sprintf("%s [%s]", text, e.Code)
		switch e.Code {
		case client.Unauthenticated:
			text += "\nSign in with \"modbox login\", or set MODBOX_API_TOKEN to a token of this server; its first one is in the file \"token\" of the server's state directory, and \"modbox token create --state-dir DIR --scope all\" makes another."
		case client.Internal:
			if e.RequestID != "" {
				text += "\nThe server's log has the details under request " + e.RequestID + "."
			}
		}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		text += fmt.Sprintf("\nNo server answers at %s. Start one with \"modbox server\", or set MODBOX_URL.", env.ServerURL())
	}
	fmt.Fprintln(env.Stderr, "Error: "+text)
}

// root returns the tree of commands.
func root(env *base.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "modbox",
		Short: "Isolated Linux sandboxes for AI agents",
		Long: `Modbox gives programs their own isolated Linux machines, called sandboxes.

"modbox server" runs the service on this machine; all other commands call a server.
MODBOX_URL is its address. Without MODBOX_URL they call the server of the chosen
"modbox profile", or else of the last "modbox login", or else the server that runs with your state directory, or else
` + base.DefaultURL + `. MODBOX_API_TOKEN is the token. Without MODBOX_API_TOKEN they use
the token of the last "modbox login" to the server, or else the token that a server on
this machine made for itself. The commands send a token only to a server that you
named, signed in to or run: with MODBOX_API_TOKEN set MODBOX_URL too.`,
		Version:       env.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&env.URL, "url", "", "address of the server (default $MODBOX_URL, else the server of the last login, else the server of your state directory, else "+base.DefaultURL+")")
	root.PersistentFlags().StringVar(&env.ProfileName, "profile", "", "name of the profile to use, see \"modbox profile\" (default $MODBOX_PROFILE or the chosen one)")
	_ = root.RegisterFlagCompletionFunc("profile", account.CompleteProfileFlag(env)) // fails only without that flag
	root.PersistentFlags().StringVar(&env.Token, "token", "", "API token (default $MODBOX_API_TOKEN)")
	root.PersistentFlags().StringVar(&env.Workspace, "workspace", "", "id or slug of the workspace to act in (default $MODBOX_WORKSPACE or the token's own)")
	root.PersistentFlags().BoolVar(&env.JSON, "json", false, "print JSON, for programs")
	root.AddGroup(
		&cobra.Group{ID: groupUse, Title: "Use sandboxes:"},
		&cobra.Group{ID: groupServe, Title: "Run a server:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupUse, sandbox.NewRunCommand(env), sandbox.NewCreateCommand(env), sandbox.NewListCommand(env), sandbox.NewGetCommand(env), sandbox.NewExecCommand(env), sandbox.NewShellCommand(env), sandbox.NewAttachCommand(env), code.NewCodeCommand(env), code.NewReplCommand(env), code.NewScanCommand(env), code.NewContextsCommand(env), mcp.NewMCPCommand(env), sandbox.NewJobsCommand(env), sandbox.NewLogsCommand(env), sandbox.NewCancelCommand(env), sandbox.NewEnvCommand(env), sandbox.NewCopyCommand(env), sandbox.NewFilesCommand(env), sandbox.NewDiffCommand(env), sandbox.NewWatchCommand(env),
		sandbox.NewRemoveCommand(env), sandbox.NewPauseCommand(env), sandbox.NewArchiveCommand(env), sandbox.NewResumeCommand(env), sandbox.NewCheckpointCommand(env), snapshot.NewSnapshotCommand(env), sandbox.NewForkCommand(env), sandbox.NewUpdateCommand(env), sandbox.NewWaitCommand(env), sandbox.NewEventsCommand(env), sandbox.NewStatsCommand(env), sandbox.NewTopCommand(env), sandbox.NewUsageCommand(env), sandbox.NewNetworkCommand(env), sandbox.NewPortCommand(env), sandbox.NewPortForwardCommand(env), sandbox.NewURLCommand(env), sandbox.NewOpenCommand(env), desktop.NewDesktopCommand(env), ssh.NewSSHCommand(env), ssh.NewConfigCommand(env), ssh.NewKeyCommand(env), image.NewBuildCommand(env), image.NewImagesCommand(env), image.NewRuntimesCommand(env), image.NewCatalogueCommand(env), image.NewRegistryCommand(env), webhook.NewCommand(env), account.NewTokenCommand(env), account.NewWorkspaceCommand(env), account.NewLoginCommand(env), account.NewProfileCommand(env), account.NewLogoutCommand(env), account.NewSessionCommand(env), account.NewWhoamiCommand(env))
	add(groupServe, operator.NewServerCommand(env), operator.NewWorkerCommand(env), operator.NewWorkersCommand(env), account.NewUserCommand(env), operator.NewAuditCommand(env), operator.NewBackupCommand(env), operator.NewRestoreCommand(env), operator.NewMigrateCommand(env), operator.NewQuarantineCommand(env), operator.NewSecretsCommand(env), operator.NewDoctorCommand(env), operator.NewBenchCommand(env), operator.NewHostCommand(env), newOpenapiCommand(env), newVersionCommand(env))
	return root
}

const (
	groupUse   = "use"
	groupServe = "serve"
)
