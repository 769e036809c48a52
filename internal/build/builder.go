package build

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/moby/patternmatcher/ignorefile"

	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// Config are the bounds of builds. Zero values mean the defaults that the comments name.
type Config struct {
	// Timeout is how long a build may take from its beginning, its upload and the
	// waiting included; an hour.
	Timeout time.Duration
	// UploadTimeout is how long its context may take to arrive once it has its turn;
	// a quarter of an hour.
	UploadTimeout time.Duration
}

// Limits of builds that are not worth a setting.
const (
	uploadMax      = 2 << 30 // bytes of a context as it comes
	contextMax     = 4 << 30 // bytes of it decompressed
	contextFiles   = 250_000
	callerBuilds   = 4 // builds and pushes of one workspace that are under way
	ignoreMax      = 1 << 20
	argsMax        = 100
	argBytesMax    = 32 << 10 // of all arguments together
	outputMax      = 16 << 20 // bytes of output that are told
	builtMax       = 100      // images of one workspace
	builtBytesMax  = 64 << 30 // that they take
	leftBytesMax   = 32 << 30 // of what its builds have left: cached layers and images without a name
	layerMax       = 16 << 30
	layerFilesMax  = 1_000_000
	filesMax       = 2_000_000 // of an image
	defaultTimeout = time.Hour
	defaultUpload  = 15 * time.Minute
)

// Request says what to build.
type Request struct {
	// Tag is the image's name, with or without a tag and a registry; "" is none: the
	// image is known by its digest, and kept for an hour unless something uses it.
	Tag string
	// Path of the Dockerfile in the context; "" is Dockerfile. Source, when not nil,
	// is its content instead.
	Path   string
	Source []byte
	// Args are the values of ARGs.
	Args map[string]string
	// Target is the stage to build, by name or number; "" is the last.
	Target string
	// NoCache makes every layer anew.
	NoCache bool
	// Network lets RUNs reach it.
	Network bool
	// Push pushes the image to the registry that Tag names.
	Push bool
	// Resources limit each RUN; 0 is the server's default for builds.
	Resources sandbox.Resources
	// Timeout is how long the build may take; 0 is Config.Timeout, which is the most.
	Timeout time.Duration
	// WaitForQuota is for how long the build may wait for room in the quota, within its
	// Timeout; at most [sandbox.WaitForQuotaMax].
	WaitForQuota time.Duration
}

// Kind says what an [Event] is about.
type Kind string

// The kinds.
const (
	KindStep     Kind = "step"     // an instruction is begun, or found made before
	KindOutput   Kind = "output"   // of a command
	KindProgress Kind = "progress" // of something that takes its time
	KindWarning  Kind = "warning"
)

// Event is a moment of a build.
type Event struct {
	Kind Kind
	// Step of Steps has the Instruction on Line, in Stage; Cached says that its layer
	// was there.
	Step, Steps, Line  int
	Stage, Instruction string
	Cached             bool
	// Output are bytes that a command wrote.
	Output []byte
	// Progress is what is being made.
	Progress sandbox.ImageEvent
	// Warning is for whoever wrote the Dockerfile.
	Warning string
}

// Builder builds images. It is safe for concurrent use.
type Builder struct {
	cfg    Config
	host   Host
	images *image.Store
	most   int // images of one workspace

	mu    sync.Mutex
	under map[sandbox.WorkspaceID]int // builds under way; guarded by mu
}

// New returns a builder.
func New(cfg Config, host Host, images *image.Store) *Builder {
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	cfg.UploadTimeout = cmp.Or(cfg.UploadTimeout, defaultUpload)
	return &Builder{
		cfg: cfg, host: host, images: images, most: builtMax,
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

// Timeout is how long the build of a valid request may take.
func (b *Builder) Timeout(req *Request) time.Duration {
	if req.Timeout > 0 {
		return req.Timeout
	}
	return b.cfg.Timeout
}

// UploadTimeout is how long reading the context may take: whoever sends it so slowly
// would keep others from their turns.
func (b *Builder) UploadTimeout() time.Duration { return b.cfg.UploadTimeout }

// Build builds an image for the caller's workspace. The context is a tar of the files
// to build from, plain or compressed with gzip, bzip2 or zstd; it is read to its end
// when the build has its turn, and not before. Events are told one at a time, in order;
// tell must not wait for anybody, and what an event holds is not changed afterwards. The
// build ends when ctx does, with nothing left but layers to use again.
//
// Errors: a [Failure] where an instruction is at fault. Invalid, naming the field,
// also for a Dockerfile that is not supported and for a command that fails;
// QuotaExceeded; TooLarge; Timeout; those of pulls and of pushes.
func (b *Builder) Build(ctx context.Context, c sandbox.Caller, req Request, files io.Reader, tell func(Event)) (sandbox.Image, error) {
	if err := b.validate(&req); err != nil {
		return sandbox.Image{}, err
	}
	leave, err := b.enter(ctx, c, &req)
	if err != nil {
		return sandbox.Image{}, err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, b.Timeout(&req))
	defer cancel()
	img, err := b.build(limited, c, req, files, tell)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return img, sandbox.Wrap(sandbox.Timeout, err, "it was not built within %s", b.Timeout(&req))
	}
	return img, err
}

// Push sends an image that the caller's workspace has built to a registry: to another
// reference, or with "" to what its name says. Progress should return soon. Errors:
// as [image.Store.Push]; QuotaExceeded when the workspace has as many builds and
// pushes under way as it may.
func (b *Builder) Push(ctx context.Context, c sandbox.Caller, ref, to string, progress func(sandbox.ImageEvent)) (sandbox.Image, error) {
	img, err := b.images.Built(ctx, c.Workspace, ref)
	if err != nil {
		return sandbox.Image{}, err
	}
	if to == "" {
		to = img.Ref()
	}
	leave, err := b.count(c.Workspace)
	if err != nil {
		return sandbox.Image{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	return img, b.images.Push(ctx, sandbox.Puller{Workspace: c.Workspace}, ref, to, progress)
}

// enter counts a build of a workspace until leave is called. Errors: QuotaExceeded.
func (b *Builder) enter(ctx context.Context, c sandbox.Caller, req *Request) (leave func(), err error) {
	if req.WaitForQuota == 0 { // else it may wait for the disk, too
		if err := b.host.CheckDisk(ctx, c); err != nil {
			return nil, err
		}
	}
	if err := b.mayHave(ctx, c.Workspace, req.Tag, 1); err != nil {
		return nil, err
	}
	return b.count(c.Workspace)
}

// mayHave refuses another image of add bytes under a name, which what has that name now
// makes room for, when a workspace has as many as it may. Errors: QuotaExceeded.
func (b *Builder) mayHave(ctx context.Context, ws sandbox.WorkspaceID, tag string, add int64) error {
	if tag == "" {
		return nil // it counts as what is left by builds
	}
	name, version, err := reference.BuiltName(tag)
	if err != nil {
		return err
	}
	built, err := b.images.BuiltBy(ctx, ws)
	if err != nil {
		return err
	}
	var size int64
	count := 0
	for _, img := range built {
		if img.Name != name || img.Tag != version {
			count++
			size += img.SizeBytes
		}
	}
	if count >= b.most || size+add > builtBytesMax {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has built %d other images of %d MiB together, and may have %d or %d; remove some first",
			count, size>>20, b.most, builtBytesMax>>20)
	}
	return nil
}

// mayKeep returns an error if the builds of the workspace have left too many bytes to add more.
// Errors: QuotaExceeded; Unavailable when the server's disk is full.
func (r *run) mayKeep(ctx context.Context, add int64) error {
	_, left, err := r.builder.images.Owned(r.caller.Workspace)
	if err != nil {
		return err
	}
	if left > leftBytesMax {
		return leftTooMuch(left)
	}
	return r.builder.host.CheckDiskFor(ctx, r.caller, r.resources, add)
}

func leftTooMuch(left int64) error {
	return sandbox.Errorf(sandbox.QuotaExceeded, "the workspace's builds of the last minutes have left layers of %d MiB, and may leave %d; try again later", left>>20, int64(leftBytesMax)>>20)
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
func (b *Builder) build(ctx context.Context, c sandbox.Caller, req Request, upload io.Reader, tell func(Event)) (sandbox.Image, error) {
	resources, release, err := b.host.AcquireSlot(ctx, c, req.Resources, req.WaitForQuota, func(what string) {
		tell(Event{Kind: KindProgress, Progress: sandbox.ImageEvent{Phase: "waiting", Message: what}})
	})
	if err != nil {
		return sandbox.Image{}, err
	}
	defer release()
	if req.WaitForQuota > 0 {
		if err := b.host.CheckDisk(ctx, c); err != nil {
			return sandbox.Image{}, err
		}
	}
	files, err := b.images.Scratch().ReadArchive(ctx, c.Workspace, &limitedReader{upload, uploadMax}, rootfs.ArchiveLimits{Bytes: contextMax, Entries: contextFiles})
	if err != nil {
		return sandbox.Image{}, inField("context", err)
	}
	defer files.Close()
	plan, err := b.plan(ctx, &req, files)
	if err != nil {
		return sandbox.Image{}, err
	}
	r := &run{
		builder: b, caller: c, req: &req, plan: plan, context: files, tell: tell, resources: resources,
		steps: plan.steps(), ends: make([]*state, len(plan.stages)), used: map[string]bool{},
	}
	defer r.close()
	return r.all(ctx)
}

// plan reads the Dockerfile, and takes out of the context what is ignored.
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
		if sandbox.CodeOf(err) == sandbox.NotFound {
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

// inField says of an error that is a caller's fault which input it is about.
func inField(field string, err error) error {
	var coded *sandbox.Error
	if !errors.As(err, &coded) {
		return err
	}
	code := coded.Code
	if code == sandbox.NotFound {
		code = sandbox.Invalid
	}
	return &sandbox.Error{Code: code, Field: field, Message: messageOf(coded), Err: err}
}

// limitedReader fails when there is more than n bytes.
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
