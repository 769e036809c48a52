package wire

import "time"

// StartExecution is the body of POST /v1/sandboxes/{sandbox}/executions. Exactly one
// of Command and Shell is given.
type StartExecution struct {
	ExecutionCommand
	WaitSeconds int `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"Answer when it has ended, but after this many seconds at the latest. 0: answer as soon as it has started."`
}

// ExecutionCommand says what an execution runs and what becomes of its output.
type ExecutionCommand struct {
	Kind           string            `json:"kind,omitempty" enum:"exec,job" doc:"exec (when omitted): its exit code is your matter, it is completed with any. job: it failed when its exit code is not 0."`
	Command        []string          `json:"command,omitempty" nullable:"false" maxItems:"4096" doc:"Program and arguments, run without a shell." example:"[\"npm\",\"install\"]"`
	Shell          string            `json:"shell,omitempty" maxLength:"131071" doc:"A script, run by /bin/bash -c, or by /bin/sh -c in an image without bash."`
	Files          []ExecutionFile   `json:"files,omitempty" nullable:"false" maxItems:"1000" doc:"Files written before it starts."`
	Cwd            string            `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory; the image's when omitted."`
	Env            map[string]string `json:"env,omitempty" doc:"Environment variables in addition to the sandbox's."`
	User           string            `json:"user,omitempty" maxLength:"256" doc:"User to run as: name, uid, name:group or uid:gid; the image's when omitted."`
	TimeoutSeconds int               `json:"timeout_seconds,omitempty" minimum:"0" maximum:"7776000" doc:"It and its children are ended after this. 0 or omitted: the sandbox's execution timeout, or none."`
	Limits         *ExecLimits       `json:"limits,omitempty" doc:"Limits of this command and its processes, tighter than the sandbox's."`
	Stdin          bool              `json:"stdin,omitempty" doc:"Make a stream for its standard input; otherwise the input is empty."`
	StdinStreamID  string            `json:"stdin_stream_id,omitempty" maxLength:"64" doc:"A stream made before by POST /v1/streams that it reads as its standard input."`
	TTY            *TTYSize          `json:"tty,omitempty" doc:"Run it on a terminal of this size. Its output is one stream; its input comes by attaching."`
	Combined       bool              `json:"combined,omitempty" doc:"One stream for stdout and stderr."`
	Stdout         string            `json:"stdout,omitempty" enum:"keep,ignore" doc:"ignore keeps nothing of it; keep when omitted."`
	Stderr         string            `json:"stderr,omitempty" enum:"keep,ignore" doc:"ignore keeps nothing of it; keep when omitted."`
}

// ExecutionFile is a file written before an execution starts.
type ExecutionFile struct {
	Path    string `json:"path" minLength:"1" maxLength:"4096" doc:"Absolute, or relative to the working directory. Missing parent directories are made."`
	Content Base64 `json:"content" doc:"Its content, in base64."`
}

// Execution is a command in a sandbox, kept after its end with its output.
type Execution struct {
	ID            string         `json:"id" format:"uuid" doc:"Its identifier."`
	SandboxID     string         `json:"sandbox_id" format:"uuid" doc:"The sandbox it runs in."`
	Kind          string         `json:"kind" enum:"exec,job,main" doc:"How its end is judged. main: the image's own command, which starts with the sandbox; it is completed with any exit code."`
	Command       []string       `json:"command" nullable:"false" doc:"Program and arguments, up to 4096 bytes; the last argument kept of a longer command ends with an ellipsis (U+2026)."`
	State         ExecutionState `json:"state" enum:"queued,running,completed,failed,timeout,cancelled" doc:"Where it is in its life; the last four are for good."`
	ExitCode      *int           `json:"exit_code,omitempty" doc:"Its exit code, 128 + signal when a signal ended it; absent as long as it is not known, for good when it cannot be known."`
	LimitExceeded string         `json:"limit_exceeded,omitempty" enum:"memory,cpu,file_size,processes" doc:"The limit of the request that it exceeded; it has failed then, unless its exit code is 0. Absent when there was none."`
	Error         string         `json:"error,omitempty" doc:"Why it failed, when not by its exit code."`
	TTY           bool           `json:"tty" doc:"It runs on a terminal."`
	OneShot       bool           `json:"one_shot" doc:"Its sandbox ends with it."`
	Cancelling    bool           `json:"cancelling" doc:"It was asked to end."`
	StdinStreamID string         `json:"stdin_stream_id,omitempty" doc:"The stream it reads. The id is a secret: it permits writing."`
	Stdout        OutputStream   `json:"stdout" doc:"Its standard output."`
	Stderr        OutputStream   `json:"stderr" doc:"Its standard error; the same stream as stdout with a terminal, or when combined."`
	CreatedBy     string         `json:"created_by" doc:"The user who started it."`
	CreatedAt     time.Time      `json:"created_at" doc:"When it was asked for."`
	StartedAt     *time.Time     `json:"started_at,omitempty" doc:"When it started; absent until then."`
	EndedAt       *time.Time     `json:"ended_at,omitempty" doc:"When it ended; absent until then."`
	DurationMS    int64          `json:"duration_ms" doc:"Milliseconds from its start to its end, as measured in the sandbox."`
	Scan          *CodeScan      `json:"scan,omitempty" doc:"In the answer to its start: what the scan found that the policy of the workspace (code_scan) demands; absent without such a policy, and for a request without code."`
}

// OutputStream is the stream of an execution's output.
type OutputStream struct {
	StreamID  string `json:"stream_id" doc:"GET /v1/streams/{stream} reads it. The id is a secret: it permits reading. Empty for an ignored output."`
	SizeBytes int64  `json:"size_bytes" doc:"The number of bytes stored so far."`
	Truncated bool   `json:"truncated" doc:"Further bytes were dropped."`
}

// CancelExecution is the body of POST /v1/executions/{execution}/cancel.
type CancelExecution struct {
	Force bool `json:"force,omitempty" doc:"Kill it at once. Otherwise it gets SIGTERM, and 5 seconds until it is killed."`
}

// Stream is an input stream for a command to come.
type Stream struct {
	ID string `json:"id" doc:"PUT /v1/streams/{stream} writes to it. The id is a secret: it permits writing."`
}

// UpdateEnv is the body of PATCH /v1/sandboxes/{sandbox}/env.
type UpdateEnv map[string]*string

// Env is the environment that callers gave a sandbox.
type Env struct {
	Env map[string]string `json:"env" doc:"All variables that callers have set, with their values."`
}
