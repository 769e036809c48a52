package lifecycle

import (
	"context"
	"slices"
	"time"

	"github.com/modbox/modbox/internal/sandbox"
)

// buildLogLines and buildLogBytes bound what is kept of a build: the last of it.
const buildLogLines, buildLogBytes = 1000, 64 << 10

// buildLog is what happened in a build.
type buildLog struct {
	lines     []sandbox.BuildLine
	bytes     int
	truncated bool
}

// add appends an event, unless it only counts further than the last one.
func (l *buildLog) add(e sandbox.ImageEvent) {
	line := sandbox.BuildLine{Time: time.Now().UTC(), Phase: e.Phase, Message: sandbox.OneLine(e.Message)}
	if n := len(l.lines); n > 0 && l.lines[n-1].Phase == line.Phase && l.lines[n-1].Message == line.Message {
		return
	}
	l.lines = append(l.lines, line)
	l.bytes += len(line.Message)
	for len(l.lines) > buildLogLines || l.bytes > buildLogBytes {
		l.bytes -= len(l.lines[0].Message)
		l.lines = l.lines[1:]
		l.truncated = true
	}
}

// BuildLog returns what happened in a build of the caller, with the lines that its
// tools wrote, while BuildProgress knows it. Errors: NotFound.
func (s *Service) BuildLog(_ context.Context, c sandbox.Caller, id sandbox.SnapshotID) (sandbox.BuildLog, error) {
	b, err := s.begun.known(c, id)
	if err != nil {
		return sandbox.BuildLog{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return sandbox.BuildLog{Lines: slices.Clone(b.log.lines), Truncated: b.log.truncated, Ended: !b.ended.IsZero()}, nil
}
