package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/image"
)

func (a *app) imagesExportCommand() *cobra.Command {
	var local localFlags
	cmd := &cobra.Command{
		Use:   "export IMAGE FILE",
		Short: "Write an image of this machine to a file",
		Long: `Write an image as a tar of an OCI image layout, for "modbox images import" on
another machine and for other tools. FILE may be - for standard output.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, st, err := local.images(a)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error { return st.Export(cmd.Context(), args[0], w) }
			if args[1] == "-" {
				return write(a.stdout)
			}
			return writeWhole(args[1], write)
		},
	}
	local.add(cmd)
	return cmd
}

// writeWhole writes a file that is there complete or not at all.
func writeWhole(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".modbox-export-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails when it was renamed, which is fine
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func (a *app) imagesImportCommand() *cobra.Command {
	var local localFlags
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make the images in a file images of this machine",
		Long: `Make images of the server on this machine, which may be running, from what other
tools write: an OCI image layout, as a directory or a tar, or what "docker save"
writes. Nothing is asked of a registry.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, st, err := local.images(a)
			if err != nil {
				return err
			}
			show := newProgress(a, args[0])
			images, err := st.Import(cmd.Context(), args[0], image.ImportOptions{Name: name, Progress: show.event})
			show.end()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(images)
			}
			for _, img := range images {
				fmt.Fprintf(a.stdout, "%s: %s\n", img.Ref(), size(img.SizeBytes))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the image is called, as NAME:TAG, instead of as the file says")
	local.add(cmd)
	return cmd
}
