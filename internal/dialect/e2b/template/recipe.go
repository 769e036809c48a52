package template

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/modbox/modbox/internal/sandbox"
)

// The labels of the image of a template, with what images have no field for.
const (
	labelReady  = "modbox.e2b.ready-command"
	labelCPU    = "modbox.e2b.cpu-count"
	labelMemory = "modbox.e2b.memory-mb"
)

// The types of steps.
const (
	stepRun     = "RUN"
	stepCopy    = "COPY"
	stepEnv     = "ENV"
	stepWorkdir = "WORKDIR"
	stepUser    = "USER"
)

const (
	stepsMax = 900 // a Dockerfile has at most 1,000 instructions
	// userDefault is the user of steps and of sandboxes, as with E2B. The build adds the account to images without it.
	userDefault = "user"
	userRoot    = "root"
	homeDefault = "/home/user"
)

// addUser adds the default user to images without it, and lets the user become root where the image has sudo.
const addUser = `id -u user >/dev/null 2>&1 || useradd --create-home --shell /bin/bash user || adduser -D -s /bin/sh user
mkdir -p /home/user && chown user /home/user
if [ -d /etc/sudoers.d ]; then echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >/etc/sudoers.d/user && chmod 0440 /etc/sudoers.d/user; fi`

// Step is a step of a build.
type Step struct {
	// Type is RUN, COPY, ENV, WORKDIR or USER.
	Type string `json:"type"`
	// Args are the command and optionally its user for RUN; the source, the target, and optionally
	// the owner and the mode in octal for COPY; names and values in turn for ENV; the directory for WORKDIR; the name for USER.
	Args []string `json:"args"`
	// FilesHash names the uploaded files of a COPY.
	FilesHash string `json:"filesHash"`
	// Force builds the step anew, even if its layer is in the cache.
	Force bool `json:"force"`
}

// Recipe says how a template is built.
type Recipe struct {
	FromImage    string `json:"fromImage"`
	FromTemplate string `json:"fromTemplate"`
	// FromImageRegistry has credentials of a registry, which Modbox takes from the workspace instead.
	FromImageRegistry json.RawMessage `json:"fromImageRegistry"`
	// StartCmd is the command that each sandbox of the template runs from its start.
	StartCmd string `json:"startCmd"`
	// ReadyCmd succeeds when StartCmd is ready. A create waits for it.
	ReadyCmd string `json:"readyCmd"`
	// Force builds all steps anew.
	Force bool   `json:"force"`
	Steps []Step `json:"steps"`
}

// forced reports whether a step must be built anew: then all are, as the cache of a build is on or off.
func (r *Recipe) forced() bool {
	return r.Force || slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Force })
}

// dockerfile is the Dockerfile of a recipe.
type dockerfile struct {
	source bytes.Buffer
	// steps has the number of the step, from 1, of each line, from 0; 0 is the base.
	steps []int
	step  int
	user  string
}

// line adds an instruction of a single line.
func (d *dockerfile) line(format string, args ...any) {
	fmt.Fprintf(&d.source, format+"\n", args...)
	d.steps = append(d.steps, d.step)
}

// shell adds a RUN with that user.
func (d *dockerfile) shell(user string, argv ...string) {
	if user != d.user {
		d.line("USER %s", user)
		defer d.line("USER %s", d.user)
	}
	d.line("RUN %s", list(argv...))
}

// stepOf returns the number of the step of a line, from 1; 0 is the base, as for lines outside the file.
func (d *dockerfile) stepOf(line int) int {
	if line < 1 || line > len(d.steps) {
		return 0
	}
	return d.steps[line-1]
}

// dockerfile returns the Dockerfile on top of an image. Errors: Invalid, naming the step.
func (r *Recipe) dockerfile(from string, cpuCount, memoryMB int64) (*dockerfile, error) {
	if len(r.Steps) > stepsMax {
		return nil, sandbox.InvalidField("steps", "must be at most %d", stepsMax)
	}
	d := &dockerfile{user: userDefault}
	d.line("FROM %s", from)
	d.line("USER %s", userRoot)
	d.line("RUN %s", list("/bin/sh", "-c", addUser))
	d.line("USER %s", userDefault)
	d.line("WORKDIR %s", homeDefault)
	for i := range r.Steps {
		d.step = i + 1
		if err := d.add(&r.Steps[i]); err != nil {
			return nil, err
		}
	}
	d.step = len(r.Steps)
	if r.StartCmd != "" {
		d.line("ENTRYPOINT %s", list("/bin/bash", "-l", "-c", r.StartCmd))
	}
	for _, l := range []struct{ name, value string }{
		{labelReady, r.ReadyCmd}, {labelCPU, positive(cpuCount)}, {labelMemory, positive(memoryMB)},
	} {
		value, err := quoted("readyCmd", l.value)
		if err != nil {
			return nil, err
		}
		d.line("LABEL %s=%s", l.name, strings.ReplaceAll(value, "$", `\$`)) // also without a value: the base may have others
	}
	return d, nil
}

// positive returns a number as a text; "" for none.
func positive(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

var (
	variableName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })
	userName     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:-]*$`) })
	fileMode     = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-7]{1,5}$`) })
)

// add adds a step.
func (d *dockerfile) add(s *Step) error {
	field := fmt.Sprintf("steps[%d].args", d.step-1)
	arg := func(i int) string {
		if i < len(s.Args) {
			return s.Args[i]
		}
		return ""
	}
	if slices.ContainsFunc(s.Args, func(a string) bool { return strings.ContainsRune(a, 0) }) {
		return sandbox.InvalidField(field, "must not contain zero bytes")
	}
	switch s.Type {
	case stepRun:
		user := d.user
		if arg(1) != "" {
			user = arg(1)
		}
		if arg(0) == "" || !userName().MatchString(user) {
			return sandbox.InvalidField(field, "must be a command and optionally the name of a user")
		}
		d.shell(user, "/bin/bash", "-l", "-c", arg(0))
	case stepCopy:
		return d.copy(s, field, arg)
	case stepEnv:
		return d.env(s.Args, field)
	case stepWorkdir:
		dir, err := quoted(field, arg(0))
		if err != nil || arg(0) == "" {
			return sandbox.InvalidField(field, "must be the path of a directory")
		}
		// Docker makes a missing directory for root.
		d.shell(userRoot, "/bin/sh", "-c", `[ -d "$1" ] || { mkdir -p "$1" && chown "$2" "$1"; }`, "sh", arg(0), d.user)
		d.line("WORKDIR %s", dir)
	case stepUser:
		if !userName().MatchString(arg(0)) {
			return sandbox.InvalidField(field, "must be the name of a user")
		}
		d.user = arg(0)
		d.line("USER %s", d.user)
	default:
		return sandbox.InvalidField(fmt.Sprintf("steps[%d].type", d.step-1), "must be RUN, COPY, ENV, WORKDIR or USER")
	}
	return nil
}

// copy adds a COPY. Its files are in a directory of the context of their own.
func (d *dockerfile) copy(s *Step, field string, arg func(int) string) error {
	source, target, owner, mode := arg(0), arg(1), arg(2), arg(3)
	if owner == "" {
		owner = d.user
	}
	if source == "" || target == "" || !userName().MatchString(owner) || mode != "" && !fileMode().MatchString(mode) {
		return sandbox.InvalidField(field, "must be a source, a target, and optionally an owner and a mode in octal")
	}
	if strings.ContainsAny(source, "*?[") && !strings.HasSuffix(target, "/") {
		target += "/" // several files have the target as their directory
	}
	options := "--chown=" + owner
	if mode != "" {
		options += " --chmod=" + mode
	}
	from := directory(d.step) + path.Clean("/"+source)
	d.line("COPY %s %s", options, list(literal(from), literal(target)))
	return nil
}

// directory returns the directory of the files of a step in the context.
func directory(step int) string { return strconv.Itoa(step) }

// env adds an ENV. Its values may refer to variables, as with E2B.
func (d *dockerfile) env(args []string, field string) error {
	if len(args) == 0 || len(args)%2 != 0 {
		return sandbox.InvalidField(field, "must be names and values in turn")
	}
	var words strings.Builder
	for pair := range slices.Chunk(args, 2) {
		if !variableName().MatchString(pair[0]) {
			return sandbox.InvalidField(field, "%.100q is not the name of a variable", pair[0])
		}
		value, err := quoted(field, pair[1])
		if err != nil {
			return err
		}
		words.WriteString(" " + pair[0] + "=" + value)
	}
	d.line("ENV%s", words.String())
	return nil
}

// quoted returns a value in the double quotes of a Dockerfile. Errors: Invalid for several lines.
func quoted(field, value string) (string, error) {
	if strings.ContainsAny(value, "\n\r") {
		return "", sandbox.InvalidField(field, "must not contain line breaks")
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`, nil
}

// literal returns a path in which no variable is replaced.
func literal(s string) string { return strings.NewReplacer(`\`, `\\`, "$", `\$`).Replace(s) }

// list returns the words of an instruction as JSON, without line breaks.
func list(words ...string) string {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(words); err != nil { // every text has a form in JSON
		panic(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}
