package account

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
)

// NewProfileCommand returns the command "modbox profile".
func NewProfileCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "profile", Short: "Keep several servers under names, and choose between them",
		Long: `Keep several servers under names, and choose between them. A profile is the URL of a
server, optionally with a workspace and an API token; without a token commands use the
last login to the server. Commands use the profile of --profile or MODBOX_PROFILE, or else
the one chosen with "modbox profile use". With --profile or MODBOX_PROFILE, MODBOX_API_TOKEN
and MODBOX_WORKSPACE do not count: they may be for another server.

The profiles are in credentials.json in your configuration directory, which only you can
read.`,
	}
	cmd.AddCommand(newProfileAddCommand(env), newProfileUseCommand(env), newProfileListCommand(env), newProfileRemoveCommand(env))
	return cmd
}

func newProfileAddCommand(env *base.Env) *cobra.Command {
	var tokenStdin, replace, use bool
	cmd := &cobra.Command{
		Use:     "add NAME URL",
		Short:   "Add a profile",
		Long:    "Add a profile. --workspace is the workspace to act in. --token-stdin reads an API token from\nstandard input; without it, sign in with \"modbox login --profile NAME\".",
		Example: "  modbox profile add prod https://sandbox.example.com --use\n  modbox profile add ci https://ci.example.com --token-stdin < token",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			server := strings.TrimRight(args[1], "/")
			u, err := url.Parse(server)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
				return base.UsageError("%q is not the URL of a server, such as https://sandbox.example.com", args[1])
			}
			p := base.Profile{URL: server, Workspace: env.Workspace}
			if tokenStdin {
				line, err := bufio.NewReader(io.LimitReader(env.Stdin, 4096)).ReadString('\n')
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				if p.Token = strings.TrimSpace(line); p.Token == "" {
					return base.UsageError("--token-stdin: standard input has no token")
				}
			}
			return env.AddProfile(cmd.Context(), args[0], p, replace, use)
		},
	}
	cmd.Flags().BoolVar(&tokenStdin, "token-stdin", false, "read an API token from standard input")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace a profile of that name")
	cmd.Flags().BoolVar(&use, "use", false, "make it the profile of later commands")
	return cmd
}

func newProfileUseCommand(env *base.Env) *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "use NAME", Short: "Choose the profile of later commands", Args: cobra.MaximumNArgs(1), ValidArgsFunction: completeProfiles(env, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if none != (len(args) == 0) {
				return base.UsageError("give either NAME or --none")
			}
			return env.UseProfile(cmd.Context(), strings.Join(args, ""))
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "choose no profile: commands go to the server of the last login")
	return cmd
}

// shownProfile is a profile as JSON, without its token.
type shownProfile struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	Workspace string `json:"workspace,omitempty"`
	Login     string `json:"login"`
	Current   bool   `json:"current"`
}

func newProfileListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List profiles; the chosen one has a star", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			list := []shownProfile{}
			kept := env.StoredCredentials()
			for _, name := range slices.Sorted(maps.Keys(kept.Profiles)) {
				p := kept.Profiles[name]
				login := "none"
				switch {
				case p.Token != "":
					login = "token"
				case kept.Servers[p.URL] != (base.Login{}):
					login = "session"
				}
				list = append(list, shownProfile{Name: name, URL: p.URL, Workspace: p.Workspace, Login: login, Current: name == env.CurrentProfile()})
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			var rows [][]string
			for _, p := range list {
				star := ""
				if p.Current {
					star = "*"
				}
				rows = append(rows, []string{star, p.Name, p.URL, p.Workspace, p.Login})
			}
			return env.PrintTable([]string{"", "NAME", "URL", "WORKSPACE", "LOGIN"}, rows)
		},
	}
}

func newProfileRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME...", Short: "Remove profiles; logins stay", Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeProfiles(env, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := env.RemoveProfiles(cmd.Context(), args); err != nil {
				return fmt.Errorf("nothing removed: %w", err)
			}
			return nil
		},
	}
}

// completeProfiles completes names of profiles, for the first n arguments, or for all when n is 0.
func completeProfiles(env *base.Env, n int) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var list []cobra.Completion
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for name, p := range env.StoredCredentials().Profiles {
			if !slices.Contains(args, name) {
				list = append(list, cobra.CompletionWithDesc(name, p.URL))
			}
		}
		slices.Sort(list)
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteProfileFlag completes the flag --profile.
func CompleteProfileFlag(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeProfiles(env, 0)(cmd, nil, word)
	}
}
