package template

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/modbox/modbox/internal/background"
	"github.com/modbox/modbox/internal/build"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Builder builds images; [build.Builder] implements it.
type Builder interface {
	// Build builds an image for the caller's workspace, as [build.Builder.Build] says.
	Build(ctx context.Context, c sandbox.Caller, req build.Request, files io.Reader, report func(build.Event)) (spec.Image, error)
}

// Images are the images of workspaces; [image.Store] implements it.
type Images interface {
	// BuiltBy returns the images that a workspace has built, sorted by name and tag.
	BuiltBy(ctx context.Context, ws sandbox.WorkspaceID) ([]spec.Image, error)
	// Built returns the image that a workspace has built under a reference. Errors: NotFound.
	Built(ctx context.Context, ws sandbox.WorkspaceID, ref string) (spec.Image, error)
	// OCIConfig returns the configuration of a built image, with its labels.
	OCIConfig(of spec.Image) (*v1.ConfigFile, error)
	// Discard removes the name of an image. Errors: NotFound.
	Discard(ctx context.Context, who image.Remover, ref string) (spec.Image, error)
}

// Quotas check the disk of workspaces.
type Quotas interface {
	// CheckDisk returns why nothing more of a workspace may be kept on the disk, where the bytes of its
	// uploads count. Errors: QuotaExceeded; Unavailable.
	CheckDisk(ctx context.Context, ws sandbox.WorkspaceID) error
}

// Deps are the parts of the server that builds use.
type Deps struct {
	Builder Builder
	Images  Images
	Quotas  Quotas
	// Uploads counts the bytes of the uploads, for Quotas.
	Uploads *Uploads
	// Owner has the shards of the server: of several servers the primary has the builds and uploads of all, as they are in memory. Nil for all.
	Owner *sandbox.Ownership
	// Work runs the builds, and ends them with the server.
	Work *background.Group
	// SpoolDir has the uploaded files; "" is the system's directory for temporary files.
	SpoolDir string
	// Network reports whether the server offers networks: then the steps have a network.
	Network func() bool
	Logger  *slog.Logger
}

// Bounds of what the builds of templates keep.
const (
	workspaceBuilds = 8   // of a workspace, including ended builds
	serverBuilds    = 256 // of all workspaces
	keptFor         = time.Hour
	logEntriesMax   = 10_000
	logBytesMax     = 512 << 10
	tagsMax         = 10
)

// Status is the state of a build.
type Status string

// The states of a build.
const (
	Waiting  Status = "waiting" // for its files and its start
	Building Status = "building"
	Ready    Status = "ready"
	Failed   Status = "error"
)

// ended reports whether a build has ended.
func (s Status) ended() bool { return s == Ready || s == Failed }

// Entry is an entry of a build's log.
type Entry struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"` // debug, info, warn or error
	Message   string    `json:"message"`
	// Step is the number of the step from 1, "base" for its base image, "" for none.
	Step string `json:"step,omitempty"`
}

// Reason says why a build failed.
type Reason struct {
	Message string `json:"message"`
	Step    string `json:"step,omitempty"`
}

// Request asks for a build.
type Request struct {
	// Name is the name of the template, and perhaps a tag.
	Name string
	// Tags are the tags of the template in addition to the tag in its name; "default" without any.
	Tags []string
	// CPUCount and MemoryMB are the limits of its sandboxes, and of its steps; 0 is the default.
	CPUCount, MemoryMB int64
}

// Build is the build of a template.
type Build struct {
	ID       string
	Template string // the name of the image, without a tag
	Tags     []string

	caller             sandbox.Caller
	cpuCount, memoryMB int64
	created            time.Time

	mu       sync.Mutex
	status   Status    // guarded by mu
	ended    time.Time // guarded by mu
	reason   *Reason   // guarded by mu
	log      []Entry   // guarded by mu
	logBytes int       // guarded by mu
}

// owner returns whose uploads are for a build.
func (o *Build) owner() owner { return owner{o.caller.Workspace, o.Template} }

// Builds are the builds of templates of the last hour. They are in memory: the end of the server ends
// its builds, and the next server answers NotFound for them. Safe for concurrent use.
type Builds struct {
	deps   Deps
	now    func() time.Time
	places *places

	mu   sync.Mutex
	byID map[string]*Build // guarded by mu
}

// New returns no builds. SweepEvery forgets them by time.
func New(deps Deps) *Builds {
	return &Builds{deps: deps, now: time.Now, places: newPlaces(), byID: map[string]*Build{}}
}

// SweepEvery removes, at each interval, the builds whose time is over, with their files. It returns at once
// and goes on until the work of the server ends.
func (b *Builds) SweepEvery(interval time.Duration) {
	b.deps.Work.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				b.sweep()
			case <-b.deps.Work.Context().Done():
				return
			}
		}
	})
}

func (b *Builds) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
}

// Begin registers a build, which waits for its files and its start. Errors: Invalid, naming the field;
// QuotaExceeded if the workspace has too many builds that have not ended; Unavailable if another server has the builds.
func (b *Builds) Begin(c sandbox.Caller, req Request) (*Build, error) {
	if err := b.deps.Owner.CheckPrimary(); err != nil {
		return nil, err
	}
	name, tag, err := reference.BuiltName(req.Name)
	if err != nil {
		return nil, sandbox.InvalidField("name", "%.100q is not the name of a template, like my-template or my-template:v1", req.Name)
	}
	var tags []string
	for _, t := range req.Tags {
		tags = append(tags, External(Internal(t)))
	}
	if len(tags) == 0 || tag != sandbox.DefaultTag {
		tags = append(tags, External(tag))
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	if len(tags) > tagsMax {
		return nil, sandbox.InvalidField("tags", "must be at most %d", tagsMax)
	}
	for _, t := range tags {
		if err := checkTag(name, t); err != nil {
			return nil, err
		}
	}
	if req.CPUCount < 0 || req.CPUCount > 1<<10 {
		return nil, sandbox.InvalidField("cpuCount", "must be a number of processors")
	}
	if req.MemoryMB < 0 || req.MemoryMB > 1<<24 {
		return nil, sandbox.InvalidField("memoryMB", "must be a number of MiB")
	}
	made := &Build{
		ID: uuid.NewString(), Template: name, Tags: tags, caller: c, cpuCount: req.CPUCount, memoryMB: req.MemoryMB,
		created: b.now(), status: Waiting,
	}
	return made, b.add(made)
}

// checkTag refuses an invalid tag of a template.
func checkTag(name, tag string) error {
	if got, t, err := reference.BuiltName(name + ":" + tag); err != nil || got != name || t != tag {
		return sandbox.InvalidField("tags", "%.100q is not a tag", tag)
	}
	return nil
}

// add registers a build in the place of builds that have ended.
func (b *Builds) add(made *Build) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
	own := func(o *Build) bool { return o.caller.Workspace == made.caller.Workspace }
	for _, bound := range []struct {
		most  int
		count func(*Build) bool
		err   error
	}{
		{workspaceBuilds, own, sandbox.Errorf(sandbox.QuotaExceeded, "the workspace has %d builds of templates that have not ended; wait for one to end", workspaceBuilds)},
		{serverBuilds, func(*Build) bool { return true }, sandbox.Errorf(sandbox.Unavailable, "the server has too many builds of templates under way; try again later")},
	} {
		var list []*Build
		for _, o := range b.byID {
			if bound.count(o) {
				list = append(list, o)
			}
		}
		if len(list) < bound.most {
			continue
		}
		list = slices.DeleteFunc(list, func(o *Build) bool { return !o.over() })
		if len(list) == 0 {
			return bound.err
		}
		oldest := slices.MinFunc(list, func(x, y *Build) int { return cmp.Or(x.created.Compare(y.created), cmp.Compare(x.ID, y.ID)) })
		delete(b.byID, oldest.ID)
	}
	b.byID[made.ID] = made
	b.places.join(made.owner())
	return nil
}

// forget removes the builds whose time is over, with their files.
//
// Preconditions: b.mu is held.
func (b *Builds) forget() {
	for id, old := range b.byID {
		if b.expire(old) {
			delete(b.byID, id)
		}
	}
}

// Find returns a build of the caller's workspace. Errors: NotFound; Unavailable if another server has the builds.
func (b *Builds) Find(c sandbox.Caller, template, id string) (*Build, error) {
	if err := b.deps.Owner.CheckPrimary(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.byID[id]
	if found == nil || found.caller.Workspace != c.Workspace || found.Template != template {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no build %q of the template %q; builds are known for an hour, and until the server restarts", sandbox.Excerpt(id), sandbox.Excerpt(template))
	}
	return found, nil
}

// expire reports whether a build is to be forgotten. A build that waits longer takes no more files.
func (b *Builds) expire(o *Build) bool {
	now := b.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status == Waiting && now.Sub(o.created) > keptFor {
		o.status, o.ended = Failed, now
		b.places.leave(o.owner())
		return true
	}
	return o.status.ended() && now.Sub(o.ended) > keptFor
}

func (o *Build) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status.ended()
}

func (o *Build) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.status == Waiting
}

// Status returns the state of a build, with the entries of its log from an offset.
func (o *Build) Status(offset, limit int) (Status, []Entry, *Reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	from := min(offset, len(o.log))
	return o.status, slices.Clone(o.log[from:min(from+limit, len(o.log))]), o.reason
}

// say adds an entry to the log, unless the log is full.
func (o *Build) say(now time.Time, level, message, step string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.log) == logEntriesMax || o.logBytes >= logBytesMax {
		return
	}
	if o.logBytes += len(message); o.logBytes >= logBytesMax || len(o.log) == logEntriesMax-1 {
		message, level = "The log of the build is full; it has no further entries.", "warn"
	}
	o.log = append(o.log, Entry{Timestamp: now.UTC(), Level: level, Message: message, Step: step})
}

// end records the end of a build; nil means that it succeeded.
func (o *Build) end(now time.Time, reason *Reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status, o.ended, o.reason = Ready, now, reason
	if reason != nil {
		o.status = Failed
	}
}

// External returns the dialect's form of the tag of an image.
func External(tag string) string {
	if tag == sandbox.DefaultTag {
		return defaultTag
	}
	return tag
}

// Internal returns the tag of an image for a tag of a template.
func Internal(tag string) string {
	if tag == defaultTag || tag == "" {
		return sandbox.DefaultTag
	}
	return tag
}

// defaultTag is the tag of a template without a tag.
const defaultTag = "default"
