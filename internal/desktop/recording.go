package desktop

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/execution"
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
	// stopTime is how long the end of a recording is awaited.
	stopTime = 15 * time.Second
)

// record is the script that records. The file can be played however the recording ends: its index
// is written in pieces. Its sides must be even.
const record = `mkdir -p -- "$(dirname -- "$1")" && exec ffmpeg -nostdin -hide_banner -loglevel error -y \
	-f x11grab -draw_mouse 1 -framerate "$2" -t "$3" -i "$DISPLAY" -fs "$4" \
	-vf 'pad=ceil(iw/2)*2:ceil(ih/2)*2' -c:v libx264 -preset ultrafast -crf 26 -pix_fmt yuv420p -g 50 \
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
}

var _ Executions = (*execution.Service)(nil)

// Recorder records the screens of sandboxes.
type Recorder struct{ executions Executions }

// NewRecorder returns a recorder. A recording is an execution, which goes on after a pause and after a
// restart of the server.
func NewRecorder(e Executions) *Recorder { return &Recorder{executions: e} }

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
		o.Path = "recordings/" + now.UTC().Format("20060102-150405.000") + ".mp4"
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

// Start begins a recording of the screen of t, which is the desktop of the sandbox of ref. Errors:
// Invalid; as for [Target.Screen] and for starting an execution.
func (r *Recorder) Start(ctx context.Context, c sandbox.Caller, ref string, t Target, o RecordOptions) (Film, error) {
	if err := o.check(time.Now()); err != nil {
		return Film{}, err
	}
	if _, err := t.Screen(ctx); err != nil {
		return Film{}, err
	}
	if _, err := t.must(ctx, "ffmpeg", "-version"); err != nil {
		return Film{}, err
	}
	argv := append(append([]string(nil), recordArgs...), o.Path,
		strconv.Itoa(o.FPS), strconv.FormatInt(int64(o.MaxTime/time.Second), 10), strconv.FormatInt(o.MaxSize, 10))
	// The film's clock stops while the sandbox is paused or too slow; this ends it all the same.
	e, err := r.executions.Start(ctx, c, ref, execution.Request{Argv: argv, Timeout: 2*o.MaxTime + time.Minute})
	if err != nil {
		return Film{}, err
	}
	return film(&e)
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
// NotFound; NotRunning if the sandbox is paused; Timeout.
func (r *Recorder) Stop(ctx context.Context, c sandbox.Caller, of sandbox.ID, id sandbox.ExecutionID) (Film, error) {
	if f, err := r.Get(ctx, c, of, id); err != nil || f.State != Recording {
		return f, err
	}
	if _, err := r.executions.Cancel(ctx, c, id, false); err != nil {
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
	f := Film{ID: e.ID, Path: e.Argv[n], State: Recorded}
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
