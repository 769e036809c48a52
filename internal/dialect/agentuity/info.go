package agentuity

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

// Labels in which the dialect stores properties of a sandbox.
const (
	labelMode      = "agentuity/mode"
	labelName      = "agentuity/name"
	labelProject   = "agentuity/project"
	labelRuntime   = "agentuity/runtime"
	labelRuntimeID = "agentuity/runtime-id"
	labelTimes     = "agentuity/timestamps" // for the output of a one-shot command
)

// metadataValues is the entry of a sandbox's metadata with the values, as JSON, that are not
// strings; our metadata has only strings.
const metadataValues = "agentuity/values"

// The modes.
const (
	modeInteractive = "interactive"
	modeOneShot     = "oneshot"
)

// The states.
const (
	statusCreating   = "creating"
	statusIdle       = "idle"
	statusRunning    = "running"
	statusPaused     = "paused"
	statusStopping   = "stopping"
	statusSuspended  = "suspended"
	statusTerminated = "terminated"
	statusFailed     = "failed"
	statusDeleted    = "deleted"
)

// executionsMax is the limit of counting the executions of a sandbox.
const executionsMax = 1000

type ref struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// runtimeRef identifies the runtime of a sandbox.
type runtimeRef struct {
	ref
	IconURL    string   `json:"iconUrl,omitempty"`
	BrandColor string   `json:"brandColor,omitempty"`
	Tags       []string `json:"tags,omitempty"`
}

// user is the creator of a sandbox. We do not know the user's name.
type user struct {
	ID string `json:"id"`
}

type timeouts struct {
	Idle      string `json:"idle,omitempty"`
	Execution string `json:"execution,omitempty"`
	Paused    string `json:"paused,omitempty"`
}

type resources struct {
	Memory string `json:"memory,omitempty"`
	CPU    string `json:"cpu,omitempty"`
	Disk   string `json:"disk,omitempty"`
}

type commandInfo struct {
	Exec []string `json:"exec"`
	Mode string   `json:"mode,omitempty"`
}

// info is a sandbox in the form of the dialect.
type info struct {
	SandboxID       string         `json:"sandboxId"`
	Identifier      string         `json:"identifier"`
	Name            string         `json:"name,omitempty"`
	Description     string         `json:"description,omitempty"`
	Status          string         `json:"status"`
	Mode            string         `json:"mode"`
	CreatedAt       string         `json:"createdAt"`
	Region          string         `json:"region"`
	Runtime         *runtimeRef    `json:"runtime,omitempty"`
	Snapshot        *madeFrom      `json:"snapshot,omitempty"`
	Executions      int            `json:"executions"`
	ExitCode        *int           `json:"exitCode,omitempty"`
	StdoutStreamURL string         `json:"stdoutStreamUrl,omitempty"`
	StderrStreamURL string         `json:"stderrStreamUrl,omitempty"`
	Dependencies    []string       `json:"dependencies,omitempty"`
	Packages        []string       `json:"packages,omitempty"`
	Metadata        map[string]any `json:"metadata,omitempty"`
	Resources       resources      `json:"resources"`
	NetworkEnabled  bool           `json:"networkEnabled"`
	NetworkPort     int            `json:"networkPort,omitempty"`
	URL             string         `json:"url,omitempty"`
	User            *user          `json:"user,omitempty"`
	Project         *ref           `json:"project,omitempty"`
	Org             ref            `json:"org"`
	Timeout         timeouts       `json:"timeout"`
	Command         *commandInfo   `json:"command,omitempty"`
	usageInfo
}

// look is a sandbox with its executions, newest first.
type look struct {
	sandbox.Sandbox
	executions []sandbox.Execution
}

func (h *finder) look(ctx context.Context, sb sandbox.Sandbox) (look, error) {
	list, err := h.executions.List(ctx, caller(ctx), string(sb.ID), sandbox.Exec, page.Request{Limit: executionsMax})
	return look{sb, list.Items}, err
}

// live returns the newest execution that has not ended.
func (l *look) live() *sandbox.Execution {
	for i := range l.executions {
		if !l.executions[i].State.Ended() {
			return &l.executions[i]
		}
	}
	return nil
}

// own returns the execution for which a one-shot sandbox was made.
func (l *look) own() *sandbox.Execution {
	for i := range l.executions {
		if l.executions[i].OneShot {
			return &l.executions[i]
		}
	}
	return nil
}

// first returns the execution of the command that the sandbox was created with; nil if there was no
// command or its record is gone. Only this execution is recorded before the sandbox runs.
func (l *look) first() *sandbox.Execution {
	if l.Labels[labelMode] == "" || len(l.executions) == 0 {
		return nil
	}
	e := &l.executions[len(l.executions)-1]
	if l.StartedAt.IsZero() || e.CreatedAt.Before(l.StartedAt) {
		return e
	}
	return nil
}

// deleted reports whether a sandbox is deleted in the dialect: a caller destroyed it.
func deleted(sb *sandbox.Sandbox) bool {
	return sb.State == sandbox.Destroyed && sb.Cause != nil &&
		(sb.Cause.Code == sandbox.CauseDestroyed || sb.Cause.Code == sandbox.CauseReplaced)
}

// status returns the dialect's status for the state of a sandbox.
func (l *look) status() string {
	switch l.State {
	case sandbox.Provisioning:
		return statusCreating
	case sandbox.Pausing:
		return statusPaused
	case sandbox.Paused, sandbox.Resuming:
		return statusSuspended
	case sandbox.Destroying:
		return statusStopping
	case sandbox.Failed:
		return statusFailed
	case sandbox.Destroyed:
		switch own := l.own(); {
		case deleted(&l.Sandbox):
			return statusDeleted
		case own != nil && own.State.Ended() && own.ExitCode == nil:
			return statusFailed // for any other status the clients assume that the command exited with 0
		}
		return statusTerminated
	}
	switch {
	case l.live() != nil:
		return statusRunning
	case l.own() != nil: // the sandbox ends with it
		return statusStopping
	default:
		return statusIdle
	}
}

// info describes a sandbox; runtimes are all runtimes.
func (h *sandboxes) info(ctx context.Context, l *look, runtimes []runtime) (out info, err error) {
	sb := &l.Sandbox
	out = info{
		SandboxID: sandboxID(sb.ID), Identifier: identifier(sb), Name: sb.Labels[labelName], Description: sb.Description,
		Status: l.status(), Mode: mode(sb), CreatedAt: timestamp(sb.CreatedAt), Region: region, Executions: len(l.executions),
		Dependencies: sb.AptPackages, Packages: sb.NpmPackages, Metadata: metadata(sb.Metadata),
		Resources: resourcesOf(sb.Resources), Org: org(sb.Workspace),
		Timeout: timeouts{Idle: show(sb.Timeouts.Idle), Execution: show(sb.Timeouts.Execution), Paused: show(sb.Timeouts.Paused)},
	}
	if rt := ofImage(runtimes, sb.Image); rt != nil {
		out.Runtime = &runtimeRef{ref{rt.ID, rt.Name}, rt.IconURL, rt.BrandColor, rt.Tags}
	} else if sb.Labels[labelRuntimeID] != "" { // an image of a registry
		out.Runtime = &runtimeRef{ref: ref{sb.Labels[labelRuntimeID], sb.Labels[labelRuntime]}}
	}
	if sb.CreatedBy != "" {
		out.User = &user{string(sb.CreatedBy)}
	}
	if p := sb.Labels[labelProject]; p != "" {
		out.Project = &ref{p, p}
	}
	out.NetworkEnabled = sb.Network.Enabled
	out.NetworkPort, out.URL = h.published(sb)
	if e := l.own(); e != nil {
		out.ExitCode = e.ExitCode
		times := sb.Labels[labelTimes] != ""
		out.StdoutStreamURL, out.StderrStreamURL = h.streamURL(e.Stdout, times), h.streamURL(e.Stderr, times)
	}
	if e := l.first(); e != nil {
		out.Command = &commandInfo{Exec: e.Argv, Mode: mode(sb)}
	}
	used, err := h.svc.Usage(ctx, caller(ctx), string(sb.ID))
	if err != nil {
		return out, err
	}
	out.usageInfo = usageOf(&used)
	out.Snapshot, err = h.origin(ctx, sb)
	return out, err
}

// resourcesOf returns quantities as text; zeros are omitted.
func resourcesOf(r sandbox.Resources) (out resources) {
	if r.MemoryBytes > 0 {
		out.Memory = resource.NewQuantity(r.MemoryBytes, resource.BinarySI).String()
	}
	if r.CPUMilli > 0 {
		out.CPU = resource.NewMilliQuantity(r.CPUMilli, resource.DecimalSI).String()
	}
	if r.DiskBytes > 0 {
		out.Disk = resource.NewQuantity(r.DiskBytes, resource.BinarySI).String()
	}
	return out
}

func mode(sb *sandbox.Sandbox) string {
	if m := sb.Labels[labelMode]; m != "" {
		return m
	}
	return modeInteractive
}

func org(ws sandbox.WorkspaceID) ref { return ref{external(prefixOrg, ws), string(ws)} }

// identifier returns the DNS label by which the sandbox is reached from outside.
func identifier(sb *sandbox.Sandbox) string {
	if len(sb.Published) > 0 {
		return sb.Published[0].Label
	}
	return sb.HostLabel
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// show formats a duration; "" for none.
func show(v time.Duration) string {
	if v == 0 {
		return ""
	}
	return v.String()
}

// metadata converts our metadata, whose values are strings, to the dialect's.
func metadata(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	var others map[string]any
	if json.Unmarshal([]byte(m[metadataValues]), &others) == nil {
		delete(out, metadataValues)
		maps.Copy(out, others)
	}
	return out
}

// ourMetadata is the inverse of metadata.
func ourMetadata(m map[string]any) (map[string]string, error) {
	out, others := make(map[string]string, len(m)), map[string]any{}
	for k, v := range m {
		if s, ok := v.(string); ok && k != metadataValues {
			out[k] = s
		} else {
			others[k] = v
		}
	}
	if len(others) == 0 {
		return out, nil
	}
	b, err := json.Marshal(others)
	if err != nil {
		return nil, sandbox.Wrap(sandbox.Invalid, err, "the metadata cannot be stored")
	}
	out[metadataValues] = string(b)
	return out, nil
}
