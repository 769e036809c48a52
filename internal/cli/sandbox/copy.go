package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/tree"
)

// NewCopyCommand returns the command "modbox cp".
func NewCopyCommand(env *base.Env) *cobra.Command {
	var quiet bool
	var metadata []string
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files and directories into and out of a sandbox",
		Long: `Copy a file or a directory with all that is in it. One side is SANDBOX:PATH, the
other a path of this machine, or "-" for standard input or output. A target that
is a directory receives the source under its own name. A directory is written to
standard output as a tar archive, and a target that is a directory reads such an
archive from standard input. A path in a sandbox that is not absolute begins at the
image's working directory. A path of this machine that holds a colon is written
with ./ in front. On a terminal a bar shows the progress.`,
		Example: `  modbox cp main.py my-agent:/workspace/
  modbox cp my-agent:/workspace/results ./results
  echo hello | modbox cp - my-agent:/tmp/greeting
  modbox cp my-agent:/workspace - | gzip > workspace.tar.gz`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeCopy(env),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			from, to := parsePlace(args[0]), parsePlace(args[1])
			cp := copier{env: env, c: c, progress: env.Stderr}
			if cp.metadata, err = base.Pairs(metadata, nil); err != nil {
				return err
			}
			if quiet || args[1] == "-" { // the terminal may show the file
				cp.progress = io.Discard
			}
			switch {
			case from.sandbox == "" && to.sandbox != "":
				cp.sandbox = to.sandbox
				return cp.into(cmd.Context(), from.path, to.path)
			case len(metadata) > 0:
				return base.UsageError("--metadata is for files that are copied into a sandbox")
			case from.sandbox != "" && to.sandbox == "":
				cp.sandbox = from.sandbox
				return cp.outOf(cmd.Context(), from.path, to.path)
			default:
				return base.UsageError("exactly one side must be SANDBOX:PATH")
			}
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	cmd.Flags().StringArrayVar(&metadata, "metadata", nil, "metadata KEY=VALUE of the file in the sandbox (repeatable)")
	return cmd
}

// place is an end of a copy; sandbox is "" for this machine.
type place struct{ sandbox, path string }

func parsePlace(s string) place {
	name, p, ok := strings.Cut(s, ":")
	if !ok || name == "" || strings.ContainsAny(name[:1], "./") {
		return place{path: s}
	}
	return place{name, p}
}

// copier copies between this machine and one sandbox.
type copier struct {
	env      *base.Env
	c        *client.Client
	sandbox  string
	progress io.Writer
	metadata map[string]string // of a file that is copied into the sandbox
}

var errDirMetadata = base.UsageError("--metadata is for a single file, not for a directory")

// shown returns a reader that shows its progress under a name, and the function that ends that. The total is -1
// if it is unknown.
func (cp *copier) shown(r io.Reader, name string, total int64) (io.Reader, func()) {
	t := base.NewTransfer(cp.progress, name, total)
	return t.Reader(r), t.End
}

// into copies local to remote.
func (cp *copier) into(ctx context.Context, local, remote string) error {
	if local == "-" {
		stdin, end := cp.shown(cp.env.Stdin, "-", -1)
		defer end()
		// The error of a path that does not exist is the write's to tell.
		if info, err := cp.c.Sandboxes.Files.Stat(ctx, cp.sandbox, remote); err == nil && info.Type == "directory" {
			if len(cp.metadata) > 0 {
				return errDirMetadata
			}
			return cp.c.Sandboxes.Files.UploadArchive(ctx, cp.sandbox, remote, stdin, client.UploadArchiveOptions{Format: client.Tar, KeepLinks: true})
		}
		_, err := cp.c.Sandboxes.Files.Write(ctx, cp.sandbox, remote, stdin, client.WriteOptions{Metadata: cp.metadata})
		return err
	}
	info, err := os.Stat(local)
	if err != nil {
		return err
	}
	remote, err = cp.remoteTarget(ctx, filepath.Base(filepath.Clean(local)), remote)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		f, err := os.Open(local)
		if err != nil {
			return err
		}
		defer f.Close()
		content, end := cp.shown(f, filepath.Base(local), info.Size())
		defer end()
		_, err = cp.c.Sandboxes.Files.Write(ctx, cp.sandbox, remote, content, client.WriteOptions{Mode: uint32(info.Mode().Perm()), Metadata: cp.metadata})
		return err
	}
	if len(cp.metadata) > 0 {
		return errDirMetadata
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(tree.Pack(w, local)) }()
	defer r.Close() // ends tree.Pack if the upload ended early
	content, end := cp.shown(r, filepath.Base(local), -1)
	defer end()
	return cp.c.Sandboxes.Files.UploadArchive(ctx, cp.sandbox, remote, content, client.UploadArchiveOptions{Format: client.Tar, KeepLinks: true})
}

// remoteTarget returns the destination of a source called base: below remote if that is a
// directory, else remote itself.
func (cp *copier) remoteTarget(ctx context.Context, base, remote string) (string, error) {
	if remote == "" {
		return base, nil
	}
	info, err := cp.c.Sandboxes.Files.Stat(ctx, cp.sandbox, remote)
	switch {
	case client.IsCode(err, client.FileNotFound) && !strings.HasSuffix(remote, "/"):
		return remote, nil
	case err != nil:
		return "", err
	case info.Type == "directory":
		return path.Join(remote, base), nil
	}
	return remote, nil
}

// outOf copies remote to local.
func (cp *copier) outOf(ctx context.Context, remote, local string) error {
	info, err := cp.c.Sandboxes.Files.Stat(ctx, cp.sandbox, remote)
	switch {
	case err != nil:
		return err
	case local == "-" && info.Type == "directory":
		return cp.archive(ctx, remote)
	case local == "-":
		return cp.download(ctx, remote, info.SizeBytes, func() (io.Writer, error) { return cp.env.Stdout, nil })
	}
	// The caller chooses the name, not the sandbox.
	if st, err := os.Stat(local); err == nil && st.IsDir() {
		name := path.Base(path.Clean("/" + remote))
		if name == "/" {
			return base.UsageError("the root of a sandbox has no name; name a target directory that does not exist")
		}
		local = filepath.Join(local, name)
	}
	if info.Type == "directory" {
		return cp.outOfTree(ctx, remote, local)
	}
	mode, err := strconv.ParseUint(info.Mode, 8, 32)
	if err != nil {
		mode = 0o644
	}
	var f *os.File
	err = cp.download(ctx, remote, info.SizeBytes, func() (io.Writer, error) {
		var err error
		f, err = os.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, os.FileMode(mode).Perm())
		return f, err
	})
	if f != nil {
		err = errors.Join(err, f.Close())
	}
	return err
}

// download copies a file of a size to the writer that open returns. It calls open when the file can be read, so
// that a target is not emptied for a file that cannot.
func (cp *copier) download(ctx context.Context, remote string, size int64, open func() (io.Writer, error)) error {
	r, err := cp.c.Sandboxes.Files.Read(ctx, cp.sandbox, remote)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := open()
	if err != nil {
		return err
	}
	content, end := cp.shown(r, path.Base(remote), size)
	defer end()
	_, err = io.Copy(w, content)
	return err
}

// archive writes the directory remote to standard output as a tar archive.
func (cp *copier) archive(ctx context.Context, remote string) error {
	r, err := cp.c.Sandboxes.Files.DownloadArchive(ctx, cp.sandbox, remote, client.Tar)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(cp.env.Stdout, r)
	return err
}

func (cp *copier) outOfTree(ctx context.Context, remote, local string) error {
	if err := os.MkdirAll(local, 0o755); err != nil {
		return err
	}
	r, err := cp.c.Sandboxes.Files.DownloadArchive(ctx, cp.sandbox, remote, client.Tar)
	if err != nil {
		return err
	}
	defer r.Close()
	content, end := cp.shown(r, path.Base(remote), -1)
	defer end()
	err = tree.Unpack(content, local, func(name string) {
		fmt.Fprintf(cp.env.Stderr, "left out: %s is a symlink that leads out of %s\n", base.Clean(name), base.Clean(remote))
	})
	if err == nil {
		_, err = io.Copy(io.Discard, content) // the end shows whether the archive is complete
	}
	return err
}

// completeCopy completes names of sandboxes with a colon, and files.
func completeCopy(env *base.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if strings.ContainsAny(word, "/.:") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		names, _ := env.CompleteSandboxes(0)(cmd, nil, word)
		for i, name := range names {
			bare, _, _ := strings.Cut(name, "\t")
			names[i] = bare + ":"
		}
		return names, cobra.ShellCompDirectiveNoSpace
	}
}
