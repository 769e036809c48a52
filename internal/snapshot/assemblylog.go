package snapshot

import (
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/image/phase"
	"github.com/modbox/modbox/internal/sandbox"
)

// logLines and logBytes bound the log of an assembly; older lines are dropped.
const logLines, logBytes = 1000, 64 << 10

// The phases of an assembly that has ended.
const (
	PhaseDone   phase.Phase = "done"
	PhaseFailed phase.Phase = "failed"
)

// LogLine is an event of an assembly, or a line that one of its tools wrote.
type LogLine struct {
	Time    time.Time
	Phase   phase.Phase
	Message string
}

// Log holds the events of an assembly.
type Log struct {
	Lines     []LogLine // in their order
	Truncated bool      // older lines were dropped
	Ended     bool      // no line will be added
}

// assemblyLog is the growing log of an assembly.
type assemblyLog struct {
	lines     []LogLine
	bytes     int
	truncated bool
}

// add appends an event, unless only its counters differ from the last line.
func (l *assemblyLog) add(e phase.Event) {
	line := LogLine{Time: time.Now().UTC(), Phase: e.Phase, Message: sandbox.OneLine(e.Message)}
	if n := len(l.lines); n > 0 && l.lines[n-1].Phase == line.Phase && l.lines[n-1].Message == line.Message {
		return
	}
	l.lines = append(l.lines, line)
	l.bytes += len(line.Message)
	for len(l.lines) > logLines || l.bytes > logBytes {
		l.bytes -= len(l.lines[0].Message)
		l.lines = l.lines[1:]
		l.truncated = true
	}
}

// Log returns the log of an assembly of the caller, while [Assemblies.Progress] knows it.
// Errors: NotFound.
func (x *Assemblies) Log(_ context.Context, c sandbox.Caller, id sandbox.SnapshotID) (Log, error) {
	a, err := x.known.get(c, id)
	if err != nil {
		return Log{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return Log{Lines: slices.Clone(a.log.lines), Truncated: a.log.truncated, Ended: !a.ended.IsZero()}, nil
}
