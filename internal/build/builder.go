package build

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/patternmatcher/ignorefile"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/registry"
	"github.com/modbox/modbox/internal/sandbox"
)

// Config are the limits of builds. The comments name the defaults of zero values.
type Config struct {
	// Timeout bounds a build, including its upload and the time in queues; 0 is an hour.
	Timeout time.Duration
	// UploadTimeout bounds the upload of a context, from the moment at which the build has a slot; 0
	// is a quarter of an hour.
	UploadTimeout time.Duration
}

// Limits of builds that are not worth a setting.
const (
	uploadMax      = 2 << 30 // bytes of a context as uploaded
	contextMax     = 4 << 30 // bytes of it decompressed
	contextFiles   = 250_000
	callerBuilds   = 4 // concurrent builds and pushes of a workspace
	ignoreMax      = 1 << 20
	argsMax        = 100
	argBytesMax    = 32 << 10 // total bytes of arguments
	outputMax      = 16 << 20 // bytes of output that a build reports
	builtMax       = 100      // images of one workspace
	builtBytesMax  = 64 << 30 // total bytes of the images of a workspace
	cacheBytesMax  = 32 << 30 // bytes of cached layers and untagged images that the builds of a workspace leave behind
	layerMax       = 16 << 30
	layerFilesMax  = 1_000_000
	filesMax       = 2_000_000 // of an image
	defaultTimeout = time.Hour
	defaultUpload  = 15 * time.Minute
)

// Request describes a build.
type Request struct {
	// Tag is the name of the image, with or without a tag and a registry. With "" the image is known
	// by its digest and is removed after an hour unless something uses it.
	Tag string
	// Path is the path of the Dockerfile in the context; "" is Dockerfile. Source, unless nil, is its
	// content instead.
	Path   string
	Source []byte
	// Args are the values of ARGs.
	Args map[string]string
	// Target is the stage to build, by name or number; "" is the last.
	Target string
	// NoCache disables the layer cache.
	NoCache bool
	// Network connects RUN instructions to the network.
	Network bool
	// Push pushes the image to the registry in Tag.
	Push bool
	// Resources limit each RUN; 0 is the server's default for builds.
	Resources sandbox.Resources
	// Timeout bounds the build; 0 is Config.Timeout, which is also the maximum.
	Timeout time.Duration
	// WaitForQuota bounds the time for which the build may wait for its quota, within its Timeout; at
	// most [quota.WaitMax].
	WaitForQuota time.Duration
}

// Kind is the kind of an [Event].
type Kind string

// The kinds of events.
const (
	KindStep     Kind = "step"     // an instruction begins, or its layer was in the cache
	KindOutput   Kind = "output"   // of a command
	KindProgress Kind = "progress" // of a pull or another long operation
	KindWarning  Kind = "warning"
)

// Event reports the progress of a build.
type Event struct {
	Kind Kind
	// Step counts the instructions from 1 to Steps. Instruction stands on Line, in Stage. Cached
	// reports that its layer was in the cache.
	Step, Steps, Line  int
	Stage, Instruction string
	Cached             bool
	// Output is output of a command.
	Output []byte
	// Progress is the progress of a pull or an export.
	Progress phase.Event
	// Warning is a warning for the author of the Dockerfile.
	Warning string
}

// Builder builds images. Safe for concurrent use.
type Builder struct {
	cfg       Config
	host      Host
	images    *image.Store
	most      int   // maximum number of images of a workspace
	mostBytes int64 // and their maximum total
	times     *prometheus.HistogramVec

	mu    sync.Mutex
	under map[sandbox.WorkspaceID]int // builds and pushes in progress; guarded by mu
}

// New returns a builder.
func New(cfg Config, host Host, images *image.Store) *Builder {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.UploadTimeout = cmp.Or(cfg.UploadTimeout, defaultUpload)
	return &Builder{
		cfg: cfg, host: host, images: images, most: builtMax, mostBytes: builtBytesMax, times: newTimes(),
		under: map[sandbox.WorkspaceID]int{},
	}
}

// validate checks a request.
func (b *Builder) validate(req *Request) error {
	if req.Tag != "" {
		if _, _, err := reference.BuiltName(req.Tag); err != nil {
			return err
		}
	}
	if name, _, _ := reference.BuiltName(req.Tag); req.Push && !reference.NamesRegistry(name) {
		return sandbox.InvalidField("tag", "name the image with the registry to push it to, as in registry.example.com/team/app:v1")
	}
	total := 0
	for name, value := range req.Args {
		total += len(name) + len(value)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return sandbox.InvalidField("build_args", "%.100q is not the name of an argument, or its value has a zero byte", name)
		}
	}
	if len(req.Args) > argsMax || total > argBytesMax {
		return sandbox.InvalidField("build_args", "must be at most %d, with at most %d bytes together", argsMax, argBytesMax)
	}
	if req.Timeout < 0 || req.Timeout > b.cfg.Timeout {
		return sandbox.InvalidField("timeout_seconds", "must be at most %d", int(b.cfg.Timeout.Seconds()))
	}
	return b.host.CheckLimits(req.Resources, req.WaitForQuota)
}

// Timeout returns the time limit of a valid request.
func (b *Builder) Timeout(req *Request) time.Duration {
	if req.Timeout > 0 {
		return req.Timeout
	}
	return b.cfg.Timeout
}

// UploadTimeout returns the time limit of reading the context: a slow client occupies a slot that
// other builds wait for.
func (b *Builder) UploadTimeout() time.Duration { return b.cfg.UploadTimeout }

// Build builds an image for the caller's workspace. The context is a tar of the files to build
// from, plain or compressed with gzip, bzip2 or zstd; Build reads it to its end once the build has
// a slot. Build calls report with one event at a time, in order; report must not block, and may
// retain the event. The build ends when ctx ends; only cached layers remain.
//
// Errors: a [Failure] when an instruction is at fault. Invalid, naming the field, also for an
// unsupported Dockerfile and for a command that fails; QuotaExceeded; TooLarge; Timeout; the errors
// of pulls and pushes.
func (b *Builder) Build(ctx context.Context, c sandbox.Caller, req Request, files io.Reader, report func(Event)) (_ spec.Image, err error) {
	begin := time.Now()
	defer func() { b.ended(begin, err) }()
	if err := b.validate(&req); err != nil {
		return spec.Image{}, err
	}
	leave, err := b.enter(ctx, c, &req)
	if err != nil {
		return spec.Image{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, b.Timeout(&req))
	defer cancel()
	img, err := b.build(limited, c, req, files, report)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return img, sandbox.Wrap(sandbox.Timeout, err, "it was not built within %s", b.Timeout(&req))
	}
	return img, err
}

// Push pushes an image that the caller's workspace has built to a registry: to another reference,
// or with "" to the reference that is its name. Progress should return soon. Errors: as
// [image.Store.Push]; QuotaExceeded when the workspace has too many builds and pushes in progress.
func (b *Builder) Push(ctx context.Context, c sandbox.Caller, ref, to string, progress func(phase.Event)) (spec.Image, error) {
	img, err := b.images.Built(ctx, c.Workspace, ref)
	if err != nil {
		return spec.Image{}, err
	}
	if to == "" {
		to = img.Ref()
	}
	leave, err := b.count(c.Workspace)
	if err != nil {
		return spec.Image{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	return img, b.images.Push(ctx, registry.Puller{Workspace: c.Workspace}, ref, to, progress)
}

// enter counts a build of a workspace until leave is called. Errors: QuotaExceeded.
func (b *Builder) enter(ctx context.Context, c sandbox.Caller, req *Request) (leave func(), err error) {
	if req.WaitForQuota == 0 { // with it the build may also wait for the disk
		if err := b.host.CheckDisk(ctx, c); err != nil {
			return nil, err
		}
	}
	if err := b.checkImageQuota(ctx, c.Workspace, req.Tag, 0); err != nil {
		return nil, err
	}
	return b.count(c.Workspace)
}

// checkImageQuota returns QuotaExceeded when an image with a name, with which the images of the workspace take so many
// bytes, would exceed the limits of a workspace; with 0 it adds something. The image that has the name now will be replaced
// and does not count.
func (b *Builder) checkImageQuota(ctx context.Context, ws sandbox.WorkspaceID, tag string, with int64) error {
	if tag == "" {
		return nil // it counts as a cached layer
	}
	name, version, err := reference.BuiltName(tag)
	if err != nil {
		return err
	}
	built, err := b.images.BuiltBy(ctx, ws)
	if err != nil {
		return err
	}
	others, err := b.images.Removal().ImagesWithout(ws, name, version)
	if err != nil {
		return err
	}
	count := len(built)
	if slices.ContainsFunc(built, func(img spec.Image) bool { return img.Name == name && img.Tag == version }) {
		count--
	}
	if count >= b.most || max(with, others+1) > b.mostBytes {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has built %d other images of %d MiB together, and may have %d or %d; remove some first",
			count, others>>20, b.most, b.mostBytes>>20)
	}
	return nil
}

// checkCacheQuota returns an error if add bytes more of cached layers would exceed the limit of the
// workspace. Errors: QuotaExceeded; Unavailable when the server's disk is full.
func (r *run) checkCacheQuota(ctx context.Context, add int64) error {
	_, cached, err := r.builder.images.Owned(r.caller.Workspace)
	if err != nil {
		return err
	}
	if cached > cacheBytesMax {
		return cacheFull(cached)
	}
	return r.builder.host.CheckDiskFor(ctx, r.caller, r.resources, add)
}

func cacheFull(cached int64) error {
	return sandbox.Errorf(sandbox.QuotaExceeded, "the cached layers of the workspace's recent builds take %d MiB, the limit is %d MiB; try again later", cached>>20, int64(cacheBytesMax)>>20)
}

// count counts a build or a push of a workspace until leave is called. Errors: QuotaExceeded.
func (b *Builder) count(ws sandbox.WorkspaceID) (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.under[ws] >= callerBuilds {
		return nil, sandbox.Errorf(sandbox.QuotaExceeded, "a workspace has at most %d builds and pushes under way; wait for one to end", callerBuilds)
	}
	b.under[ws]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.under[ws]--; b.under[ws] == 0 {
			delete(b.under, ws)
		}
	}, nil
}

// build does the work of Build.
func (b *Builder) build(ctx context.Context, c sandbox.Caller, req Request, upload io.Reader, report func(Event)) (spec.Image, error) {
	resources, release, err := b.host.AcquireSlot(ctx, c, req.Resources, req.WaitForQuota, func(what string) {
		report(Event{Kind: KindProgress, Progress: phase.Event{Phase: "waiting", Message: what}})
	})
	if err != nil {
		return spec.Image{}, err
	}
	defer release()
	if req.WaitForQuota > 0 {
		if err := b.host.CheckDisk(ctx, c); err != nil {
			return spec.Image{}, err
		}
	}
	files, err := b.images.Scratch().ReadArchive(ctx, c.Workspace, &limitedReader{upload, uploadMax}, rootfs.ArchiveLimits{Bytes: contextMax, Entries: contextFiles})
	if err != nil {
		return spec.Image{}, inField("context", err)
	}
	defer files.Close()
	plan, err := b.plan(ctx, &req, files)
	if err != nil {
		return spec.Image{}, err
	}
	r := &run{
		builder: b, caller: c, req: &req, plan: plan, context: files, report: report, resources: resources,
		steps: plan.steps(), ends: make([]*state, len(plan.stages)), used: map[string]bool{},
	}
	defer r.close()
	return r.all(ctx)
}

// plan parses the Dockerfile and removes ignored files from the context.
func (b *Builder) plan(ctx context.Context, req *Request, files *rootfs.Files) (*plan, error) {
	name := req.Path
	if name == "" {
		name = "Dockerfile"
	}
	if req.Source == nil {
		source, err := files.ReadFile(name, dockerfileMax)
		if err != nil {
			return nil, inField("dockerfile", err)
		}
		req.Source = source
	}
	p, err := parse(&budget{ctx: ctx}, req.Source, req.Args, req.Target)
	if err != nil {
		return nil, err
	}
	for _, ignore := range []string{name + ".dockerignore", ".dockerignore"} {
		data, err := files.ReadFile(ignore, ignoreMax)
		if sandbox.CodeOf(err) == sandbox.FileNotFound {
			continue
		}
		if err != nil {
			return nil, inField(ignore, err)
		}
		patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
		if err != nil {
			return nil, sandbox.InvalidField(ignore, "it cannot be read: %.200s", err)
		}
		return p, inField(ignore, files.Ignore(ctx, patterns))
	}
	return p, nil
}

// inField adds the field to an error that the caller caused.
func inField(field string, err error) error {
	var coded *sandbox.Error
	if !errors.As(err, &coded) {
		return err
	}
	code := coded.Code
	if code == sandbox.FileNotFound {
		code = sandbox.Invalid
	}
	return &sandbox.Error{Code: code, Field: field, Message: messageOf(coded), Err: err}
}

// limitedReader fails after n bytes.
type limitedReader struct {
	r io.Reader
	n int64
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.n -= int64(n); l.n < 0 {
		return 0, sandbox.Errorf(sandbox.TooLarge, "it has more than %d bytes", int64(uploadMax))
	}
	return n, err
}
