// Package ssh has the commands about SSH: the user's keys, and the start and the configuration of OpenSSH's
// client for sandboxes.
package ssh

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewKeyCommand returns the command "modbox ssh-key".
func NewKeyCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ssh-key", Short: "Add, list and remove your SSH keys",
		Long: `Add, list and remove your SSH keys. With a key that you have added,
"ssh SANDBOX@SERVER" logs in without a token.`,
	}
	cmd.AddCommand(newKeyAddCommand(env), newKeyListCommand(env), newKeyRemoveCommand(env))
	return cmd
}

// defaultKeys are the names of public keys in ~/.ssh, in the order of preference.
var defaultKeys = []string{"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"}

func newKeyAddCommand(env *base.Env) *cobra.Command {
	var o client.SSHKeyOptions
	cmd := &cobra.Command{
		Use:   "add [FILE]",
		Short: "Add a public key, and print its id",
		Long: `Add a public key, and print its id. FILE ends in .pub, or is "-" for standard input;
without it the command adds your key in ~/.ssh. Keys are ed25519, ecdsa, or rsa with at
least 2048 bits; "ssh-keygen -t ed25519" makes one. The private key stays where it is.`,
		Example: "  modbox ssh-key add\n  modbox ssh-key add --name laptop --expires-in 720h ~/.ssh/id_work.pub",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := publicKey(env, strings.Join(args, ""))
			if err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			key, err := c.SSHKeys.Add(cmd.Context(), text, o)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(key)
			}
			_, err = fmt.Fprintln(env.Stdout, key.ID)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "its name (default: the comment in the file)")
	cmd.Flags().DurationVar(&o.Lifetime, "expires-in", 0, "lifetime (default: no expiry)")
	cmd.Flags().BoolVar(&o.WorkspaceOnly, "workspace-only", false, "exclude your other workspaces")
	return cmd
}

// publicKey returns the text of a public key in a file, "-" for standard input, "" for the user's own. It
// never returns a private key.
func publicKey(env *base.Env, file string) (string, error) {
	var data []byte
	var err error
	switch file {
	case "-":
		data, err = io.ReadAll(io.LimitReader(env.Stdin, 1<<20))
	case "":
		data, err = ownPublicKey(env)
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return "", err
	}
	if strings.Contains(string(data), "PRIVATE KEY") {
		return "", base.UsageError("%s holds a private key; the public key is usually in the file of the same name with .pub", cmp.Or(file, "the file"))
	}
	return strings.TrimSpace(string(data)), nil
}

func ownPublicKey(env *base.Env) ([]byte, error) {
	dir := filepath.Join(env.Getenv("HOME"), ".ssh")
	for _, name := range defaultKeys {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return data, err
		}
	}
	return nil, base.UsageError("%s has no public key; \"ssh-keygen -t ed25519\" makes one, or name a FILE", dir)
}

func newKeyListCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List your SSH keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			keys, err := c.SSHKeys.List().Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(keys)
			}
			var rows [][]string
			for _, k := range keys {
				used := "never"
				if k.LastUsedAt != nil {
					used = base.Age(*k.LastUsedAt) + " ago"
				}
				rows = append(rows, []string{k.ID, k.Name, k.Type, k.Fingerprint, base.Age(k.CreatedAt), used, base.Until(k.ExpiresAt)})
			}
			return env.PrintTable([]string{"ID", "NAME", "TYPE", "FINGERPRINT", "AGE", "USED", "EXPIRES IN"}, rows)
		},
	}
}

func newKeyRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm KEY...", Short: "Remove SSH keys, by id or fingerprint; their connections end",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: completeKeys(env),
		RunE: func(cmd *cobra.Command, keys []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			for _, key := range keys {
				if err := c.SSHKeys.Delete(cmd.Context(), key); err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
			}
			return nil
		},
	}
}

// completeKeys completes ids of keys, with their names.
func completeKeys(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return env.Complete(cmd, func(c *client.Client) (list []cobra.Completion, err error) {
			keys, err := c.SSHKeys.List().Collect(cmd.Context())
			for _, k := range keys {
				list = append(list, cobra.CompletionWithDesc(k.ID, base.Clean(cmp.Or(k.Name, k.Fingerprint))))
			}
			return list, err
		})
	}
}
