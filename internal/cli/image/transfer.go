package image

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/image"
)

func newImagesExportCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use:   "export IMAGE FILE",
		Short: "Write an image of this machine to a file",
		Long: `Write an image as a tar of an OCI image layout, for "modbox images import" on
another machine and for other tools. FILE may be - for standard output.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, st, err := openLocal(env, &local)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error { return st.Export(cmd.Context(), args[0], w) }
			if args[1] == "-" {
				return write(env.Stdout)
			}
			return base.WriteWhole(args[1], write)
		},
	}
	local.Add(cmd)
	return cmd
}

func newImagesImportCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make the images in a file images of this machine",
		Long: `Make images of the server on this machine, which may be running, from what other
tools write: an OCI image layout, as a directory or a tar, or what "docker save"
writes. Nothing is asked of a registry.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, st, err := openLocal(env, &local)
			if err != nil {
				return err
			}
			show := base.NewProgress(env.Stderr, args[0])
			images, err := st.Import(cmd.Context(), args[0], image.ImportOptions{Name: name, Progress: show.Event})
			show.End()
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(images)
			}
			for _, img := range images {
				fmt.Fprintf(env.Stdout, "%s: %s\n", img.Ref(), base.Size(img.SizeBytes))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the image, as NAME:TAG, instead of the name in the file")
	local.Add(cmd)
	return cmd
}
