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
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// run is one build under way.
type run struct {
	builder *Builder
	caller  sandbox.Caller
	req     *Request
	plan    *plan
	context *rootfs.Files
	tell    func(Event)

	resources   sandbox.Resources // of each RUN
	steps, step int
	told        int             // bytes of output that were told
	ends        []*state        // of stages that are done
	used        map[string]bool // arguments that an ARG named
	held        []func()        // releases of the images that stages are made of
	source      *state          // of a stage that is done, whose files are open; nil for none
}

// state is what the instructions of a stage so far have made.
type state struct {
	digest string // of the root filesystem; "" for nothing
	config v1.Config
	author string
	vars   *variables
	files  *rootfs.Files // of digest; nil until needed
}

// close forgets open files.
func (r *run) close() {
	for _, st := range r.ends {
		if st != nil {
			st.closeFiles()
		}
	}
	for _, release := range r.held {
		release()
	}
}

// become makes a root filesystem that of a state, and keeps it until the build ends:
// another stage may take longer than what nobody uses is kept.
func (r *run) become(ctx context.Context, st *state, digest string) error {
	if digest == st.digest {
		return nil
	}
	release, err := r.builder.images.Hold(ctx, digest)
	if err != nil {
		return err
	}
	r.held = append(r.held, release)
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

// all works off the stages and gives the image its name.
func (r *run) all(ctx context.Context) (sandbox.Image, error) {
	for i := range r.plan.stages {
		if !r.plan.needed[i] {
			continue
		}
		if err := r.stage(ctx, i); err != nil {
			return sandbox.Image{}, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.req.Args)) {
		if !r.used[name] && !slices.Contains(freeArgs, name) {
			r.tell(Event{Kind: KindWarning, Warning: "the Dockerfile has no ARG " + name})
		}
	}
	return r.finish(ctx, r.ends[r.plan.target])
}

// finish makes the image of a state.
func (r *run) finish(ctx context.Context, st *state) (sandbox.Image, error) {
	if st.digest == "" {
		return sandbox.Image{}, sandbox.InvalidField("dockerfile", "the image has no files")
	}
	if err := r.builder.host.CheckDisk(ctx, r.caller); err != nil {
		return sandbox.Image{}, err
	}
	req := image.FinishRequest{Base: st.digest, Config: st.config, Author: st.author, Owner: r.caller.Workspace}
	if r.req.Tag != "" {
		var err error
		if req.Name, req.Tag, err = reference.BuiltName(r.req.Tag); err != nil {
			return sandbox.Image{}, err
		}
	}
	r.tell(Event{Kind: KindProgress, Progress: sandbox.ImageEvent{Phase: "writing", Message: "the image"}})
	staged, err := r.builder.images.StageBuilt(ctx, req)
	if err != nil {
		return sandbox.Image{}, err
	}
	defer staged.Discard()
	done, err := staged.Publish(ctx, r.roomForImage)
	img := done.Image
	if err != nil || !r.req.Push {
		return img, err
	}
	return r.builder.Push(ctx, r.caller, img.Ref(), "", func(e sandbox.ImageEvent) { r.tell(Event{Kind: KindProgress, Progress: e}) })
}

// roomForImage returns an error if the workspace may not have add bytes more for the image. Images
// that others of the workspace have built meanwhile count.
func (r *run) roomForImage(ctx context.Context, add int64) error {
	if r.req.Tag == "" {
		return r.mayKeep(ctx, add)
	}
	if err := r.builder.mayHave(ctx, r.caller.Workspace, r.req.Tag, add); err != nil {
		return err
	}
	return r.builder.host.CheckDiskFor(ctx, r.caller, r.resources, add)
}

// stage works off one stage.
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

// done returns a stage that is done, to be copied from. Of all those only its files are
// open: of each image they are all its names in memory.
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

// begin tells that the next instruction is begun or, cached, done.
func (r *run) begin(stage string, location []parser.Range, code string, cached bool) {
	if !cached {
		r.step++
	}
	line := 0
	if len(location) > 0 {
		line = location[0].Start.Line
	}
	r.tell(Event{Kind: KindStep, Step: r.step, Steps: r.steps, Line: line, Stage: stage, Instruction: shown(code), Cached: cached})
}

// from returns what a stage begins with.
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

// clone returns a copy of a configuration that shares nothing with it.
func clone(c v1.Config) v1.Config { return (&v1.ConfigFile{Config: c}).DeepCopy().Config }

// image returns an image that FROM or COPY --from names, and what it says about itself.
func (r *run) image(ctx context.Context, ref string) (sandbox.Image, *v1.ConfigFile, error) {
	latest := make(chan sandbox.ImageEvent, 1)
	ended := make(chan struct{})
	var img sandbox.Image
	var err error
	go func() {
		defer close(ended)
		img, err = r.builder.host.Base(ctx, r.caller, ref, func(e sandbox.ImageEvent) {
			select { // only the latest counts, and nobody waits for a slow client
			case <-latest:
			default:
			}
			latest <- e
		})
	}()
	for {
		select {
		case e := <-latest:
			r.tell(Event{Kind: KindProgress, Progress: e})
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

// room fails when there is none for another layer, which is one more copy of the
// root filesystem.
func (r *run) room(ctx context.Context) error {
	left, err := r.builder.images.TrimLeft(ctx, r.caller.Workspace, leftBytesMax)
	if err != nil {
		return err
	}
	if left > leftBytesMax {
		return leftTooMuch(left)
	}
	return r.builder.host.CheckDisk(ctx, r.caller)
}

// layer lays on a state what make writes, unless that was made before with the same
// key and may be used again.
func (r *run) layer(ctx context.Context, st *state, by string, parts []any, cached func(), write func(ctx context.Context, w io.Writer) error) error {
	data, err := json.Marshal([]any{"layer 1", r.caller.Workspace, st.digest, parts})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	key := hex.EncodeToString(sum[:])
	images := r.builder.images
	if !r.req.NoCache {
		img, _, err := images.Cached(ctx, key, 0)
		if err == nil {
			cached()
			return r.become(ctx, st, img.Digest)
		}
		if sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
	}
	if err := r.room(ctx); err != nil {
		return err // the disk was used up since the build began
	}
	pr, pw := io.Pipe()
	wrote := make(chan error, 1)
	writing, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		room := meteredWriter{w: pw, look: func() error { return r.builder.host.CheckDisk(writing, r.caller) }}
		err := write(writing, &room)
		wrote <- err // before the commit can fail of it
		if err != nil {
			err = errUnwritten // and no end of the layer, whatever it is
		}
		_ = pw.CloseWithError(err) // does not fail
	}()
	// A command may run for an hour, and fail: nothing is begun before it has ended.
	content := bufio.NewReader(pr)
	if _, err := content.Peek(1); errors.Is(err, errUnwritten) {
		return <-wrote
	}
	done, err := r.commit(ctx, image.CommitRequest{
		Base: st.digest, Layer: content, MaxBytes: layerMax, MaxEntries: layerFilesMax, MaxFiles: filesMax, Without: unkept(),
		Owner: r.caller.Workspace, CacheKey: key, CreatedBy: by, Volatile: true,
	})
	if err != nil {
		select {
		case werr := <-wrote:
			if werr != nil {
				return werr // the commit's error is only that there was nothing to commit
			}
			return err
		default:
		}
		_ = pr.CloseWithError(err) // does not fail
		cancel()
		<-wrote // it was only told to end
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
	return staged.Publish(ctx, r.mayKeep)
}

// errUnwritten ends a layer that was not written to its end.
var errUnwritten = errors.New("the layer was not written to its end")

// lookStep is after how many bytes it is looked whether the disk has room for more.
const lookStep = 64 << 20

// meteredWriter looks now and then whether there is room for what is written.
type meteredWriter struct {
	w    io.Writer
	n    int64
	look func() error
}

func (m *meteredWriter) Write(p []byte) (int, error) {
	if m.n += int64(len(p)); m.n >= lookStep {
		m.n = 0
		if err := m.look(); err != nil {
			return 0, err
		}
	}
	return m.w.Write(p)
}
