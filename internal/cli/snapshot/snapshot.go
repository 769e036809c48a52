package snapshot

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// NewSnapshotCommand returns the command "modbox snapshot".
func NewSnapshotCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save files of sandboxes and make sandboxes from them",
		Long: `Save the files of sandboxes as snapshots, and make sandboxes from them with
"modbox create --snapshot". A snapshot is named by its id, by NAME, which is its
latest, by NAME:TAG, and a public one of another workspace by @WORKSPACE/NAME:TAG.`,
	}
	cmd.AddCommand(newSnapshotCreateCommand(env), newSnapshotBuildCommand(env), newSnapshotLogCommand(env), newSnapshotListCommand(env), newSnapshotGetCommand(env), newSnapshotTagCommand(env),
		newSnapshotLineageCommand(env), newSnapshotFilesCommand(env), newSnapshotDownloadCommand(env), newSnapshotRemoveCommand(env))
	return cmd
}

func newSnapshotCreateCommand(env *base.Env) *cobra.Command {
	var o client.SnapshotOptions
	var metadata []string
	cmd := &cobra.Command{
		Use: "create SANDBOX", Short: "Save the files of a sandbox as a snapshot",
		Long:    "Save the files of a running or paused sandbox, without memory and processes and without /tmp.",
		Example: "  modbox snapshot create my-agent --name my-agent --tag v1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Metadata, err = base.Pairs(metadata, nil); err != nil {
				return base.UsageError("--metadata: %w", err)
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			sn, err := c.Snapshots.Create(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			return printSnapshotID(env, sn)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Name, "name", "", "name, shared by the versions of something (default: made up)")
	fs.StringVar(&o.Tag, "tag", "", "tag; moves from the snapshot that has it (default: latest)")
	fs.StringVar(&o.Description, "description", "", "your own words about it")
	fs.StringVar(&o.Message, "message", "", "your own words about this version")
	fs.StringArrayVar(&metadata, "metadata", nil, "your own entry KEY=VALUE (repeatable)")
	fs.BoolVar(&o.Public, "public", false, "let every workspace use it")
	return cmd
}

func printSnapshotID(env *base.Env, sn *client.Snapshot) error {
	if env.JSON {
		return env.PrintJSON(sn)
	}
	_, err := fmt.Fprintln(env.Stdout, sn.ID)
	return err
}

func newSnapshotListCommand(env *base.Env) *cobra.Command {
	var f client.SnapshotFilter
	var limit int
	cmd := &cobra.Command{
		Use: "ls", Short: "List snapshots", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			if f.SandboxID != "" {
				sb, err := c.Sandboxes.Get(cmd.Context(), f.SandboxID)
				if err != nil {
					return err
				}
				f.SandboxID = sb.ID
			}
			list, _, err := base.First(cmd.Context(), c.Snapshots.List(f), limit)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			return printSnapshots(env, list)
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&f.Public, "public", false, "public snapshots of all workspaces")
	fs.StringVar(&f.SandboxID, "sandbox", "", "only snapshots of this sandbox")
	fs.StringVar(&f.Name, "name", "", "only snapshots of this name")
	fs.StringVar(&f.Sort, "sort", "", "created, name, size or files (default: created)")
	fs.BoolVar(&f.Ascending, "ascending", false, "the smallest, or oldest, first")
	fs.IntVar(&limit, "limit", 0, "so many at most (default: all)")
	return cmd
}

func printSnapshots(env *base.Env, list []client.Snapshot) error {
	rows := make([][]string, len(list))
	for i, sn := range list {
		state := base.Age(sn.CreatedAt)
		if sn.DeletedAt != nil {
			state += ", deleted"
		}
		rows[i] = []string{sn.Name, sn.Tag, sn.ID, base.Size(sn.SizeBytes), base.Size(sn.LayerBytes), state}
	}
	return env.PrintTable([]string{"NAME", "TAG", "ID", "SIZE", "ADDED", "AGE"}, rows)
}

func newSnapshotGetCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "get SNAPSHOT", Short: "Show a snapshot", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			sn, err := c.Snapshots.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(sn)
			}
			public := ""
			if sn.Public {
				public = sn.FullName
			}
			return env.PrintFields([][2]string{
				{"FIELD", "VALUE"}, {"id", sn.ID}, {"name", sn.Name}, {"tag", sn.Tag}, {"public", public}, {"description", sn.Description}, {"message", sn.Message},
				{"image", sn.Image}, {"sandbox", sn.SandboxID}, {"parent", sn.ParentID}, {"size", base.Size(sn.SizeBytes)}, {"added", base.Size(sn.LayerBytes)},
				{"files", strconv.FormatInt(sn.FileCount, 10)}, {"created", sn.CreatedAt.Format(time.RFC3339)},
			})
		},
	}
}

func newSnapshotTagCommand(env *base.Env) *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "tag SNAPSHOT [TAG]", Short: "Give a snapshot another tag, or take its tag away",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if none == (len(args) == 2) {
				return base.UsageError("give either TAG or --clear")
			}
			tag := ""
			if !none {
				tag = args[1]
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			sn, err := c.Snapshots.Tag(cmd.Context(), args[0], tag)
			if err != nil {
				return err
			}
			return printSnapshotID(env, sn)
		},
	}
	cmd.Flags().BoolVar(&none, "clear", false, "take its tag away")
	return cmd
}

func newSnapshotLineageCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "lineage SNAPSHOT", Short: "List a snapshot and those it came from", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := c.Snapshots.Lineage(args[0]).Collect(cmd.Context())
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			return printSnapshots(env, list)
		},
	}
}

func newSnapshotRemoveCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm SNAPSHOT...", Short: "Delete snapshots", Long: "Delete snapshots. Sandboxes made from them go on.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			var errs []error
			for _, ref := range args {
				if err := c.Snapshots.Delete(cmd.Context(), ref); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", ref, err))
				}
			}
			return errors.Join(errs...)
		},
	}
}
