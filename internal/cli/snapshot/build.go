package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/image/phase"
)

func newSnapshotBuildCommand(env *base.Env) *cobra.Command {
	var f snapshotBuild
	cmd := &cobra.Command{
		Use: "build [DIR]", Short: "Build a snapshot from a modbox-snapshot.yaml",
		Long: `Build a snapshot from files and packages, as DIR/modbox-snapshot.yaml says, and
print its id. When there is a snapshot of exactly the same, nothing is done.
docs/snapshots.md describes the file.`,
		Example: "  modbox snapshot build . --tag v2 --env API_URL=https://example.com",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return buildSnapshot(cmd.Context(), env, dir, &f)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.file, "file", "", "the build file (default: modbox-snapshot.yaml or agentuity-snapshot.yaml in DIR)")
	fs.StringVar(&f.name, "name", "", "name (default: the file's)")
	fs.StringVar(&f.tag, "tag", "", "tag (default: latest)")
	fs.StringVar(&f.message, "message", "", "your own words about this version")
	fs.StringArrayVarP(&f.env, "env", "e", nil, "value of ${NAME} in env, NAME=VALUE; NAME alone takes your value (repeatable)")
	fs.StringArrayVar(&f.metadata, "metadata", nil, "value of ${NAME} in metadata, NAME=VALUE (repeatable)")
	fs.BoolVar(&f.force, "force", false, "build even if a snapshot of the same content exists")
	fs.BoolVar(&f.public, "public", false, "let every workspace use it")
	base.WaitForQuotaFlag(fs, &f.waitForQuota)
	return cmd
}

// snapshotBuild are the flags of a build.
type snapshotBuild struct {
	file, name, tag, message string
	env, metadata            []string
	force, public            bool
	waitForQuota             time.Duration
}

// buildSnapshot reads the build file and has the server build the snapshot.
func buildSnapshot(ctx context.Context, env *base.Env, dir string, f *snapshotBuild) error {
	variables, err := base.Pairs(f.env, env.Getenv)
	if err != nil {
		return base.UsageError("--env: %w", err)
	}
	metadata, err := base.Pairs(f.metadata, nil)
	if err != nil {
		return base.UsageError("--metadata: %w", err)
	}
	name := f.file
	if name == "" {
		if name, err = findBuildFile(dir); err != nil {
			return err
		}
	}
	b, err := readBuildFile(name)
	if err != nil {
		return err
	}
	if b.Env, err = expand("env", b.Env, variables); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if b.Metadata, err = expand("metadata", b.Metadata, metadata); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.Public = b.Public || f.public
	root, err := b.buildRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := b.collect(root)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o := client.SnapshotBuildOptions{
		SnapshotOptions: client.SnapshotOptions{
			Name: cmp.Or(f.name, b.Name), Tag: f.tag, Description: b.Description, Message: f.message, Metadata: b.Metadata, Public: b.Public,
		},
		Runtime: b.Runtime, ContentHash: b.contentHash(files), Force: f.force,
		AptPackages: b.AptPackages, NpmPackages: b.NpmPackages, PipPackages: b.PipPackages, Env: b.Env, WaitForQuota: f.waitForQuota,
	}
	if len(files) > 0 {
		o.Files = func() (io.ReadCloser, error) { return packed(root, files), nil }
	}
	c, err := env.Client()
	if err != nil {
		return err
	}
	show := base.NewProgress(env.Stderr, base.Clean(cmp.Or(o.Name, o.Runtime)))
	o.Progress = func(at client.SnapshotBuildProgress) {
		show.Event(phase.Event{Phase: phase.Phase(base.Clean(at.Phase)), Message: at.Detail, Done: at.Done, Total: at.Total})
	}
	sn, unchanged, err := c.Snapshots.Build(ctx, o)
	show.End()
	if err != nil {
		return err
	}
	if unchanged && !env.JSON {
		fmt.Fprintf(env.Stderr, "unchanged: %s has the same content\n", base.Clean(sn.FullName))
	}
	return printSnapshotID(env, sn)
}

// packed returns the files as a tar.gz that is packed while it is read.
func packed(root *os.Root, files []builtFile) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(packBuild(w, root, files)) }() // ends when r is closed
	return r
}

func newSnapshotLogCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use: "log BUILD", Short: "Show what happened in a build",
		Long: `Show what happened in a build, with the lines that its tools wrote, while it is
made and until an hour after it was begun. The error of a build that failed begins
with its id, as does what "modbox snapshot build" prints, which is the snapshot's.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			log, err := c.Snapshots.BuildLog(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(log)
			}
			for _, l := range log.Lines {
				if _, err := fmt.Fprintf(env.Stdout, "%s %-11s %s\n", l.Time.Local().Format(time.TimeOnly), l.Phase, l.Message); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
