package build

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// run is a build in progress.
type run struct {
	builder *Builder
	caller  sandbox.Caller
	req     *Request
	plan    *plan
	context *rootfs.Files
	report  func(Event)

	resources   sandbox.Resources // of each RUN
	steps, step int
	reported    int             // bytes of output reported so far
	ends        []*state        // of finished stages
	used        map[string]bool // arguments that an ARG named
	releases    []func()        // release the images that stages use
	source      *state          // a finished stage with open files; nil for none
}

// state is the result of the instructions of a stage so far.
type state struct {
	digest string // of the root filesystem; "" for an empty filesystem
	config v1.Config
	author string
	vars   *variables
	files  *rootfs.Files // of digest; nil until needed
}

// close closes files and releases images.
func (r *run) close() {
	for _, st := range r.ends {
		if st != nil {
			st.closeFiles()
		}
	}
	for _, release := range r.releases {
		release()
	}
}

// become sets the root filesystem of a state and protects it from removal until the build ends:
// other stages may take longer than unused images stay.
func (r *run) become(ctx context.Context, st *state, digest string) error {
	if digest == st.digest {
		return nil
	}
	release, err := r.builder.images.Hold(ctx, digest)
	if err != nil {
		return err
	}
	r.releases = append(r.releases, release)
	st.closeFiles()
	st.digest = digest
	return nil
}

func (st *state) closeFiles() {
	if st.files != nil {
		st.files.Close()
		st.files = nil
	}
}

// all executes the stages and names the image.
func (r *run) all(ctx context.Context) (spec.Image, error) {
	for i := range r.plan.stages {
		if !r.plan.needed[i] {
			continue
		}
		if err := r.stage(ctx, i); err != nil {
			return spec.Image{}, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.req.Args)) {
		if !r.used[name] && !slices.Contains(freeArgs, name) {
			r.report(Event{Kind: KindWarning, Warning: "the Dockerfile has no ARG " + name})
		}
	}
	return r.finish(ctx, r.ends[r.plan.target])
}

// finish makes the image of a state.
func (r *run) finish(ctx context.Context, st *state) (spec.Image, error) {
	if st.digest == "" {
		return spec.Image{}, sandbox.InvalidField("dockerfile", "the image has no files")
	}
	if err := r.builder.host.CheckDisk(ctx, r.caller); err != nil {
		return spec.Image{}, err
	}
	req := image.FinishRequest{Base: st.digest, Config: st.config, Author: st.author, Owner: r.caller.Workspace}
	if r.req.Tag != "" {
		var err error
		if req.Name, req.Tag, err = reference.BuiltName(r.req.Tag); err != nil {
			return spec.Image{}, err
		}
	}
	r.report(Event{Kind: KindProgress, Progress: phase.Event{Phase: "writing", Message: "the image"}})
	staged, err := r.builder.images.StageBuilt(ctx, req)
	if err != nil {
		return spec.Image{}, err
	}
	defer staged.Discard()
	done, err := staged.Publish(ctx, func(ctx context.Context, add int64) error { return r.checkQuota(ctx, add, staged) })
	img := done.Image
	if err != nil || !r.req.Push {
		return img, err
	}
	return r.builder.Push(ctx, r.caller, img.Ref(), "", func(e phase.Event) { r.report(Event{Kind: KindProgress, Progress: e}) })
}

// checkQuota returns an error if the workspace may not have add bytes more for an image. Images that concurrent builds
// of the workspace have published count.
func (r *run) checkQuota(ctx context.Context, add int64, staged *image.Staged) error {
	if r.req.Tag == "" {
		return r.checkCacheQuota(ctx, add)
	}
	with, err := staged.Images()
	if err != nil {
		return err
	}
	if err := r.builder.checkImageQuota(ctx, r.caller.Workspace, r.req.Tag, with); err != nil {
		return err
	}
	return r.builder.host.CheckDiskFor(ctx, r.caller, r.resources, add)
}

// stage executes a stage.
func (r *run) stage(ctx context.Context, i int) error {
	s := &r.plan.stages[i]
	r.begin(s.label(i), s.Location, s.SourceCode, false)
	st, err := r.from(ctx, s)
	if err != nil {
		return at(s.Location, shown(s.SourceCode), err)
	}
	r.ends[i] = st
	for n, cmd := range s.Commands {
		if err := r.command(ctx, i, n, st, cmd); err != nil {
			return at(cmd.Location(), shown(codeOf(cmd)), err)
		}
	}
	st.closeFiles()
	return nil
}

// done returns a finished stage to copy from. At most a single finished stage has open files,
// because the names of all files of an image take memory.
func (r *run) done(stage int) *state {
	st := r.ends[stage]
	if r.source != nil && r.source != st {
		r.source.closeFiles()
	}
	r.source = st
	return st
}

func codeOf(cmd instructions.Command) string {
	if s, ok := cmd.(interface{ String() string }); ok {
		return s.String()
	}
	return strings.ToUpper(cmd.Name())
}

// begin reports that the next instruction begins or, cached, is done.
func (r *run) begin(stage string, location []parser.Range, code string, cached bool) {
	if !cached {
		r.step++
	}
	line := 0
	if len(location) > 0 {
		line = location[0].Start.Line
	}
	r.report(Event{Kind: KindStep, Step: r.step, Steps: r.steps, Line: line, Stage: stage, Instruction: shown(code), Cached: cached})
}

// from returns the initial state of a stage.
func (r *run) from(ctx context.Context, s *stage) (*state, error) {
	st := &state{vars: &variables{lex: shell.NewLex(r.plan.escape), env: map[string]string{}, args: map[string]string{}, budget: r.plan.vars.budget}}
	for _, name := range freeArgs {
		if value, ok := r.req.Args[name]; ok {
			st.vars.args[name] = value
		}
	}
	switch {
	case s.under >= 0:
		under := r.ends[s.under]
		st.digest, st.author, st.config = under.digest, under.author, clone(under.config)
	case s.base == "scratch":
	default:
		img, config, err := r.image(ctx, s.base)
		if err != nil {
			return nil, err
		}
		if len(config.Config.OnBuild) > 0 {
			return nil, sandbox.Errorf(sandbox.Invalid, "the image %.100s has ONBUILD instructions, which are not supported", s.base)
		}
		st.author, st.config = config.Author, config.Config
		if err := r.become(ctx, st, img.Digest); err != nil {
			return nil, err
		}
	}
	if len(st.config.Env) > variablesMax {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image %.100s has more than %d variables", s.base, variablesMax)
	}
	for _, e := range st.config.Env {
		name, value, _ := strings.Cut(e, "=")
		st.vars.env[name] = value
	}
	return st, nil
}

// clone returns a deep copy of a configuration.
func clone(c v1.Config) v1.Config { return (&v1.ConfigFile{Config: c}).DeepCopy().Config }

// image returns the image that a FROM or COPY --from names, and its configuration.
func (r *run) image(ctx context.Context, ref string) (spec.Image, *v1.ConfigFile, error) {
	latest := make(chan phase.Event, 1)
	ended := make(chan struct{})
	var img spec.Image
	var err error
	go func() {
		defer close(ended)
		img, err = r.builder.host.Base(ctx, r.caller, ref, func(e phase.Event) {
			select { // only the latest event counts, and a slow client delays nothing
			case <-latest:
			default:
			}
			latest <- e
		})
	}()
	for {
		select {
		case e := <-latest:
			r.report(Event{Kind: KindProgress, Progress: e})
		case <-ended:
			if err != nil {
				return img, nil, err
			}
			config, err := r.builder.images.OCIConfig(img)
			return img, config, err
		}
	}
}

// filesOf returns the files of a state, which stay open until its digest changes.
func (r *run) filesOf(ctx context.Context, st *state) (*rootfs.Files, error) {
	if st.files == nil {
		var err error
		if st.files, err = r.builder.images.OpenFiles(ctx, r.caller.Workspace, st.digest); err != nil {
			return nil, err
		}
	}
	return st.files, nil
}

// checkLayerQuota returns an error unless the quota has space for another layer.
func (r *run) checkLayerQuota(ctx context.Context) error {
	cached, err := r.builder.images.Removal().TrimBuildCache(ctx, r.caller.Workspace, cacheBytesMax)
	if err != nil {
		return err
	}
	if cached > cacheBytesMax {
		return cacheFull(cached)
	}
	return r.builder.host.CheckDisk(ctx, r.caller)
}

// layer adds the layer that make writes to a state, or the cached layer with the same key.
func (r *run) layer(ctx context.Context, st *state, by string, parts []any, cached func(), write func(ctx context.Context, w io.Writer) error) error {
	data, err := json.Marshal([]any{"layer 2", r.caller.Workspace, st.digest, parts})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	key := hex.EncodeToString(sum[:])
	images := r.builder.images
	if !r.req.NoCache {
		img, _, err := images.Cached(ctx, key, 0)
		if err == nil {
			err = r.become(ctx, st, img.Digest)
		}
		if err == nil {
			cached()
			return nil
		}
		if sandbox.CodeOf(err) != sandbox.NotFound { // otherwise it is not cached, or was evicted just now
			return err
		}
	}
	if err := r.checkLayerQuota(ctx); err != nil {
		return err // the disk has become full since the build began
	}
	pr, pw := io.Pipe()
	wrote := make(chan error, 1)
	writing, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		metered := meteredWriter{w: pw, check: func() error { return r.builder.host.CheckDisk(writing, r.caller) }}
		err := write(writing, &metered)
		wrote <- err // before the commit can fail because of it
		if err != nil {
			err = errUnwritten // no regular end of the layer, whatever the error is
		}
		_ = pw.CloseWithError(err) // does not fail
	}()
	// A command may run for an hour and fail: the commit begins after its end.
	content := bufio.NewReader(pr)
	if _, err := content.Peek(1); errors.Is(err, errUnwritten) {
		return <-wrote
	}
	done, err := r.commit(ctx, image.CommitRequest{
		Base: st.digest, Layer: content, MaxBytes: layerMax, MaxEntries: layerFilesMax, MaxFiles: filesMax, Without: unkept(),
		Owner: r.caller.Workspace, CacheKey: key, CreatedBy: by, Volatile: true, Alone: true,
	})
	if err != nil {
		select {
		case werr := <-wrote:
			if werr != nil {
				return werr // the commit failed only because there was no layer
			}
			return err
		default:
		}
		_ = pr.CloseWithError(err) // does not fail
		cancel()
		<-wrote // it failed only because its pipe was closed
		return err
	}
	return r.become(ctx, st, done.Digest)
}

// commit stages a layer and publishes it if the workspace may have it.
func (r *run) commit(ctx context.Context, req image.CommitRequest) (image.Committed, error) {
	staged, err := r.builder.images.Stage(ctx, req)
	if err != nil {
		return image.Committed{}, err
	}
	defer staged.Discard()
	return staged.Publish(ctx, r.checkCacheQuota)
}

// errUnwritten ends the pipe of an incomplete layer.
var errUnwritten = errors.New("the layer was not written to its end")

// checkStep is the number of bytes between checks of the disk.
const checkStep = 64 << 20

// meteredWriter checks now and then whether the disk has space for the bytes written.
type meteredWriter struct {
	w     io.Writer
	n     int64
	check func() error
}

func (m *meteredWriter) Write(p []byte) (int, error) {
	if m.n += int64(len(p)); m.n >= checkStep {
		m.n = 0
		if err := m.check(); err != nil {
			return 0, err
		}
	}
	return m.w.Write(p)
}
