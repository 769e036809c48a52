package workbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/sandbox"
)

// Tool runs a command whose failure is an error with a code that names the field
// and ends with the last lines of its output. Errors: NotFound when there is no such program.
func (w *Box) Tool(ctx context.Context, field string, code sandbox.Code, cmd agentapi.Command) error {
	var last tail
	output := last.add
	if w.Say != nil {
		lines := liner{say: w.Say}
		output = func(p []byte) { last.add(p); lines.add(p) }
	}
	exit, err := w.Run(ctx, cmd, output)
	switch {
	case err != nil:
		return err
	case exit.Code == 0:
		return nil
	}
	return &sandbox.Error{Code: code, Field: field, Message: sandbox.OneLine(fmt.Sprintf("%s ended with code %d: %s", cmd.Argv[0], exit.Code, last.String()))}
}

// tail retains the last lines of some output.
type tail struct {
	data []byte
}

// Bounds of the output of a tool in an error.
const (
	tailBytes = 4 << 10
	tailShown = 800
)

func (t *tail) add(p []byte) {
	t.data = append(t.data, p[max(0, len(p)-tailBytes):]...)
	t.data = slices.Delete(t.data, 0, max(0, len(t.data)-tailBytes))
}

// String returns the last lines that are not empty, on one line.
func (t *tail) String() string {
	shown := ""
	lines := strings.Split(strings.ToValidUTF8(string(t.data), "?"), "\n")
	for _, line := range slices.Backward(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(shown)+len(line) > tailShown && shown != "" {
			break
		}
		shown = strings.TrimSuffix(line+"; "+shown, "; ")
	}
	return shown
}

// lineMax bounds a line of a tool's output.
const lineMax = 1 << 10

// liner calls say for each line of its input, cut to lineMax.
type liner struct {
	say  func(string)
	line []byte
}

func (l *liner) add(p []byte) {
	for _, c := range p {
		if c != '\n' && c != '\r' {
			if len(l.line) < lineMax {
				l.line = append(l.line, c)
			}
			continue
		}
		if line := strings.TrimSpace(sandbox.OneLine(string(l.line))); line != "" {
			l.say(line)
		}
		l.line = l.line[:0]
	}
}
