package build

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/modbox/modbox/internal/sandbox"
)

// Bounds on a Dockerfile.
const (
	dockerfileMax   = 256 << 10 // bytes
	stagesMax       = 64
	instructionsMax = 1000 // ARGs before the first FROM included
)

// plan is a parsed and checked Dockerfile.
type plan struct {
	escape rune
	global []instructions.ArgCommand // before the first FROM
	vars   *variables                // set by global
	stages []stage
	target int
	needed []bool // by stage
}

// stage is a FROM with the instructions that follow.
type stage struct {
	instructions.Stage
	base string // reference of the base image; "" when the base is the stage under
	// under is the index of the stage that it is based on; -1 for none.
	under int
	// froms are the indexes of the stages of COPY --from, by command; -1 for an image.
	froms map[int]int
}

// label names a stage in messages.
func (s *stage) label(i int) string {
	if s.Name != "" {
		return s.Name
	}
	return strconv.Itoa(i)
}

// Failure is the error of a build, with its place in the Dockerfile.
type Failure struct {
	// Line is the line of the instruction, from 1; 0 when no line is at fault.
	Line int
	// Instruction is the text of the line; "" for none.
	Instruction string
	// ExitCode is the nonzero exit code of a command; 0 for other failures.
	ExitCode int
	// Err has the code and the message.
	Err error
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns the error with the code.
func (f *Failure) Unwrap() error { return f.Err }

// at returns a Failure for an error of an instruction; its message names the line.
func at(location []parser.Range, instruction string, err error) error {
	if err == nil {
		return nil
	}
	f := &Failure{Instruction: instruction, Err: err}
	if len(location) > 0 {
		f.Line = location[0].Start.Line
	}
	var inner *Failure
	if errors.As(err, &inner) {
		f.ExitCode = inner.ExitCode
	}
	var coded *sandbox.Error
	if errors.As(err, &coded) && f.Line > 0 {
		named := *coded
		named.Message = fmt.Sprintf("line %d: %s", f.Line, messageOf(coded))
		named.Field, named.Err = "dockerfile", err
		f.Err = &named
	}
	return f
}

// messageOf returns an error's message with its field.
func messageOf(e *sandbox.Error) string {
	if e.Field != "" {
		return e.Field + ": " + e.Message
	}
	return e.Message
}

// refuse returns a Failure of an instruction with the given message.
func refuse(cmd interface{ Location() []parser.Range }, format string, args ...any) error {
	text := ""
	if s, ok := cmd.(fmt.Stringer); ok {
		text = s.String()
	}
	return at(cmd.Location(), shown(text), sandbox.Errorf(sandbox.Invalid, format, args...))
}

// parse parses a Dockerfile and refuses unsupported instructions. The budget belongs to the build;
// the variables of the plan use it as well.
func parse(b *budget, source []byte, args map[string]string, target string) (*plan, error) {
	if err := b.source(source); err != nil {
		return nil, err
	}
	result, err := readTree(source)
	if err != nil {
		return nil, err
	}
	stages, global, err := instructions.Parse(result.AST, linter.New(&linter.Config{SkipAll: true}))
	if err != nil {
		return nil, parseError(err)
	}
	if len(stages) == 0 {
		return nil, sandbox.InvalidField("dockerfile", "it has no FROM")
	}
	p := &plan{escape: result.EscapeToken, global: global}
	if p.vars, err = p.globals(b, args); err != nil {
		return nil, err
	}
	if len(stages) > stagesMax {
		return nil, sandbox.InvalidField("dockerfile", "it has more than %d stages", stagesMax)
	}
	for _, s := range stages {
		if err := p.add(s); err != nil {
			return nil, err
		}
	}
	if err := p.choose(target); err != nil {
		return nil, err
	}
	return p, nil
}

// readTree parses the instructions of a Dockerfile.
func readTree(source []byte) (*parser.Result, error) {
	result, err := parser.Parse(bytes.NewReader(source))
	if err != nil {
		return nil, parseError(err)
	}
	if len(result.AST.Children) > instructionsMax {
		return nil, sandbox.InvalidField("dockerfile", "it has more than %d instructions", instructionsMax)
	}
	for _, n := range result.AST.Children {
		n.PrevComment = nil // the parser would compare each line with each argument of an ARG
	}
	return result, nil
}

// parseError translates an error of the parser.
func parseError(err error) error {
	var where *parser.LocationError
	var location []parser.Range
	if errors.As(err, &where) && len(where.Locations) > 0 {
		location = where.Locations[0]
	}
	words := []rune(parserPrefix().ReplaceAllString(err.Error(), ""))
	invalid := sandbox.InvalidField("dockerfile", "%s", string(words[:min(len(words), 500)]))
	if location == nil {
		return invalid
	}
	invalid.Field = ""
	return at(location, "", invalid)
}

// parserPrefix matches the beginning of the parser's messages; ours has its own.
var parserPrefix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^dockerfile parse error( on line \d+)?: `) })

// add appends a stage.
func (p *plan) add(s instructions.Stage) error {
	st := stage{Stage: s, under: -1, froms: map[int]int{}}
	from := func(err error) error { return at(s.Location, shown(s.SourceCode), err) }
	base, err := p.vars.expand(s.BaseName)
	if err == nil && base == "" {
		err = sandbox.Errorf(sandbox.Invalid, "FROM names nothing once its variables are replaced")
	}
	if err != nil {
		return from(err)
	}
	if platform, err := p.vars.expand(s.Platform); err != nil || platform != "" && platform != hostPlatform {
		return from(sandbox.Errorf(sandbox.Invalid, "--platform=%.100s: images can be built for %s only", s.Platform, hostPlatform))
	}
	st.base = base
	if i, ok := p.find(base); ok {
		st.base, st.under = "", i
	}
	for i, cmd := range s.Commands {
		if err := p.check(&st, i, cmd); err != nil {
			return err
		}
	}
	p.stages = append(p.stages, st)
	return nil
}

const hostPlatform = "linux/" + runtime.GOARCH

// find returns the index of the stage with a name, among the stages so far.
func (p *plan) find(name string) (int, bool) {
	for i := len(p.stages) - 1; i >= 0; i-- {
		if p.stages[i].Name != "" && strings.EqualFold(p.stages[i].Name, name) {
			return i, true
		}
	}
	return 0, false
}

// check refuses an unsupported instruction.
func (p *plan) check(st *stage, i int, cmd instructions.Command) error {
	switch c := cmd.(type) {
	case *instructions.RunCommand:
		return checkRun(c)
	case *instructions.CopyCommand:
		switch {
		case c.Parents:
			return refuse(c, "COPY --parents is not supported")
		case len(c.ExcludePatterns) > 0:
			return refuse(c, "COPY --exclude is not supported; name the files in .dockerignore")
		}
		return p.checkFrom(st, i, c)
	case *instructions.AddCommand:
		switch {
		case c.Checksum != "" || c.KeepGitDir != nil:
			return refuse(c, "ADD --checksum and --keep-git-dir are for URLs, which are not supported")
		case len(c.ExcludePatterns) > 0:
			return refuse(c, "ADD --exclude is not supported; name the files in .dockerignore")
		case slices.ContainsFunc(c.SourcePaths, isURL):
			return refuse(c, "ADD of a URL is not supported; fetch it in a RUN, or before the build")
		}
	case *instructions.OnbuildCommand:
		return refuse(c, "ONBUILD is not supported")
	case *instructions.ArgCommand, *instructions.EnvCommand, *instructions.WorkdirCommand, *instructions.UserCommand,
		*instructions.CmdCommand, *instructions.EntrypointCommand, *instructions.ExposeCommand, *instructions.LabelCommand,
		*instructions.VolumeCommand, *instructions.StopSignalCommand, *instructions.HealthCheckCommand,
		*instructions.ShellCommand, *instructions.MaintainerCommand:
	default:
		return refuse(c, "%s is not supported", strings.ToUpper(c.Name()))
	}
	return nil
}

func checkRun(c *instructions.RunCommand) error {
	for _, flag := range c.FlagsUsed {
		if flag != "network" {
			return refuse(c, "RUN --%s is not supported", flag)
		}
	}
	if instructions.GetNetwork(c) == instructions.NetworkHost {
		return refuse(c, "RUN --network=host is not supported: builds never reach the host's network")
	}
	return nil
}

// checkFrom finds the stage of COPY --from.
func (p *plan) checkFrom(st *stage, i int, c *instructions.CopyCommand) error {
	if c.From == "" {
		return nil
	}
	st.froms[i] = -1
	if at, ok := p.find(c.From); ok {
		st.froms[i] = at
		return nil
	}
	if n, err := strconv.Atoi(c.From); err == nil {
		if n < 0 || n >= len(p.stages) {
			return refuse(c, "--from=%d: the stages before this one are 0 to %d", n, len(p.stages)-1)
		}
		st.froms[i] = n
		return nil
	}
	if strings.EqualFold(c.From, st.Name) {
		return refuse(c, "--from=%.100s is this stage itself", c.From)
	}
	return nil
}

// isURL reports whether ADD would download a source.
func isURL(source string) bool {
	for _, scheme := range []string{"http://", "https://", "ftp://", "git://", "ssh://", "git@"} {
		if strings.HasPrefix(strings.ToLower(source), scheme) {
			return true
		}
	}
	return false
}

// choose finds the target and the stages that it needs.
func (p *plan) choose(target string) error {
	p.target = len(p.stages) - 1
	if target != "" {
		at, ok := p.find(target)
		if n, err := strconv.Atoi(target); !ok && err == nil && n >= 0 && n < len(p.stages) {
			at, ok = n, true
		}
		if !ok {
			return sandbox.InvalidField("target", "the Dockerfile has no stage %.100q", target)
		}
		p.target = at
	}
	p.needed = make([]bool, len(p.stages))
	p.needed[p.target] = true
	for i := p.target; i >= 0; i-- { // a stage needs only earlier stages
		if !p.needed[i] {
			continue
		}
		if under := p.stages[i].under; under >= 0 {
			p.needed[under] = true
		}
		for _, from := range p.stages[i].froms {
			if from >= 0 {
				p.needed[from] = true
			}
		}
	}
	return nil
}

// steps counts the instructions of the needed stages.
func (p *plan) steps() int {
	n := 0
	for i, s := range p.stages {
		if p.needed[i] {
			n += 1 + len(s.Commands)
		}
	}
	return n
}

// shown returns an instruction on one line, shortened.
func shown(code string) string {
	line, rest, more := strings.Cut(strings.TrimSpace(code), "\n")
	r := []rune(line)
	if len(r) > 200 {
		r, more, rest = r[:200], true, "…"
	}
	if more && rest != "" {
		return strings.TrimRight(string(r), `\ `) + " …"
	}
	return string(r)
}
