package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// configFlags are the flags of "modbox ssh-config".
type configFlags struct {
	identity, prefix, file string
	show, remove           bool
}

// NewConfigCommand returns the command "modbox ssh-config".
func NewConfigCommand(env *base.Env) *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "ssh-config [SANDBOX...]",
		Short: "Write the sandboxes into ~/.ssh/config, for ssh, scp, rsync and editors",
		Long: `Write the sandboxes into the configuration of OpenSSH's client: all live sandboxes of
the workspace, or those named. Then "ssh modbox-NAME", "scp", "sftp", "rsync" and the
remote windows of editors work without flags. The entries are in a file of their own, which
a line at the top of ~/.ssh/config includes; the command replaces the file each time, and
changes nothing else. "modbox ssh --help" describes the login.`,
		Example:           "  modbox ssh-config\n  rsync -a src modbox-my-agent:/workspace/\n  modbox ssh-config --print my-agent",
		ValidArgsFunction: env.CompleteSandboxes(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.file == "" {
				home := env.Getenv("HOME")
				if home == "" {
					return base.UsageError("HOME is not set; name the file with --file")
				}
				f.file = filepath.Join(home, ".ssh", "config")
			}
			if f.remove {
				return removeConfig(env, f.file)
			}
			return writeConfig(cmd.Context(), env, f, args)
		},
	}
	cmd.Flags().StringVarP(&f.identity, "identity", "i", "", "file of the private key to log in with (default: the key of this machine)")
	cmd.Flags().StringVar(&f.prefix, "prefix", "modbox-", "begin the names of the hosts with this")
	cmd.Flags().StringVar(&f.file, "file", "", "configuration file to change (default: ~/.ssh/config)")
	cmd.Flags().BoolVar(&f.show, "print", false, "print the entries and write nothing but the key and the host keys")
	cmd.Flags().BoolVar(&f.remove, "remove", false, "remove the entries of all servers, and the line that includes them")
	cmd.MarkFlagsMutuallyExclusive("print", "remove")
	return cmd
}

var (
	// plain matches names that can name a host in the configuration.
	plain = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`) })
	// hostPrefix matches a prefix that such a name may have.
	hostPrefix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9._-]{0,50}$`) })
)

func writeConfig(ctx context.Context, env *base.Env, f configFlags, refs []string) error {
	if !hostPrefix().MatchString(f.prefix) {
		return base.UsageError("--prefix: must have letters, digits, dots, dashes and underscores only")
	}
	a, err := open(ctx, env, f.identity)
	if err != nil {
		return err
	}
	list, err := a.sandboxes(ctx, refs)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# Sandboxes of %s, written by \"modbox ssh-config\", which replaces this file.\n", base.Clean(env.ServerURL()))
	for _, sb := range list {
		fmt.Fprintf(&text, "\nHost %s\n", hostName(f.prefix, sb))
		for _, o := range a.options(sb) {
			fmt.Fprintf(&text, "    %s %s\n", o[0], o[1])
		}
	}
	if f.show {
		_, err := io.WriteString(env.Stdout, text.String())
		return err
	}
	file := filepath.Join(a.dir, "config-"+strings.TrimPrefix(filepath.Base(a.known), "known_hosts-"))
	if err := replace(file, text.String(), 0o600); err != nil {
		return err
	}
	if err := include(f.file, includeLine(a.dir)); err != nil {
		return err
	}
	for _, sb := range list {
		if _, err := fmt.Fprintln(env.Stdout, hostName(f.prefix, sb)); err != nil {
			return err
		}
	}
	return nil
}

// hostName returns the name of a sandbox in the configuration.
func hostName(prefix string, sb client.Sandbox) string {
	if plain().MatchString(sb.Name) {
		return prefix + sb.Name
	}
	return prefix + sb.ID
}

// sandboxes returns the sandboxes with names or ids, or all live sandboxes.
func (a *access) sandboxes(ctx context.Context, refs []string) ([]client.Sandbox, error) {
	if len(refs) == 0 {
		return a.client.Sandboxes.List(client.ListOptions{}).Collect(ctx)
	}
	var list []client.Sandbox
	for _, ref := range refs {
		sb, err := a.client.Sandboxes.Get(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		list = append(list, *sb)
	}
	return list, nil
}

// includeLine returns the line that includes the entries of all servers.
func includeLine(dir string) string { return `Include "` + filepath.Join(dir, "config-*") + `"` }

// include puts a line at the top of a configuration file, unless the file has it. A directive further down
// would belong to the host above it.
func include(file, line string) error {
	return changeConfig(file, func(text string) string {
		for l := range strings.Lines(text) {
			if strings.TrimSpace(l) == line {
				return text
			}
		}
		return line + "\n" + text
	})
}

// removeConfig removes the entries of all servers and the line that includes them.
func removeConfig(env *base.Env, file string) error {
	dir, err := env.ConfigDir()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "ssh")
	err = changeConfig(file, func(text string) string {
		var kept strings.Builder
		for l := range strings.Lines(text) {
			if strings.TrimSpace(l) != includeLine(dir) {
				kept.WriteString(l)
			}
		}
		return kept.String()
	})
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "config-*"))
	for _, name := range files {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// changeConfig changes a configuration file, which need not exist. A link stays a link, as in a directory of
// dotfiles.
func changeConfig(file string, change func(string) string) error {
	mode := os.FileMode(0o600)
	if target, err := filepath.EvalSymlinks(file); err == nil {
		file = target
	}
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		info, err := os.Stat(file)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	text := change(string(data))
	if text == string(data) {
		return nil
	}
	return replace(file, text, mode)
}
