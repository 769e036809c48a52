package build

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/modbox/modbox/internal/image/rootfs"
	"github.com/modbox/modbox/internal/sandbox"
)

// configMax bounds the configuration of an image.
const configMax = 1 << 20

// command executes the n-th instruction of stage i.
func (r *run) command(ctx context.Context, i, n int, st *state, cmd instructions.Command) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := &r.plan.stages[i]
	r.begin(s.label(i), cmd.Location(), codeOf(cmd), false)
	cached := func() { r.begin(s.label(i), cmd.Location(), codeOf(cmd), true) }
	if e, ok := cmd.(instructions.SupportsSingleWordExpansion); ok {
		if _, isArg := cmd.(*instructions.ArgCommand); !isArg {
			if err := e.Expand(st.vars.expand); err != nil {
				return err
			}
		}
	}
	switch c := cmd.(type) {
	case *instructions.RunCommand:
		return r.run(ctx, st, c, cached)
	case *instructions.CopyCommand:
		return r.copy(ctx, st, s.froms[n], c, cached)
	case *instructions.AddCommand:
		return r.add(ctx, st, c, cached)
	case *instructions.WorkdirCommand:
		return r.workdir(ctx, st, c, cached)
	case *instructions.ArgCommand:
		for _, a := range c.Args {
			if err := st.vars.declare(a, r.req.Args, r.plan.vars.args); err != nil {
				return err
			}
			r.used[a.Key] = true
		}
		return nil
	default:
		return r.configure(st, cmd)
	}
}

// configure executes an instruction that changes only the configuration of the image.
func (r *run) configure(st *state, cmd instructions.Command) error {
	c := &st.config
	switch cmd := cmd.(type) {
	case *instructions.EnvCommand:
		if err := st.vars.budget.declare(len(cmd.Env)); err != nil {
			return err
		}
		for _, kv := range cmd.Env {
			st.setEnv(kv.Key, kv.Value)
		}
	case *instructions.LabelCommand:
		if err := st.vars.budget.declare(len(cmd.Labels)); err != nil {
			return err
		}
		for _, kv := range cmd.Labels {
			set(&c.Labels, kv.Key, kv.Value)
		}
	case *instructions.UserCommand:
		c.User = cmd.User
	case *instructions.CmdCommand:
		c.Cmd = shelled(c, cmd.ShellDependantCmdLine)
	case *instructions.EntrypointCommand:
		c.Entrypoint = shelled(c, cmd.ShellDependantCmdLine)
		c.Cmd = nil // it was for another entrypoint
	case *instructions.ShellCommand:
		c.Shell = cmd.Shell
	case *instructions.StopSignalCommand:
		c.StopSignal = cmd.Signal
	case *instructions.MaintainerCommand:
		st.author = cmd.Maintainer
	case *instructions.VolumeCommand:
		for _, v := range cmd.Volumes {
			set(&c.Volumes, v, struct{}{})
		}
	case *instructions.ExposeCommand:
		if err := r.expose(st, cmd); err != nil {
			return err
		}
	case *instructions.HealthCheckCommand:
		h := cmd.Health
		c.Healthcheck = &v1.HealthConfig{Test: h.Test, Interval: h.Interval, Timeout: h.Timeout, StartPeriod: h.StartPeriod, Retries: h.Retries}
	}
	return st.checkSize()
}

// checkSize bounds the configuration.
func (st *state) checkSize() error {
	lists := [][]string{st.config.Env, st.config.Cmd, st.config.Entrypoint, st.config.Shell, {st.author, st.config.User, st.config.StopSignal}}
	if st.config.Healthcheck != nil {
		lists = append(lists, st.config.Healthcheck.Test)
	}
	// An instruction counts the variables, labels and ports before it again.
	entries := len(st.config.Env) + len(st.config.Labels) + len(st.config.Volumes) + len(st.config.ExposedPorts)
	if err := st.vars.budget.spend(int64(entries)); err != nil {
		return err
	}
	size := 0
	for _, set := range []map[string]struct{}{st.config.Volumes, st.config.ExposedPorts} {
		for name := range set {
			size += len(name)
		}
	}
	for _, list := range lists {
		for _, s := range list {
			size += len(s)
		}
	}
	for k, v := range st.config.Labels {
		size += len(k) + len(v)
	}
	if size > configMax {
		return sandbox.Errorf(sandbox.Invalid, "the configuration of the image has more than %d bytes", configMax)
	}
	return nil
}

// portSteps is the cost of a port of EXPOSE.
const portSteps = 8

// expose executes EXPOSE.
func (r *run) expose(st *state, cmd *instructions.ExposeCommand) error {
	for _, word := range cmd.Ports {
		ports, err := st.vars.words(word)
		if err != nil {
			return err
		}
		for _, port := range ports {
			all, err := parsePorts(port)
			if err != nil {
				return err
			}
			if err := st.vars.budget.spend(int64(portSteps * len(all))); err != nil {
				return err
			}
			for _, p := range all {
				set(&st.config.ExposedPorts, p, struct{}{})
			}
		}
	}
	return nil
}

// parsePorts parses 80, 80/tcp or 8000-8010/udp and returns the ports as in an image's
// configuration.
func parsePorts(text string) ([]string, error) {
	bad := sandbox.Errorf(sandbox.Invalid, "%.100q is no port like 8080, 53/udp or 8000-8010", text)
	numbers, protocol, given := strings.Cut(text, "/")
	if !given {
		protocol = "tcp"
	}
	first, last, isRange := strings.Cut(numbers, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	protocol = strings.ToLower(protocol)
	if err != nil || err2 != nil || from == 0 || to < from || !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
		return nil, bad
	}
	var ports []string
	for n := from; n <= to; n++ {
		ports = append(ports, strconv.FormatUint(n, 10)+"/"+protocol)
	}
	return ports, nil
}

// set puts a value into a map that may be nil.
func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// setEnv sets a variable of the image; a variable that exists stays in its place.
func (st *state) setEnv(name, value string) {
	st.vars.env[name] = value
	for i, e := range st.config.Env {
		if old, _, _ := strings.Cut(e, "="); old == name {
			st.config.Env[i] = name + "=" + value
			return
		}
	}
	st.config.Env = append(st.config.Env, name+"="+value)
}

// shelled returns the program and the arguments of a command.
func shelled(c *v1.Config, cmd instructions.ShellDependantCmdLine) []string {
	if !cmd.PrependShell {
		return cmd.CmdLine
	}
	return append(shellOf(c), strings.Join(cmd.CmdLine, " "))
}

// shellOf returns the shell of an image's commands.
func shellOf(c *v1.Config) []string {
	if len(c.Shell) > 0 {
		return append([]string{}, c.Shell...)
	}
	return []string{"/bin/sh", "-c"}
}

// workdir executes WORKDIR: the user owns a directory that workdir makes.
func (r *run) workdir(ctx context.Context, st *state, c *instructions.WorkdirCommand, cached func()) error {
	dir := path.Join("/", c.Path)
	if !path.IsAbs(c.Path) {
		dir = path.Join("/", st.config.WorkingDir, c.Path)
	}
	st.config.WorkingDir = dir
	return r.makeDir(ctx, st, dir, codeOf(c), cached)
}

// makeDir makes a directory unless it exists.
func (r *run) makeDir(ctx context.Context, st *state, dir, by string, cached func()) error {
	files, err := r.filesOf(ctx, st)
	if err != nil {
		return err
	}
	if there, err := files.HasDir(strings.TrimPrefix(dir, "/")); there || err != nil {
		return err
	}
	return r.copyOver(ctx, st, rootfs.CopyRequest{To: dir + "/", Owner: st.config.User}, by, cached)
}
