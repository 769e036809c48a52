package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/bench"
)

// docker drives a Docker daemon, by its API for rows that compare APIs and by
// its command line for rows that compare command lines.
type docker struct {
	http  *http.Client
	image string
}

// dockerSocket is where the daemon listens unless DOCKER_HOST says otherwise.
const dockerSocket = "/var/run/docker.sock"

// newDocker connects to the daemon and imports the root filesystem tar under a
// name of its own. It returns nil without an error when no daemon answers.
func newDocker(ctx context.Context, rootfsTar string) (*docker, error) {
	sock := strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if sock == "" {
		sock = dockerSocket
	}
	d := &docker{image: "modbox-bench:latest", http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", sock)
		},
	}}}
	if err := d.call(ctx, http.MethodGet, "/_ping", nil, nil); err != nil {
		return nil, nil //nolint:nilerr // no daemon is an answer, not an error
	}
	out, err := exec.CommandContext(ctx, "docker", "import", rootfsTar, d.image).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("docker import %s: %w: %s", rootfsTar, err, out)
	}
	return d, nil
}

// call sends one request and decodes a JSON answer into out, or copies the body
// when out is an io.Writer.
func (d *docker) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		msg, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("docker %s %s: %s: %s", method, path, resp.Status, msg)
	}
	switch out := out.(type) {
	case nil:
		_, err = io.Copy(io.Discard, resp.Body)
	case io.Writer:
		_, err = io.Copy(out, resp.Body)
	default:
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	return err
}

// start creates and starts a container that sleeps, or runs cmd when given.
func (d *docker) start(ctx context.Context, cmd ...string) (id string, err error) {
	if len(cmd) == 0 {
		cmd = []string{"sleep", "3600"}
	}
	var created struct{ ID string }
	err = d.call(ctx, http.MethodPost, "/containers/create", map[string]any{
		"Image": d.image, "Cmd": cmd,
		"HostConfig": map[string]any{"NetworkMode": "none", "Memory": 512 << 20, "NanoCpus": 1_000_000_000},
	}, &created)
	if err != nil {
		return "", err
	}
	return created.ID, d.call(ctx, http.MethodPost, "/containers/"+created.ID+"/start", nil, nil)
}

func (d *docker) remove(ctx context.Context, id string) error {
	return d.call(ctx, http.MethodDelete, "/containers/"+id+"?force=true", nil, nil)
}

// exec runs a command in a container by the API and returns when its output ended.
func (d *docker) exec(ctx context.Context, id string, argv ...string) error {
	var made struct{ ID string }
	err := d.call(ctx, http.MethodPost, "/containers/"+id+"/exec", map[string]any{
		"Cmd": argv, "AttachStdout": true, "AttachStderr": true,
	}, &made)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := d.call(ctx, http.MethodPost, "/exec/"+made.ID+"/start", map[string]any{"Detach": false}, &out); err != nil {
		return err
	}
	var state struct{ ExitCode int }
	if err := d.call(ctx, http.MethodGet, "/exec/"+made.ID+"/json", nil, &state); err != nil {
		return err
	}
	if state.ExitCode != 0 {
		return fmt.Errorf("docker exec %v: exit code %d: %s", argv, state.ExitCode, out.String())
	}
	return nil
}

// runAPI is create, start, wait for the output of argv, by the API; the removal is not measured.
func (d *docker) runAPI(argv ...string) bench.Op {
	return func(ctx context.Context) (time.Duration, error) {
		var id string
		took, err := bench.Timed(func() (err error) {
			if id, err = d.start(ctx); err != nil {
				return err
			}
			return d.exec(ctx, id, argv...)
		})
		if id != "" {
			if rmErr := d.remove(ctx, id); err == nil {
				err = rmErr
			}
		}
		return took, err
	}
}

// runCLI is `docker run --rm`.
func (d *docker) runCLI(argv ...string) bench.Op {
	args := append([]string{"run", "--rm", "--network", "none", "--memory", "512m", "--cpus", "1", d.image}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return command(ctx, "docker", args...) }
}

// execCLI is `docker exec` in a running container.
func (d *docker) execCLI(id string, argv ...string) bench.Op {
	args := append([]string{"exec", id}, argv...)
	return func(ctx context.Context) (time.Duration, error) { return command(ctx, "docker", args...) }
}

func (d *docker) execAPI(id string, argv ...string) bench.Op {
	return func(ctx context.Context) (time.Duration, error) {
		return bench.Timed(func() error { return d.exec(ctx, id, argv...) })
	}
}

// destroy measures the forced removal of a running container.
func (d *docker) destroy(ctx context.Context) (time.Duration, error) {
	id, err := d.start(ctx)
	if err != nil {
		return 0, err
	}
	return bench.Timed(func() error { return d.remove(ctx, id) })
}

// burst measures n creates at once until the last has answered a command.
func (d *docker) burst(n int) bench.Op {
	return func(ctx context.Context) (time.Duration, error) {
		ids := make([]string, n)
		took, err := bench.Timed(func() error {
			return bench.Parallel(n, func(i int) (err error) {
				if ids[i], err = d.start(ctx); err != nil {
					return err
				}
				return d.exec(ctx, ids[i], "true")
			})
		})
		for _, id := range ids {
			if id != "" {
				_ = d.remove(ctx, id)
			}
		}
		return took, err
	}
}

// idlePSS is the proportional memory of one idle container's host processes: its own and its shim.
func (d *docker) idlePSS(ctx context.Context, n int) (int64, error) {
	var total int64
	var ids []string
	defer func() {
		for _, id := range ids {
			_ = d.remove(ctx, id)
		}
	}()
	for range n {
		id, err := d.start(ctx)
		if err != nil {
			return 0, err
		}
		ids = append(ids, id)
	}
	if err := bench.Settle(ctx); err != nil {
		return 0, err
	}
	for _, id := range ids {
		var state struct{ State struct{ Pid int } }
		if err := d.call(ctx, http.MethodGet, "/containers/"+id+"/json", nil, &state); err != nil {
			return 0, err
		}
		for _, pid := range []int{state.State.Pid, parentOf(state.State.Pid)} {
			pss, err := pssOf(pid)
			if err != nil {
				return 0, err
			}
			total += pss
		}
	}
	return total / int64(n), nil
}

// parentOf returns the parent of a process, which for a container's first process is its shim.
func parentOf(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// pssOf returns a process's proportional set size in bytes.
func pssOf(pid int) (int64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no Pss line for process %d", pid)
}

// command measures a whole program run; a non-zero exit is an error.
func command(ctx context.Context, name string, args ...string) (time.Duration, error) {
	return bench.Timed(func() error {
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	})
}

func (d *docker) upload(id, path string) bench.Op {
	return func(ctx context.Context) (time.Duration, error) {
		return command(ctx, "docker", "cp", "-q", path, id+":"+bench.RemoteFile)
	}
}

func (d *docker) download(id, path string) bench.Op {
	return func(ctx context.Context) (time.Duration, error) {
		return command(ctx, "docker", "cp", "-q", id+":"+bench.RemoteFile, path)
	}
}
