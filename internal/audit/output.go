package audit

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// ActionOutput is the action of the record of the output of an execution, whose request ended before.
	ActionOutput = "execution-output"
	// OutputMax bounds the bytes of each output in a record.
	OutputMax = 4 << 10
	// encodedMax bounds each output in a record as JSON, where a byte of output can take six.
	encodedMax = 2 * OutputMax
	// outputsMax bounds the outputs in the records of a workspace in a period, in bytes of JSON; the outputs of all
	// workspaces are bounded by the outputsPart of Config.MaxBytes.
	outputsMax, outputsPart, outputsPeriod = 16 << 20, 32, 24 * time.Hour
)

// output is the beginning of the output of a command.
type output struct {
	text []byte
	more bool // there was more
}

// add keeps data as far as it can become part of a record.
func (o *output) add(data []byte) {
	space := OutputMax - len(o.text)
	o.text = append(o.text, data[:min(space, len(data))]...)
	o.more = o.more || len(data) > space
}

// shown returns the text for a record, with the bytes that it takes as JSON: valid UTF-8 with plain line ends, without
// secrets and control characters. The whole text is searched at once, so that it does not matter in which pieces it came.
func (o *output) shown(values secrets) (string, int64) {
	s := values.hide(string(o.text), o.more)
	// A terminal changes the line ends of what is printed, also those within a secret.
	s = values.hide(lineEnds.Replace(s), o.more)
	if o.more {
		s = withoutTail(s)
	}
	s = Redact(strings.ToValidUTF8(s, "\uFFFD"))
	var b strings.Builder
	size := 0
	for _, r := range s {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			r = '\uFFFD'
		}
		n := encoded(r)
		if size+n > encodedMax {
			o.more = true
			break
		}
		size += n
		b.WriteRune(r)
	}
	return b.String(), int64(size)
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// encoded returns the bytes that a character takes in a record, as encoding/json writes it.
func encoded(r rune) int {
	switch r {
	case '"', '\\', '\n', '\t':
		return 2
	case '<', '>', '&', '\u2028', '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// Output adds output of the command to its record, if the workspace has its outputs recorded.
func (e *Entry) Output(stderr bool, data []byte) {
	e.note(func(*Record) {
		if !e.outputs {
			return
		}
		if stderr {
			e.stderr.add(data)
		} else {
			e.stdout.add(data)
		}
	})
}

// WithoutOutput has no output of the command recorded: it is the content of files.
func (e *Entry) WithoutOutput() { e.note(func(*Record) { e.files = true }) }

// Execution is an execution that has ended, with the beginnings of its outputs.
type Execution struct {
	Workspace sandbox.WorkspaceID
	User      sandbox.UserID
	Sandbox   sandbox.ID
	ID        sandbox.ExecutionID
	Command   []string
	// Stdout and Stderr are read from the stored output, at most OutputMax+1 bytes of each.
	Stdout, Stderr []byte
	// Envs have the values that must not appear. nil means that they are not known, and that no output may be recorded.
	Envs []map[string]string
}

// RecordsOutputs reports whether a workspace has its outputs recorded.
func (l *Log) RecordsOutputs(ctx context.Context, ws sandbox.WorkspaceID) (bool, error) {
	if l.cfg.Outputs == nil || ws == "" {
		return false, nil
	}
	return l.cfg.Outputs(ctx, ws)
}

// ExecutionEnded records the output of an execution, if there is any. It does not wait until the record is written.
func (l *Log) ExecutionEnded(x *Execution) error {
	r := &Record{
		Action: ActionOutput, Outcome: OK, Workspace: string(x.Workspace), User: string(x.User), ObjectKind: "sandbox", ObjectID: string(x.Sandbox),
		Details: map[string]string{"execution": string(x.ID)},
	}
	if x.Envs == nil {
		r.Details["output"] = "not recorded: the server was started again while the command ran"
	} else {
		r.Command, r.CommandTruncated = command(x.Command, x.Envs)
		var stdout, stderr output
		stdout.add(x.Stdout)
		stderr.add(x.Stderr)
		if len(x.Stdout)+len(x.Stderr) == 0 {
			return nil
		}
		l.outputs.put(r, &stdout, &stderr, secretsOf(x.Envs))
	}
	stamp(r, time.Now())
	return l.put(item{record: r})
}

// outputBudget bounds the outputs of each workspace, and of all together, in a period. So that no tenant uses up what
// others need, a workspace may have as much as it leaves, and so may a user, in whichever workspaces.
type outputBudget struct {
	most, total int64 // total is 0 for no limit

	mu    sync.Mutex
	began time.Time        // guarded by mu; of the period
	all   int64            // guarded by mu; used in the period
	used  map[string]int64 // guarded by mu; in the period, by the ID of a workspace or user
}

// take takes bytes for a workspace and a user, which may be "", if they have as many left.
func (b *outputBudget) take(ws, user string, bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); now.Sub(b.began) >= outputsPeriod {
		b.began, b.all, b.used = now, 0, map[string]int64{}
	}
	if b.used[ws]+bytes > b.most {
		return false
	}
	for _, id := range []string{ws, user} {
		if left := b.total - b.all; b.total > 0 && id != "" && b.used[id]+bytes > left-bytes {
			return false
		}
	}
	b.all += bytes
	b.used[ws] += bytes
	if user != "" {
		b.used[user] += bytes
	}
	return true
}

// put adds outputs to a record, as far as the workspace has bytes left.
func (b *outputBudget) put(r *Record, stdout, stderr *output, values secrets) {
	out, n := stdout.shown(values)
	errs, m := stderr.shown(values)
	if !b.take(r.Workspace, r.User, n+m) {
		detail(r, "output", "not recorded: the outputs of a day exceed their limit")
		return
	}
	r.Stdout, r.Stderr, r.OutputTruncated = out, errs, stdout.more || stderr.more
}

// limit sets the limits from the settings of the log.
func (b *outputBudget) limit(cfg *Config) {
	b.most, b.total = cmp.Or(cfg.MaxOutputs, outputsMax), cfg.MaxBytes/outputsPart
}
