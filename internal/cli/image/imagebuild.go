package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/klauspost/compress/gzip"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/cli/tree"
	"github.com/modbox/modbox/internal/image/phase"
)

// imageBuild are the flags of a build from a Dockerfile.
type imageBuild struct {
	file     string
	args     []string
	quiet    bool
	options  client.ImageBuildOptions
	deadline time.Duration
}

// NewBuildCommand returns the command "modbox build".
func NewBuildCommand(env *base.Env) *cobra.Command {
	var f imageBuild
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build an image from a Dockerfile",
		Long: `Build an image from the Dockerfile in DIR, step by step in sandboxes, and print its
name. It belongs to the workspace; "modbox create NAME" makes sandboxes from it.
Files named in .dockerignore are not sent. docs/builds.md lists the supported instructions.`,
		Example: "  modbox build -t app:v1 .\n  modbox build -t registry.example.com/team/app:v1 --network --push .",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return buildImage(cmd.Context(), env, dir, &f)
		},
	}
	fs, o := cmd.Flags(), &f.options
	fs.StringVarP(&f.file, "file", "f", "", "the Dockerfile (default: DIR/Dockerfile)")
	fs.StringVarP(&o.Tag, "tag", "t", "", "the image's name, as in app, app:v1 or registry.example.com/team/app:v1")
	fs.StringArrayVar(&f.args, "build-arg", nil, "value of an ARG, NAME=VALUE; NAME alone takes yours (repeatable)")
	fs.StringVar(&o.Target, "target", "", "the stage to build (default: the last)")
	fs.BoolVar(&o.NoCache, "no-cache", false, "make every layer anew")
	fs.BoolVar(&o.Network, "network", false, "let RUN reach the network")
	fs.BoolVar(&o.Push, "push", false, "push the image to the registry that its name says")
	fs.StringVar(&o.Resources.Memory, "memory", "", "memory of each RUN, e.g. 4Gi (default: the server's for builds)")
	fs.StringVar(&o.Resources.CPU, "cpu", "", "processors of each RUN, e.g. 2")
	fs.StringVar(&o.Resources.Disk, "disk", "", "disk of each RUN, e.g. 16Gi")
	fs.DurationVar(&f.deadline, "timeout", 0, "how long the build may take (default: as long as the server lets it)")
	base.WaitForQuotaFlag(fs, &o.WaitForQuota)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "show only errors")
	return cmd
}

// buildImage uploads a directory and builds an image from it.
func buildImage(ctx context.Context, env *base.Env, dir string, f *imageBuild) error {
	var err error
	o := f.options
	o.Timeout = f.deadline
	if o.BuildArgs, err = base.Pairs(f.args, env.Getenv); err != nil {
		return base.UsageError("--build-arg: %w", err)
	}
	file := cmp.Or(f.file, filepath.Join(dir, "Dockerfile"))
	if o.Dockerfile, err = os.ReadFile(file); err != nil {
		return err
	}
	// So that the server finds the Dockerfile's own ignore file.
	if inside, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(inside) {
		o.Path = filepath.ToSlash(inside)
	}
	ignored, err := readIgnore(file+".dockerignore", filepath.Join(dir, ".dockerignore"))
	if err != nil {
		return err
	}
	c, err := env.Client()
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	defer pr.Close()
	packed := make(chan error, 1)
	go func() {
		err := packContext(pw, dir, ignored)
		packed <- err
		_ = pw.CloseWithError(err) // does not fail
	}()
	show := buildLog{env: env, quiet: f.quiet}
	img, err := c.Images.Build(ctx, o, pr, show.event)
	if err != nil {
		_ = pr.CloseWithError(err) // does not fail
		if perr := <-packed; perr != nil && !errors.Is(perr, err) && ctx.Err() == nil {
			return fmt.Errorf("pack %s: %w", dir, perr)
		}
		return err
	}
	if env.JSON {
		return env.PrintJSON(img)
	}
	_, err = fmt.Fprintln(env.Stdout, base.Clean(img.Ref))
	return err
}

// readIgnore returns the patterns of the first ignore file that exists.
func readIgnore(names ...string) (*patternmatcher.PatternMatcher, error) {
	var patterns []string
	for _, name := range names {
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			patterns, err = ignorefile.ReadAll(bytes.NewReader(data))
		}
		if err != nil {
			return nil, err
		}
		break
	}
	return patternmatcher.New(patterns)
}

// packContext writes a directory as a tar.gz, without ignored files. It always includes the ignore
// files, because the server reads them.
func packContext(w io.Writer, dir string, ignored *patternmatcher.PatternMatcher) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	zw := gzip.NewWriter(w)
	tw := tar.NewWriter(zw)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(name)
		if err != nil {
			return err
		}
		switch {
		case skip && strings.HasSuffix(name, ".dockerignore"):
		case skip && d.IsDir() && !ignored.Exclusions():
			return fs.SkipDir
		case skip && d.IsDir():
			return nil // it may contain files that are not ignored
		case skip:
			return nil
		}
		if err := tree.PackEntry(tw, root, name, d); err != nil {
			return fmt.Errorf("pack %s: %w", filepath.Join(dir, name), err)
		}
		return nil
	})
	return errors.Join(err, tw.Close(), zw.Close())
}

// buildLog shows the events of a build.
type buildLog struct {
	env   *base.Env
	quiet bool
	phase string
}

func (l *buildLog) event(e client.ImageBuildEvent) {
	if l.quiet && e.Type != "warning" {
		return
	}
	w := l.env.Stderr
	switch e.Type {
	case "step":
		l.phase = ""
		if e.Cached {
			fmt.Fprintln(w, "CACHED")
			return
		}
		fmt.Fprintf(w, "[%d/%d] %s\n", e.Step, e.Steps, base.Clean(e.Instruction))
	case "output":
		_, _ = w.Write(visible(e.Data)) // an error of the terminal does not fail the build
	case "warning":
		fmt.Fprintf(w, "warning: %s\n", base.Clean(e.Message))
	case "progress":
		if e.Phase != l.phase {
			fmt.Fprintf(w, "%s: %s\n", base.Clean(e.Phase), base.Clean(e.Message))
		}
		l.phase = e.Phase
	}
}

// visible removes the characters of a command's output that could change the terminal.
func visible(p []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return -1
		}
		return r
	}, p)
}

func newImagesPushCommand(env *base.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "push IMAGE [TO]",
		Short: "Push an image that the workspace has built to a registry",
		Long: `Have the server send an image that "modbox build" made to a registry: to TO, or to
what its own name says. It signs in with what "modbox registry add" was given.`,
		Example: "  modbox images push app:v1 registry.example.com/team/app:v1",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			to := ""
			if len(args) > 1 {
				to = args[1]
			}
			show := base.NewProgress(env.Stderr, base.Clean(args[0]))
			img, err := c.Images.Push(cmd.Context(), args[0], to, func(p client.ImageProgress) {
				show.Event(phase.Event{Phase: phase.Phase(base.Clean(p.Phase)), Done: p.Done, Total: p.Total, Message: p.Message})
			})
			show.End()
			if err != nil || !env.JSON {
				return err
			}
			return env.PrintJSON(img)
		},
	}
}
