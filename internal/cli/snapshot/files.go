package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

func newSnapshotFilesCommand(env *base.Env) *cobra.Command {
	f := client.SnapshotFileFilter{}
	cmd := &cobra.Command{
		Use: "files SNAPSHOT [PATH]", Short: "List files of a snapshot",
		Long:    "List a directory of a snapshot, its root directory without PATH. The list contains the files of its image.",
		Example: "  modbox snapshot files my-agent:v1 /workspace --recursive",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				f.Path = args[1]
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			files := c.Snapshots.Files(args[0], f)
			files.PageSize = 1000
			all, err := files.Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(all)
			}
			return printSnapshotFiles(env, all, f.SHA256)
		},
	}
	cmd.Flags().BoolVarP(&f.Recursive, "recursive", "r", false, "list all directories below")
	cmd.Flags().BoolVar(&f.SHA256, "sha256", false, "with the hashes of the files' contents")
	return cmd
}

func printSnapshotFiles(env *base.Env, list []client.SnapshotFile, hashes bool) error {
	columns := []string{"MODE", "OWNER", "SIZE", "MODIFIED", "PATH"}
	if hashes {
		columns = append(columns, "SHA256")
	}
	rows := make([][]string, len(list))
	for i, f := range list {
		name, bytes := fmt.Sprintf("%q", f.Path), "" // programs in the sandbox chose the names
		name = name[1 : len(name)-1]
		switch f.Type {
		case "file":
			bytes = base.Size(f.SizeBytes)
		case "directory":
			name += "/"
		case "symlink":
			name += fmt.Sprintf(" -> %q", f.Target)
		}
		rows[i] = []string{f.Mode, fmt.Sprintf("%d:%d", f.UID, f.GID), bytes, base.Age(f.ModTime), name}
		if hashes {
			rows[i] = append(rows[i], f.SHA256)
		}
	}
	return env.PrintTable(columns, rows)
}

func newSnapshotDownloadCommand(env *base.Env) *cobra.Command {
	var file string
	var share bool
	cmd := &cobra.Command{
		Use: "download SNAPSHOT [PATH]", Short: "Download files of a snapshot as a tar.gz",
		Long: `Download a directory or file of a snapshot, its root without PATH, as a tar.gz
whose names are relative to the directory. Look before you unpack what a sandbox
wrote: it has its symlinks, owners and modes.`,
		Example: "  modbox snapshot download my-agent:v1 /workspace -o workspace.tar.gz",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) == 2 {
				path = args[1]
			}
			if share == (file != "") {
				return base.UsageError("give either --output or --url")
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			if share {
				return shareSnapshot(env, cmd, c, args[0], path)
			}
			body, err := c.Snapshots.Download(cmd.Context(), args[0], path, client.TarGzip)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error { _, err := io.Copy(w, body); return err }
			if file == "-" {
				return errors.Join(write(env.Stdout), body.Close())
			}
			return errors.Join(base.WriteWhole(file, write), body.Close())
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; - is standard output")
	cmd.Flags().BoolVar(&share, "url", false, "print an address instead; anyone can use it for an hour")
	return cmd
}

func shareSnapshot(env *base.Env, cmd *cobra.Command, c *client.Client, ref, path string) error {
	d, err := c.Snapshots.Share(cmd.Context(), ref, path)
	if err != nil {
		return err
	}
	if env.JSON {
		return env.PrintJSON(d)
	}
	_, err = fmt.Fprintln(env.Stdout, d.URL)
	return err
}
