package desktop

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// RecordingState is the state of a recording.
type RecordingState string

// The states of recordings.
const (
	Recorded  RecordingState = "done"
	Recording RecordingState = "recording"
	Failed    RecordingState = "failed"
)

// Film is a recording of a screen.
type Film struct {
	ID    sandbox.ExecutionID
	Path  string
	State RecordingState
	Error string
	// CreatedAt is when it was requested, EndedAt when it ended; zero if it has not.
	CreatedAt, EndedAt time.Time
	// Size is the size of its file, as the sandbox says; -1 without a file or when it is not known.
	Size int64

	most int64 // the limit of the size
}

// RecordOptions describe a recording.
type RecordOptions struct {
	Path    string        // absolute; "" is a new file in the directory recordings of the working directory
	FPS     int           // pictures in a second; 0 is 10
	MaxTime time.Duration // 0 is ten minutes
	MaxSize int64         // bytes; 0 is 1 GiB
}

const (
	defaultFPS  = 10
	maxFPS      = 30
	defaultTime = 10 * time.Minute
	// MaxRecording bounds the time of a recording, and maxRecordingSize its size.
	MaxRecording     = 4 * time.Hour
	defaultSize      = 1 << 30
	maxRecordingSize = 10 << 30
	// MaxAtOnce, MaxFilms and MaxTotal bound the recordings of a sandbox: recordings under way, recordings
	// with a file, and the bytes of these files. The file of a recording under way counts as its max_bytes.
	MaxAtOnce, MaxFilms = 4, 100
	MaxTotal            = maxRecordingSize
	// MaxMeasured bounds the files whose sizes are read for an answer, and so the paths of recordings on record;
	// measureTime bounds the time for all of them.
	MaxMeasured = 400
	measureTime = 10 * time.Second
	// stopTime is how long the end of a recording is awaited.
	stopTime = 15 * time.Second
)

// record is the script that records. The file can be played however the recording ends: its index
// is written in pieces, each at once, also when the picture hardly changes and a piece is small. Its sides must be even.
const record = `mkdir -p -- "$(dirname -- "$1")" && exec ffmpeg -nostdin -hide_banner -loglevel error -y \
	-f x11grab -draw_mouse 1 -framerate "$2" -t "$3" -i "$DISPLAY" -fs "$4" \
	-vf 'pad=ceil(iw/2)*2:ceil(ih/2)*2' -c:v libx264 -preset ultrafast -crf 26 -pix_fmt yuv420p -g 50 -flush_packets 1 \
	-movflags +frag_keyframe+empty_moov+default_base_moof -- "$1"`

// recordArgs are the arguments before the path.
var recordArgs = []string{"sh", "-c", record, "record"}

// Executions are commands that outlive their requests. [execution.Service] implements it.
type Executions interface {
	// Start starts a command and returns when it runs or has ended.
	Start(ctx context.Context, c sandbox.Caller, ref string, req execution.Request) (sandbox.Execution, error)
	// Wait returns an execution when it has ended, or in its present state after the timeout. Errors: NotFound;
	// NotRunning when its sandbox is paused.
	Wait(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID, timeout time.Duration) (sandbox.Execution, error)
	// Cancel ends an execution with SIGTERM, and returns at once. Errors: NotFound.
	Cancel(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID, force bool) (sandbox.Execution, error)
	// List returns a page of the executions of a sandbox, newest first. Errors: NotFound.
	List(ctx context.Context, c sandbox.Caller, ref string, kind sandbox.ExecutionKind, r page.Request) (page.Page[sandbox.Execution], error)
	// Forget deletes the record and the output of an execution that has ended. Errors: NotFound; Conflict
	// when it has not ended.
	Forget(ctx context.Context, c sandbox.Caller, id sandbox.ExecutionID) error
}

// Files are the files in sandboxes. [guest.Calls] implements it.
type Files interface {
	// Stat describes a file. Errors: FileNotFound; Invalid; the errors of every call into a sandbox; NotRunning when the
	// sandbox is paused and the caller may only read.
	Stat(ctx context.Context, c sandbox.Caller, ref, path string) (agentapi.FileInfo, error)
	// Remove deletes a file. Errors: as for Stat.
	Remove(ctx context.Context, c sandbox.Caller, ref, path string, recursive bool) error
}

var (
	_ Executions = (*execution.Service)(nil)
	_ Files      = (*guest.Calls)(nil)
)

// Recorder records the screens of sandboxes. It is safe for concurrent use.
type Recorder struct {
	executions Executions
	files      Files

	mu       sync.Mutex
	starting map[sandbox.ID]chan struct{} // closed when the start of a recording ends; guarded by mu
}

// NewRecorder returns a recorder. A recording is an execution, which goes on after a pause and after a
// restart of the server.
func NewRecorder(e Executions, f Files) *Recorder {
	return &Recorder{executions: e, files: f, starting: map[sandbox.ID]chan struct{}{}}
}

// check checks options and fills in omitted options.
func (o *RecordOptions) check(now time.Time) error {
	switch {
	case o.Path != "" && (!path.IsAbs(o.Path) || path.Clean(o.Path) != o.Path || strings.ContainsRune(o.Path, 0)):
		return sandbox.InvalidField("path", "must be an absolute path without . and ..")
	case o.Path != "" && path.Ext(o.Path) != ".mp4":
		return sandbox.InvalidField("path", "must end in .mp4")
	case o.FPS < 0 || o.FPS > maxFPS:
		return sandbox.InvalidField("fps", "must be 1 to %d", maxFPS)
	case o.MaxTime < 0 || o.MaxTime > MaxRecording:
		return sandbox.InvalidField("max_seconds", "must be 1 to %d", MaxRecording/time.Second)
	case o.MaxSize < 0 || o.MaxSize > maxRecordingSize:
		return sandbox.InvalidField("max_bytes", "must be 1 to %d", int64(maxRecordingSize))
	}
	if o.Path == "" {
		random := string(sandbox.NewExecutionID()) // requests at the same moment have files of their own
		o.Path = "recordings/" + now.UTC().Format("20060102-150405") + "-" + random[len(random)-8:] + ".mp4"
	}
	if o.FPS == 0 {
		o.FPS = defaultFPS
	}
	if o.MaxTime == 0 {
		o.MaxTime = defaultTime
	}
	if o.MaxSize == 0 {
		o.MaxSize = defaultSize
	}
	return nil
}

// Start begins a recording of the screen of t, which is the desktop of a sandbox. Errors: Invalid;
// QuotaExceeded when the sandbox has too many recordings; Unavailable when the sizes of its recordings are not known,
// because it does not answer in time; as for [Target.Screen] and for starting an execution.
func (r *Recorder) Start(ctx context.Context, c sandbox.Caller, of sandbox.ID, t Target, o RecordOptions) (Film, error) {
	if err := o.check(time.Now()); err != nil {
		return Film{}, err
	}
	if _, err := t.Screen(ctx); err != nil {
		return Film{}, err
	}
	if _, err := t.must(ctx, "ffmpeg", "-version"); err != nil {
		return Film{}, err
	}
	done, err := r.begin(ctx, of) // so that the recordings are counted one after the other
	if err != nil {
		return Film{}, err
	}
	defer done()
	if err := r.checkLimit(ctx, c, of, &o); err != nil {
		return Film{}, err
	}
	argv := append(append([]string(nil), recordArgs...), o.Path,
		strconv.Itoa(o.FPS), strconv.FormatInt(int64(o.MaxTime/time.Second), 10), strconv.FormatInt(o.MaxSize, 10))
	// The film's clock stops while the sandbox is paused or too slow; this ends it all the same.
	e, err := r.executions.Start(ctx, c, string(of), execution.Request{Argv: argv, Timeout: 2*o.MaxTime + time.Minute})
	if err != nil {
		return Film{}, err
	}
	return film(&e)
}

// begin waits until no other recording of a sandbox is being started. The caller calls done.
func (r *Recorder) begin(ctx context.Context, of sandbox.ID) (done func(), err error) {
	for {
		r.mu.Lock()
		other := r.starting[of]
		if other == nil {
			mine := make(chan struct{})
			r.starting[of] = mine
			r.mu.Unlock()
			return func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.starting, of)
				close(mine)
			}, nil
		}
		r.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// checkLimit checks that the sandbox may have another recording. Errors: QuotaExceeded; Unavailable when the sizes of
// its recordings are not known; as for List.
func (r *Recorder) checkLimit(ctx context.Context, c sandbox.Caller, of sandbox.ID, o *RecordOptions) error {
	list, err := r.List(ctx, c, of, false)
	if err != nil {
		return err
	}
	paths := map[string]bool{o.Path: true}
	for _, f := range list {
		paths[f.Path] = true
	}
	if len(paths) > MaxMeasured {
		return sandbox.Errorf(sandbox.QuotaExceeded, "the sandbox would have recordings to %d paths on record, and at most %d are allowed; delete some, also recordings whose files are gone", len(paths), MaxMeasured)
	}
	switch complete, err := r.measure(ctx, c, of, list); {
	case err != nil:
		return err
	case !complete:
		return sandbox.Errorf(sandbox.Unavailable, "the sizes of the recordings of the sandbox are not known: it did not answer within %s; try again, or delete recordings", measureTime)
	}
	live, files, total := 0, 0, o.MaxSize
	for _, f := range list {
		switch {
		case f.State == Recording:
			live, files, total = live+1, files+1, total+max(f.most, f.Size)
		case f.Size >= 0 && f.Path != o.Path: // a file at the path is replaced
			files, total = files+1, total+f.Size
		}
	}
	switch {
	case live >= MaxAtOnce:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the screen of the sandbox is recorded %d times at once, which is the limit; stop a recording", live)
	case files >= MaxFilms:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the sandbox has %d recordings, which is the limit; delete some", files)
	case total > MaxTotal:
		return sandbox.Errorf(sandbox.QuotaExceeded, "the recordings of the sandbox may have %d bytes together, and would have up to %d; delete some, stop those under way, or set a smaller max_bytes", int64(MaxTotal), total)
	}
	return nil
}

// List returns the recordings of a sandbox, newest first, if measure says so with the sizes of the files of
// the newest MaxMeasured of them, as far as they are known within measureTime. A paused sandbox is not resumed
// for the sizes, which are then not known. Errors: NotFound; the errors of every call into a sandbox.
func (r *Recorder) List(ctx context.Context, c sandbox.Caller, of sandbox.ID, measure bool) ([]Film, error) {
	var list []Film
	for req := (page.Request{Limit: page.MaxSize}); ; {
		p, err := r.executions.List(ctx, c, string(of), "", req)
		if err != nil {
			return nil, err
		}
		for i := range p.Items {
			if f, err := film(&p.Items[i]); err == nil {
				list = append(list, f)
			}
		}
		if req.Cursor = p.Next; p.Next == "" {
			break
		}
	}
	if !measure {
		return list, nil
	}
	_, err := r.measure(ctx, c, of, list)
	return list, err
}

// measure adds the sizes of files to a list of all recordings of a sandbox, the newest first. Of several
// recordings to a path the last has the file. It is not complete when the sandbox is paused, takes too long, or
// has too many recordings.
func (r *Recorder) measure(ctx context.Context, c sandbox.Caller, of sandbox.ID, list []Film) (complete bool, err error) {
	c.ReadOnly = true // resumes nothing
	within, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	seen := map[string]bool{}
	for i := range list {
		f := &list[i]
		if seen[f.Path] {
			continue
		}
		if len(seen) == MaxMeasured {
			return false, nil
		}
		seen[f.Path] = true
		info, err := r.files.Stat(within, c, string(of), f.Path)
		switch code := sandbox.CodeOf(err); {
		case err == nil && info.Type == agentapi.TypeFile:
			f.Size = min(max(info.Size, 0), maxRecordingSize) // the sandbox's word
		case code == sandbox.NotRunning || code == sandbox.Ended:
			return false, nil
		case err != nil && within.Err() != nil && ctx.Err() == nil:
			return false, nil
		case err != nil && !noFile(code):
			return false, err
		}
	}
	return true, nil
}

// noFile reports whether an error of a file says that there is none, or none any more below its path.
func noFile(code sandbox.Code) bool { return code == sandbox.FileNotFound || code == sandbox.Invalid }

// Delete ends a recording and deletes its file, unless a later recording has the same path, and its record.
// Without its sandbox there is no file any more. Errors: as for Stop; the errors of every call into a sandbox.
func (r *Recorder) Delete(ctx context.Context, c sandbox.Caller, of sandbox.ID, id sandbox.ExecutionID) error {
	f, err := r.Stop(ctx, c, of, id)
	if err != nil {
		return err
	}
	list, err := r.List(ctx, c, of, false)
	if err != nil {
		return err
	}
	shared := false
	for _, other := range list {
		if other.ID == id {
			break
		}
		shared = shared || other.Path == f.Path
	}
	if !shared {
		err := r.files.Remove(ctx, c, string(of), f.Path, false)
		if code := sandbox.CodeOf(err); err != nil && !noFile(code) && code != sandbox.Ended {
			return err
		}
	}
	return r.executions.Forget(ctx, c, id)
}

// Get returns a recording of the sandbox with the id. Errors: NotFound.
func (r *Recorder) Get(ctx context.Context, c sandbox.Caller, of sandbox.ID, id sandbox.ExecutionID) (Film, error) {
	e, err := r.executions.Wait(ctx, c, id, 0)
	if err != nil {
		return Film{}, err
	}
	if e.Sandbox != of {
		return Film{}, errNoFilm(id)
	}
	return film(&e)
}

// Stop ends a recording and returns when its file is complete. An ended recording stays as it is. Errors:
// NotFound; Timeout; the errors of every call into a sandbox.
func (r *Recorder) Stop(ctx context.Context, c sandbox.Caller, of sandbox.ID, id sandbox.ExecutionID) (Film, error) {
	f, err := r.Get(ctx, c, of, id)
	if err != nil || f.State != Recording {
		return f, err
	}
	if _, err := r.executions.Cancel(ctx, c, id, false); err != nil {
		return Film{}, err
	}
	// The program completes the file, in a sandbox that runs: this call resumes a paused sandbox.
	_, err = r.files.Stat(ctx, c, string(of), f.Path)
	if code := sandbox.CodeOf(err); err != nil && !noFile(code) && code != sandbox.Ended {
		return Film{}, err
	}
	e, err := r.executions.Wait(ctx, c, id, stopTime)
	if err != nil {
		return Film{}, err
	}
	if !e.State.Ended() {
		return Film{}, sandbox.Errorf(sandbox.Timeout, "the recording %s does not end; look again", id)
	}
	return film(&e)
}

func errNoFilm(id sandbox.ExecutionID) error {
	return sandbox.Errorf(sandbox.NotFound, "the sandbox has no recording %s", id)
}

// film returns the recording that an execution is.
func film(e *sandbox.Execution) (Film, error) {
	n := len(recordArgs)
	if len(e.Argv) != n+4 || strings.Join(e.Argv[:n], "\x00") != strings.Join(recordArgs, "\x00") {
		return Film{}, errNoFilm(e.ID)
	}
	f := Film{ID: e.ID, Path: e.Argv[n], State: Recorded, CreatedAt: e.CreatedAt, EndedAt: e.EndedAt, Size: -1}
	f.most, _ = strconv.ParseInt(e.Argv[n+3], 10, 64) // as Start wrote it
	switch {
	case !e.State.Ended():
		f.State = Recording
	case e.State == sandbox.ExecutionCancelled || e.State == sandbox.ExecutionTimeout:
	case e.Error != "":
		f.State, f.Error = Failed, e.Error
	case e.ExitCode == nil || *e.ExitCode != 0:
		f.State = Failed
		f.Error = "ffmpeg failed; its messages are the stderr of the execution " + string(e.ID)
		if e.ExitCode != nil {
			f.Error = fmt.Sprintf("ffmpeg ended with exit code %d; its messages are the stderr of the execution %s", *e.ExitCode, e.ID)
		}
	}
	return f, nil
}
