package agentuity

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/catalogue"
	"github.com/modbox/modbox/internal/execution"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/lifecycle"
	"github.com/modbox/modbox/internal/sandbox"
)

// sandboxes has the handlers for sandboxes.
type sandboxes struct {
	*finder
	links
	runtimes  *runtimes
	snapshots *snapshots
	svc       *lifecycle.Service
	guest     *guest.Calls
	catalogue *catalogue.Catalogue
}

func (h *sandboxes) register(m routes) {
	m.add("POST /sandbox", byCode, h.create)
	m.add("GET /sandbox", byCode, h.list)
	m.add("GET /sandbox/{id}", byCode, h.get)
	m.add("GET /sandbox/status/{id}", byCode, h.status)
	m.add("DELETE /sandbox/{id}", byCode, h.destroy)
	m.add("POST /sandbox/{id}/pause", byCode, h.pause)
	m.add("POST /sandbox/{id}/resume", byCode, h.resume)
	m.add("PATCH /sandbox/env/{id}", byCode, h.updateEnv)
	m.add("GET /sandbox/sandboxes/{id}/events", byCode, h.events)
}

const (
	// workspaceDir is the working directory of commands and the base of relative paths.
	workspaceDir = "/home/agentuity"
	// idleDefault is the default idle timeout, so that a sandbox without a client does not run for
	// ever.
	idleDefault      = 10 * time.Minute
	portMin, portMax = 1024, 65535
)

type fileInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

type streamInput struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Stdin  string `json:"stdin"`
	// Timestamps defaults to false, as in the client's own examples, although its reference says
	// otherwise.
	Timestamps bool `json:"timestamps"`
}

// ignore is the value of a stream for an unwanted output, and for no input.
const ignore = "ignore"

type createInput struct {
	ProjectID   string            `json:"projectId"`
	Runtime     string            `json:"runtime"`
	RuntimeID   string            `json:"runtimeId"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Resources   resources         `json:"resources"`
	Env         map[string]string `json:"env"`
	Network     struct {
		Enabled bool `json:"enabled"`
		Port    int  `json:"port"`
	} `json:"network"`
	Stream  streamInput `json:"stream"`
	Timeout timeouts    `json:"timeout"`
	Command *struct {
		Exec  []string    `json:"exec"`
		Mode  string      `json:"mode"`
		Files []fileInput `json:"files"`
	} `json:"command"`
	Files        []fileInput    `json:"files"`
	Snapshot     string         `json:"snapshot"`
	Dependencies []string       `json:"dependencies"`
	Packages     []string       `json:"packages"`
	Metadata     map[string]any `json:"metadata"`
}

// created is the answer to create.
type created struct {
	SandboxID       string `json:"sandboxId"`
	Status          string `json:"status"`
	ExecutionID     string `json:"executionId,omitempty"`
	URL             string `json:"url,omitempty"`
	StdoutStreamID  string `json:"stdoutStreamId,omitempty"`
	StdoutStreamURL string `json:"stdoutStreamUrl,omitempty"`
	StderrStreamID  string `json:"stderrStreamId,omitempty"`
	StderrStreamURL string `json:"stderrStreamUrl,omitempty"`
}

// network returns the requested network.
func (in *createInput) network() (sandbox.Network, error) {
	n, port := sandbox.Network{Enabled: in.Network.Enabled}, in.Network.Port
	switch {
	case port == 0:
	case port < portMin || port > portMax:
		return n, sandbox.InvalidField("network.port", "must be %d to %d", portMin, portMax)
	default:
		n.Ports = []uint16{uint16(port)}
	}
	return n, nil
}

// request converts in.
func (h *sandboxes) request(ctx context.Context, in *createInput) (req lifecycle.CreateRequest, err error) {
	rt, snapshot, err := h.base(ctx, in)
	if err != nil {
		return req, err
	}
	network, err := in.network()
	if err != nil {
		return req, err
	}
	// The first command's environment contains these properties, so they must be known before the
	// create.
	sb := sandbox.Sandbox{
		ID: h.svc.NewID(), Workspace: caller(ctx).Workspace, HostLabel: sandbox.HostLabel(in.Name),
		Env: in.Env, Labels: map[string]string{}, Network: network,
	}
	sb.Publish(network.Ports, time.Now().UTC())
	req = lifecycle.CreateRequest{
		ID: sb.ID, HostLabel: sb.HostLabel, Published: sb.Published, URLAccess: sandbox.URLKey, Env: in.Env, Network: network, Description: in.Description, Labels: sb.Labels,
		AptPackages: in.Dependencies, NpmPackages: in.Packages,
	}
	switch {
	case snapshot != "":
		req.Snapshot = string(snapshot)
	case in.Runtime != "" || in.RuntimeID != "": // otherwise the default image, with the defaults of its entry in the catalogue
		req.Image = rt.image
	}
	if rt != nil {
		req.Labels[labelRuntime], req.Labels[labelRuntimeID] = rt.Name, rt.ID
	}
	for _, l := range []struct{ field, label, value string }{{"name", labelName, in.Name}, {"projectId", labelProject, in.ProjectID}} {
		if len(l.value) > sandbox.LabelMax {
			return req, sandbox.InvalidField(l.field, "must be at most %d bytes", sandbox.LabelMax)
		}
		if l.value != "" {
			req.Labels[l.label] = l.value
		}
	}
	if req.Metadata, err = ourMetadata(in.Metadata); err != nil {
		return req, err
	}
	if req.Resources, err = in.Resources.parse(); err != nil {
		return req, err
	}
	if req.Timeouts, err = in.Timeout.parse(); err != nil {
		return req, err
	}
	if in.Command == nil {
		_, err := decodeFiles("files", in.Files)
		return req, err
	}
	req.Labels[labelMode] = cmp.Or(in.Command.Mode, modeInteractive)
	if m := req.Labels[labelMode]; m != modeInteractive && m != modeOneShot {
		return req, sandbox.InvalidField("command.mode", "must be %s or %s", modeInteractive, modeOneShot)
	}
	req.Command, err = h.firstCommand(&sb, in)
	if req.Labels[labelMode] == modeOneShot {
		req.OneShot = true
		if in.Stream.Timestamps {
			req.Labels[labelTimes] = "true"
		}
	}
	return req, err
}

// base returns what a sandbox is made from: a snapshot, "" for none, and the runtime below it, nil
// for none.
func (h *sandboxes) base(ctx context.Context, in *createInput) (*runtime, sandbox.SnapshotID, error) {
	if in.Snapshot == "" {
		rt, err := h.runtimes.choose(ctx, in.RuntimeID, in.Runtime)
		return rt, "", err
	}
	if in.Runtime != "" || in.RuntimeID != "" {
		return nil, "", sandbox.InvalidField("snapshot", "give either a snapshot or a runtime, not both")
	}
	sn, err := h.snapshots.find(ctx, in.Snapshot)
	if err != nil {
		return nil, "", err
	}
	list, err := h.runtimes.available(ctx)
	if err != nil {
		return nil, "", err
	}
	if rt := ofImage(list, sn.Image); rt != nil {
		return rt, sn.ID, nil
	}
	if img, err := h.catalogue.Image(ctx, caller(ctx).Workspace, sn.Image); err == nil {
		rt := runtimeOfImage(&img)
		return &rt, sn.ID, nil
	}
	return nil, sn.ID, nil // its image is gone
}

// firstCommand returns the command that a sandbox is created with, and its files.
func (h *sandboxes) firstCommand(sb *sandbox.Sandbox, in *createInput) (*execution.Request, error) {
	c := h.command(sb, in.Command.Exec, in.Stream)
	files, err := decodeFiles("files", in.Files)
	if err != nil {
		return nil, err
	}
	more, err := decodeFiles("command.files", in.Command.Files)
	for _, f := range slices.Concat(files, more) {
		c.Files = append(c.Files, execution.File{Path: f.Path, Content: f.Content})
	}
	if in.Stream.Stdin != "" && in.Stream.Stdin != ignore {
		c.StdinStream = sandbox.StreamID(in.Stream.Stdin)
	}
	return &c, err
}

func (h *sandboxes) create(w http.ResponseWriter, r *http.Request) error {
	in, err := decode[createInput](w, r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	req, err := h.request(ctx, &in)
	if err != nil {
		return err
	}
	if req.WaitForQuota, err = edge.WaitForQuota(r); err != nil {
		return known(err)
	}
	sb, _, err := h.svc.Create(ctx, caller(ctx), req)
	if err != nil {
		return err
	}
	out, err := h.finish(ctx, sb, &in)
	if err != nil || ctx.Err() != nil {
		// The client repeats a request without an answer, so nothing may remain of this one.
		_, _ = h.svc.Destroy(context.WithoutCancel(ctx), caller(ctx), string(sb.ID), sandbox.CauseDestroyed) // otherwise the idle timeout ends it
		return err
	}
	writeJSON(w, http.StatusCreated, envelope{Success: true, Data: out})
	return nil
}

// finish writes the files of a new sandbox and describes it.
func (h *sandboxes) finish(ctx context.Context, sb sandbox.Sandbox, in *createInput) (out created, err error) {
	if len(in.Files) > 0 && in.Command == nil {
		files, err := decodeFiles("files", in.Files)
		if err != nil {
			return out, err
		}
		if sb, err = h.started(ctx, &sb); err != nil {
			return out, err
		}
		if _, err := h.guest.WriteFiles(ctx, caller(ctx), string(sb.ID), files); err != nil {
			return out, known(err)
		}
	}
	l, err := h.look(ctx, sb)
	if err != nil {
		return out, err
	}
	out = created{SandboxID: sandboxID(sb.ID), Status: l.status()}
	_, out.URL = h.published(&sb)
	if in.Command == nil || len(l.executions) == 0 {
		return out, nil
	}
	e := &l.executions[len(l.executions)-1]
	out.ExecutionID = executionID(e)
	if !e.Stdout.Off {
		out.StdoutStreamID, out.StdoutStreamURL = string(e.Stdout.ID), h.streamURL(e.Stdout, in.Stream.Timestamps)
	}
	if !e.Stderr.Off {
		out.StderrStreamID, out.StderrStreamURL = string(e.Stderr.ID), h.streamURL(e.Stderr, in.Stream.Timestamps)
	}
	return out, nil
}

// decodeFiles decodes files to write, and makes their paths absolute. Errors: Invalid, naming the
// property of the file in the request's list field.
func decodeFiles(field string, in []fileInput) ([]guest.FileContent, error) {
	out := make([]guest.FileContent, 0, len(in))
	for i, f := range in {
		if !isPath(f.Path) {
			return nil, sandbox.InvalidField(fmt.Sprintf("%s[%d].path", field, i), "must be set, without NUL characters")
		}
		content, err := base64.StdEncoding.DecodeString(f.Content)
		if err != nil {
			return nil, sandbox.InvalidField(fmt.Sprintf("%s[%d].content", field, i), "must be in base64")
		}
		out = append(out, guest.FileContent{Path: absolute(f.Path), Content: content})
	}
	return out, nil
}

// isPath reports whether p can be a path.
func isPath(p string) bool { return p != "" && !strings.ContainsRune(p, 0) }

// absolute resolves a path of a sandbox relative to its workspace.
func absolute(p string) string {
	if path.IsAbs(p) {
		return p
	}
	return path.Join(workspaceDir, p)
}

func (t timeouts) parse() (out sandbox.Timeouts, err error) {
	if out.Idle, err = duration("timeout.idle", t.Idle, idleDefault); err != nil {
		return out, err
	}
	if out.Execution, err = duration("timeout.execution", t.Execution, 0); err != nil {
		return out, err
	}
	out.Paused, err = duration("timeout.paused", t.Paused, 0)
	return out, err
}

// quantityMax is far above any host's capacity and far below what overflows.
const quantityMax = 1 << 60

func (in resources) parse() (out sandbox.Resources, err error) {
	for _, q := range []struct {
		field, text string
		to          *int64
		value       func(*resource.Quantity) int64
	}{
		{"resources.memory", in.Memory, &out.MemoryBytes, (*resource.Quantity).Value},
		{"resources.cpu", in.CPU, &out.CPUMilli, (*resource.Quantity).MilliValue},
		{"resources.disk", in.Disk, &out.DiskBytes, (*resource.Quantity).Value},
	} {
		if q.text == "" {
			continue
		}
		v, err := resource.ParseQuantity(strings.TrimSpace(q.text))
		if err != nil || v.Sign() <= 0 || v.CmpInt64(quantityMax) > 0 {
			return out, sandbox.InvalidField(q.field, "%q is not a quantity such as 512Mi, 1.5Gi, 500m or 2", q.text)
		}
		*q.to = q.value(&v)
	}
	return out, nil
}

func (h *sandboxes) get(w http.ResponseWriter, r *http.Request) error {
	find := h.found
	if r.URL.Query().Get("includeDeleted") == "true" {
		find = h.any
	}
	sb, err := find(r)
	if err != nil {
		return err
	}
	l, err := h.reached(r, sb)
	if err != nil {
		return err
	}
	runtimes, err := h.runtimes.available(r.Context())
	if err != nil {
		return err
	}
	out, err := h.info(r.Context(), &l, runtimes)
	if err != nil {
		return err
	}
	return answer(w, out)
}

func (h *sandboxes) status(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.found(r)
	if err != nil {
		return err
	}
	l, err := h.reached(r, sb)
	if err != nil {
		return err
	}
	out := struct {
		SandboxID string `json:"sandboxId"`
		Status    string `json:"status"`
		ExitCode  *int   `json:"exitCode,omitempty"`
	}{SandboxID: sandboxID(l.ID), Status: l.status()}
	if e := l.own(); e != nil {
		out.ExitCode = e.ExitCode
	}
	return answer(w, out)
}

func (h *sandboxes) destroy(w http.ResponseWriter, r *http.Request) error {
	sb, err := h.any(r)
	if err != nil {
		return err
	}
	if _, err := h.svc.Destroy(r.Context(), caller(r.Context()), string(sb.ID), sandbox.CauseDestroyed); err != nil {
		return err
	}
	return answerDone(w)
}
