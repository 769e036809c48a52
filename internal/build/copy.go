package build

import (
	"context"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// copy executes COPY, from the context, a stage or an image.
func (r *run) copy(ctx context.Context, st *state, from int, c *instructions.CopyCommand, cached func()) error {
	req := rootfs.CopyRequest{From: r.context, Owner: c.Chown}
	if c.From != "" {
		source := &state{}
		if from >= 0 {
			source = r.done(from)
		} else {
			img, _, err := r.image(ctx, c.From)
			if err != nil {
				return err
			}
			source.digest = img.Digest
			defer source.closeFiles()
		}
		var err error
		if req.From, err = r.filesOf(ctx, source); err != nil {
			return err
		}
		req.KeepOwners = true
	}
	if err := st.sources(&req, &c.SourcesAndDest, c.Chmod); err != nil {
		return err
	}
	return r.copyOver(ctx, st, req, codeOf(c), cached)
}

// add executes ADD of files, and unpacks archives.
func (r *run) add(ctx context.Context, st *state, c *instructions.AddCommand, cached func()) error {
	if slices.ContainsFunc(c.SourcePaths, isURL) { // after the replacement of variables
		return sandbox.Errorf(sandbox.Invalid, "ADD of a URL is not supported; fetch it in a RUN, or before the build")
	}
	req := rootfs.CopyRequest{From: r.context, Owner: c.Chown, Unpack: c.Unpack == nil || *c.Unpack}
	if err := st.sources(&req, &c.SourcesAndDest, c.Chmod); err != nil {
		return err
	}
	return r.copyOver(ctx, st, req, codeOf(c), cached)
}

// sources sets the fields that COPY and ADD have in common.
func (st *state) sources(req *rootfs.CopyRequest, sd *instructions.SourcesAndDest, chmod string) error {
	req.Sources = sd.SourcePaths
	for _, f := range sd.SourceContents {
		content := f.Data
		if f.Expand {
			st.vars.lex.SkipProcessQuotes = true
			expanded, err := st.vars.expand(content)
			st.vars.lex.SkipProcessQuotes = false
			if err != nil {
				return err
			}
			content = expanded
		}
		req.Inline = append(req.Inline, rootfs.InlineFile{Name: f.Path, Content: content})
	}
	req.To = sd.DestPath
	if !path.IsAbs(req.To) {
		req.To = path.Join("/", st.config.WorkingDir, sd.DestPath)
	}
	for _, end := range []string{"/", "/."} {
		if strings.HasSuffix(sd.DestPath, end) {
			req.To = strings.TrimRight(req.To, "/.") + "/"
		}
	}
	if sd.DestPath == "." || sd.DestPath == "" {
		req.To += "/"
	}
	if chmod != "" {
		mode, err := strconv.ParseUint(chmod, 8, 32)
		if err != nil || mode > 0o7777 {
			return sandbox.Errorf(sandbox.Invalid, "--chmod=%.50s is not permission bits in octal, as in 0755", chmod)
		}
		bits := uint32(mode)
		req.Mode = &bits
	}
	return nil
}

// copyOver lays copies of files on a state.
func (r *run) copyOver(ctx context.Context, st *state, req rootfs.CopyRequest, by string, cached func()) error {
	over, err := r.filesOf(ctx, st)
	if err != nil {
		return err
	}
	if req.From == nil {
		req.From = over // it has no sources
	}
	c, err := rootfs.NewCopy(ctx, req)
	if err != nil {
		return err
	}
	key, err := c.Key(ctx)
	if err != nil {
		return err
	}
	return r.layer(ctx, st, by, []any{"copy", key}, cached, func(ctx context.Context, w io.Writer) error {
		return c.WriteLayer(ctx, r.builder.images.Scratch(), over, w)
	})
}
