package wire

import "time"

// RunCode is the body of the routes that run code.
type RunCode struct {
	Code           string      `json:"code" maxLength:"1048576" doc:"The code." example:"import math; math.pi"`
	Language       string      `json:"language,omitempty" maxLength:"64" doc:"python (default), javascript, typescript, bash, r or java. The code runs in the default context of the language, which its first run makes. Not with context_id." example:"python"`
	ContextID      string      `json:"context_id,omitempty" maxLength:"64" doc:"The context in which the code runs. The default context of a language has the language as its id."`
	TimeoutSeconds int         `json:"timeout_seconds,omitempty" minimum:"0" doc:"The code is interrupted after this; as for exec when omitted. Code that does not end then loses its interpreter, and the context its state. Waiting for earlier code in the context does not count."`
	Limits         *ExecLimits `json:"limits,omitempty" doc:"Limits of the context while the code runs, in place of the limits of the context. memory and processes count all processes of the context, its interpreter and what earlier code has left included: code that exceeds them loses its interpreter. cpu_seconds counts from the start of the code, and file_size holds for the files that it writes: code that exceeds them is interrupted, and the context keeps its state."`
}

// CodeResult is the result of a run: its status, output, values and error.
type CodeResult struct {
	ContextID      string       `json:"context_id" doc:"The context in which the code ran."`
	Restarted      bool         `json:"restarted" doc:"The context's interpreter had ended and was started again: the state of earlier code is lost."`
	Status         string       `json:"status" enum:"ok,error,interrupted,timed_out,lost" doc:"error: the code ended with an error; lost: its interpreter ended."`
	LimitExceeded  string       `json:"limit_exceeded,omitempty" enum:"memory,cpu,file_size,processes" doc:"The limit that it exceeded; absent when there was none."`
	ExecutionCount int          `json:"execution_count" doc:"The number of the execution in its interpreter; 0 if it has none, as in Bash."`
	DurationMS     int64        `json:"duration_ms" doc:"Milliseconds from its start to its end."`
	Stdout         string       `json:"stdout" doc:"Standard output."`
	Stderr         string       `json:"stderr" doc:"Standard error."`
	Results        []CodeOutput `json:"results" nullable:"false" doc:"The value of the last expression, and all values that the code displayed, in their order."`
	Error          *CodeError   `json:"error,omitempty" doc:"The code's error, if it has one."`
	Truncated      bool         `json:"truncated" doc:"There was more output than a run may have (16 MiB); the rest was dropped."`
	Scan           *CodeScan    `json:"scan,omitempty" doc:"What the scan found that the policy of the workspace (code_scan) demands; absent without such a policy, and for a request without code."`
}

// CodeOutput is a value in one or more formats.
type CodeOutput struct {
	Main      bool           `json:"main" doc:"It is the value of the last expression; the code displayed all other values."`
	Data      map[string]any `json:"data" doc:"The value by MIME type: text/plain, text/html, text/markdown, text/latex, image/svg+xml as text; image/png, image/jpeg, application/pdf as text in base64; application/json and other JSON types as JSON."`
	DisplayID string         `json:"display_id,omitempty" doc:"Names a value that the code may replace later."`
	Omitted   []string       `json:"omitted,omitempty" nullable:"false" doc:"MIME types without their values, which are too large."`
}

// CodeError is an error of code.
type CodeError struct {
	Name      string   `json:"name" doc:"The error's type, such as ZeroDivisionError. In Bash ExitStatus."`
	Value     string   `json:"value" doc:"The error's message. In Bash the exit status."`
	Traceback []string `json:"traceback" nullable:"false" doc:"The traceback; lines may have escape sequences for colours."`
}

// The types of code events.
const (
	CodeStarted = "started"
	CodeStdout  = "stdout"
	CodeStderr  = "stderr"
	CodeValue   = "result"
	CodeFailed  = "error"
	CodeEnd     = "end"
	CodeFailure = "failure"
)

// CodeEvent is one line of the stream of code under way.
type CodeEvent struct {
	Type           string      `json:"type" enum:"started,stdout,stderr,result,error,end,failure,ping" doc:"started comes first; end or failure comes last; a ping, in between, only says that the code is still there."`
	ContextID      string      `json:"context_id,omitempty" doc:"started: the context."`
	Restarted      bool        `json:"restarted,omitempty" doc:"started: the state of earlier code is lost."`
	Scan           *CodeScan   `json:"scan,omitempty" doc:"started: what the scan found that the policy of the workspace (code_scan) demands; absent without such a policy, and for a request without code."`
	Text           string      `json:"text,omitempty" doc:"stdout, stderr: the text."`
	Result         *CodeOutput `json:"result,omitempty" doc:"result: the value."`
	Update         bool        `json:"update,omitempty" doc:"result: it replaces the earlier value with the same display_id."`
	Error          *CodeError  `json:"error,omitempty" doc:"error: the code's error."`
	Status         string      `json:"status,omitempty" doc:"end: how the code ended."`
	LimitExceeded  string      `json:"limit_exceeded,omitempty" enum:"memory,cpu,file_size,processes" doc:"end: the limit that the code exceeded."`
	ExecutionCount int         `json:"execution_count,omitempty" doc:"end: the number of the execution in its interpreter."`
	DurationMS     *int64      `json:"duration_ms,omitempty" doc:"end: milliseconds from start to end."`
	Truncated      bool        `json:"truncated,omitempty" doc:"end: output was dropped."`
	Code           string      `json:"code,omitempty" doc:"failure: the error's code. How the code ended is not known."`
	Message        string      `json:"message,omitempty" doc:"failure: what happened."`
}

// CreateContext is the body for making a context.
type CreateContext struct {
	Language string            `json:"language,omitempty" maxLength:"64" doc:"python (default), javascript, typescript, bash, r or java."`
	Cwd      string            `json:"cwd,omitempty" maxLength:"4096" doc:"Working directory; the image's when omitted."`
	Env      map[string]string `json:"env,omitempty" doc:"Environment variables in addition to the sandbox's."`
	Limits   *ExecLimits       `json:"limits,omitempty" doc:"Limits for code that has none of its own; see the limits of code."`
}

// Context is an interpreter that keeps its state between runs of code.
type Context struct {
	ID        string      `json:"id" doc:"The context's id, unique in its sandbox. A fork of the sandbox has contexts with the same ids."`
	Language  string      `json:"language" doc:"The language."`
	Cwd       string      `json:"cwd" doc:"The directory in which the interpreter was started."`
	State     string      `json:"state" enum:"idle,busy,ended" doc:"busy while code runs; ended if the interpreter ended by itself: the next run starts it again, without its state."`
	CreatedAt time.Time   `json:"created_at" doc:"When it was made."`
	Restarts  int         `json:"restarts" doc:"How often its interpreter was started again."`
	Limits    *ExecLimits `json:"limits,omitempty" doc:"The limits for code that has none of its own; absent when there are none."`
}

// ScanCode is the body of POST /v1/sandboxes/{sandbox}/code/scan.
type ScanCode struct {
	Code           string    `json:"code" maxLength:"1048576" doc:"The code."`
	Language       string    `json:"language,omitempty" enum:"python,javascript,typescript,bash" doc:"python when omitted. The sandbox must have the interpreter of Python; Node.js for JavaScript, and 22.13 or newer for TypeScript; nothing for Bash."`
	AllowedImports *[]string `json:"allowed_imports,omitempty" nullable:"false" maxItems:"1000" doc:"The packages that the code may import, by their top-level names; all when omitted."`
}

// CodeScan is the result of a scan of code.
type CodeScan struct {
	Findings   []Finding `json:"findings" nullable:"false" doc:"The constructs that deserve a look, by their places in the code; 200 at most."`
	Truncated  bool      `json:"truncated" doc:"There are more findings."`
	NotScanned string    `json:"not_scanned,omitempty" doc:"Why the code was not scanned, in the answer of a call that ran it all the same; absent when it was scanned."`
}

// Finding is a construct in code that deserves a look.
type Finding struct {
	Line     int    `json:"line" doc:"Its line, from 1."`
	Column   int    `json:"column" doc:"Its column, from 1."`
	Rule     string `json:"rule" enum:"process,network,file_delete,eval,native,environment,import,syntax" doc:"What it does. import: it imports a package that is not allowed. syntax: the code cannot be parsed, and was not scanned."`
	Severity string `json:"severity" enum:"high,medium,low" doc:"How much harm the rule's constructs can do."`
	Reason   string `json:"reason" doc:"What was found, for people."`
}
