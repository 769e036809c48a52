package wire

import "time"

// Exec is the body of the exec routes. Exactly one of Command, Shell and Program is given.
type Exec struct {
	Command        []string          `json:"command,omitempty" maxItems:"4096" doc:"Program and arguments, run without a shell." example:"[\"python3\",\"-c\",\"print(1)\"]"`
	Shell          string            `json:"shell,omitempty" maxLength:"131071" doc:"A script, run by /bin/bash -c, or by /bin/sh -c in an image without bash." example:"echo hi | wc -c"`
	Program        *Program          `json:"program,omitempty" doc:"A program, run from its file in a new interpreter."`
	Cwd            string            `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory; the image's when omitted."`
	Env            map[string]string `json:"env,omitempty" doc:"Environment variables in addition to the sandbox's."`
	User           string            `json:"user,omitempty" maxLength:"256" doc:"User to run as: name, uid, name:group or uid:gid; the image's when omitted."`
	Stdin          string            `json:"stdin,omitempty" doc:"What the command reads from its standard input; empty when omitted."`
	TimeoutSeconds int               `json:"timeout_seconds,omitempty" minimum:"0" doc:"The command and its children are ended after this; 60 when omitted, 3600 at most, unless the server is set otherwise."`
	MaxOutputBytes int               `json:"max_output_bytes,omitempty" minimum:"0" doc:"Bytes kept of each of stdout and stderr; 1 MiB when omitted, 16 MiB at most, unless the server is set otherwise. Further output is dropped, and the command goes on. Not for streams."`
	Limits         *ExecLimits       `json:"limits,omitempty" doc:"Limits of this command and its processes, tighter than the sandbox's."`
	Encoding       string            `json:"encoding,omitempty" enum:"utf8,base64" doc:"How stdout and stderr are given: utf8 (default; bytes that are not UTF-8 are replaced) or base64."`
}

// Program is a program that is written to a file, and run by the interpreter of its language. A policy of the
// workspace scans its code.
type Program struct {
	Code           string    `json:"code" maxLength:"1048576" doc:"The program." example:"print(6 * 7)"`
	Language       string    `json:"language,omitempty" enum:"python,javascript,bash" doc:"python when omitted."`
	Path           string    `json:"path" minLength:"1" maxLength:"4096" doc:"The absolute path of the file that the server writes the program to, for the user of the command. Missing parent directories are made. Programs import from its directory." example:"/tmp/code/main.py"`
	AllowedImports *[]string `json:"allowed_imports,omitempty" nullable:"false" maxItems:"1000" doc:"The packages that the program itself may import, by their top-level names; all when omitted. An import of another is an error in the program. It catches mistakes, and is no boundary. Not for bash."`
}

// ExecLimits are limits of one command and all its processes. A limit that is omitted or 0 is none.
// A command that exceeds one is killed with its processes.
type ExecLimits struct {
	Memory     string `json:"memory,omitempty" maxLength:"32" doc:"The sum of the resident memory of its processes: 16Mi to the sandbox's memory." example:"256Mi"`
	CPUSeconds int    `json:"cpu_seconds,omitempty" minimum:"0" doc:"The sum of the processor time of its processes." example:"10"`
	FileSize   string `json:"file_size,omitempty" maxLength:"32" doc:"The size of each file that it writes: at most the sandbox's disk." example:"10Mi"`
	Processes  int    `json:"processes,omitempty" minimum:"0" doc:"Its processes at a time, itself included; threads do not count." example:"16"`
}

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode        int       `json:"exit_code" doc:"Exit code; 128 + signal when a signal ended it."`
	Signal          int       `json:"signal,omitempty" doc:"The signal that ended it; absent when it exited by itself."`
	TimedOut        bool      `json:"timed_out" doc:"It was ended because its time was up."`
	LimitExceeded   string    `json:"limit_exceeded,omitempty" enum:"memory,cpu,file_size,processes" doc:"The limit of the request that it exceeded, and that ended it; absent when there was none."`
	Stdout          string    `json:"stdout" doc:"Standard output, in the encoding asked for."`
	Stderr          string    `json:"stderr" doc:"Standard error, in the encoding asked for."`
	StdoutTruncated bool      `json:"stdout_truncated" doc:"There was more standard output than max_output_bytes, or than the server had memory for."`
	StderrTruncated bool      `json:"stderr_truncated" doc:"There was more standard error than max_output_bytes, or than the server had memory for."`
	DurationMS      int64     `json:"duration_ms" doc:"Milliseconds from its start to its end."`
	Scan            *CodeScan `json:"scan,omitempty" doc:"What the scan found that the policy of the workspace (code_scan) demands; absent without such a policy, and for a request without code."`
}

// The types of stream messages.
const (
	StreamStarted   = "started"
	StreamStdout    = "stdout"
	StreamStderr    = "stderr"
	StreamExit      = "exit"
	StreamError     = "error"
	StreamPing      = "ping"
	StreamResize    = "resize"
	StreamSignal    = "signal"
	StreamStdinEOF  = "stdin_eof"
	ChannelStdin    = byte(0)
	ChannelStdout   = byte(1)
	ChannelStderr   = byte(2)
	AttachReadLimit = 1 << 20 // bytes of one WebSocket message from the client
)

// StreamMessage is one line of an exec stream, or one text message of an attach
// WebSocket from the server.
type StreamMessage struct {
	Type          string     `json:"type" enum:"started,stdout,stderr,exit,error,ping" doc:"started comes first; exit or error comes last; a ping, in between, only says that the command is still there."`
	Data          []byte     `json:"data,omitempty" doc:"stdout, stderr: the bytes, in base64."`
	PID           int        `json:"pid,omitempty" doc:"started: process id inside the sandbox."`
	ProcessID     string     `json:"process_id,omitempty" doc:"started: the agent's identifier of the process."`
	StartedAt     *time.Time `json:"started_at,omitempty" doc:"started: when."`
	Scan          *CodeScan  `json:"scan,omitempty" doc:"started: what the scan found that the policy of the workspace (code_scan) demands; absent without such a policy, and for a request without code."`
	ExitCode      *int       `json:"exit_code,omitempty" doc:"exit: exit code; 128 + signal when a signal ended it."`
	Signal        int        `json:"signal,omitempty" doc:"exit: the signal that ended it."`
	TimedOut      bool       `json:"timed_out,omitempty" doc:"exit: its time was up."`
	LimitExceeded string     `json:"limit_exceeded,omitempty" enum:"memory,cpu,file_size,processes" doc:"exit: the limit of the request that it exceeded."`
	DurationMS    *int64     `json:"duration_ms,omitempty" doc:"exit: milliseconds from start to end."`
	Code          string     `json:"code,omitempty" doc:"error: the error's code. How the command ended is not known."`
	Message       string     `json:"message,omitempty" doc:"error: what happened."`
}

// AttachStart is the first message on an attach WebSocket.
type AttachStart struct {
	Command        []string          `json:"command,omitempty"`
	Shell          string            `json:"shell,omitempty"`
	Cwd            string            `json:"cwd,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	User           string            `json:"user,omitempty"`
	TimeoutSeconds int               `json:"timeout_seconds,omitempty"` // 0: no limit
	TTY            *TTYSize          `json:"tty,omitempty"`
	Stdin          bool              `json:"stdin,omitempty"`
	Limits         *ExecLimits       `json:"limits,omitempty"`
}

// TTYSize is a terminal's size in characters.
type TTYSize struct {
	Rows uint16 `json:"rows" doc:"Lines of the terminal."`
	Cols uint16 `json:"cols" doc:"Characters of a line."`
}

// AttachControl is a text message from the client on an attach WebSocket.
type AttachControl struct {
	Type   string `json:"type"`
	Rows   uint16 `json:"rows,omitempty"`
	Cols   uint16 `json:"cols,omitempty"`
	Signal int    `json:"signal,omitempty"`
}
