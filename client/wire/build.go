package wire

// ImageBuild says what image to build; it is the part "options" of POST /v1/images/build.
type ImageBuild struct {
	Tag            string            `json:"tag,omitempty" doc:"The image's name, as in app, app:v1 or registry.example.com/team/app:v1. Without one it is known by its digest, and kept for an hour unless something uses it." example:"app:v1"`
	Dockerfile     string            `json:"dockerfile,omitempty" doc:"Path of the Dockerfile in the context; Dockerfile when omitted. A part dockerfile is used instead of the file."`
	BuildArgs      map[string]string `json:"build_args,omitempty" doc:"Values of ARGs; they are no secrets."`
	Target         string            `json:"target,omitempty" doc:"The stage to build, by name or number; the last when omitted."`
	NoCache        bool              `json:"no_cache,omitempty" doc:"Make every layer anew."`
	Network        bool              `json:"network,omitempty" doc:"Let RUN reach the network."`
	Push           bool              `json:"push,omitempty" doc:"Push the image to the registry that tag names."`
	Resources      *Resources        `json:"resources,omitempty" doc:"Limits of each RUN; the server's for builds where omitted."`
	TimeoutSeconds int               `json:"timeout_seconds,omitempty" minimum:"0" doc:"How long the build may take, the waiting included; the server's limit when omitted."`

	WaitForQuotaSeconds int `json:"wait_for_quota_seconds,omitempty" minimum:"0" maximum:"600" doc:"If the quota of the workspace, or the server, is full, wait up to this long, in the workspace's queue. 0: refuse the build at once, with 429."`
}

// BuildDone is the type of a build's last message, unless that is StreamError; the
// others are the kinds of events of package build, and ping.
const BuildDone = "done"

// ImageBuildMessage is a message about a build.
type ImageBuildMessage struct {
	Type        string `json:"type" enum:"step,output,progress,warning,done,error,ping" doc:"What it is."`
	Step        int    `json:"step,omitempty" doc:"Of step: its number, from 1."`
	Steps       int    `json:"steps,omitempty" doc:"Of step: how many there are."`
	Stage       string `json:"stage,omitempty" doc:"Of step: the name or number of its stage."`
	Line        int    `json:"line,omitempty" doc:"Of step and error: the line of the Dockerfile."`
	Instruction string `json:"instruction,omitempty" doc:"Of step and error: the instruction."`
	Cached      bool   `json:"cached,omitempty" doc:"Of step: its layer was there; it comes after one without."`
	Data        []byte `json:"data,omitempty" doc:"Of output: bytes that a command wrote, base64."`
	Phase       string `json:"phase,omitempty" doc:"Of progress: waiting, pulling, writing or pushing, among others."`
	Done        int64  `json:"done,omitempty" doc:"Of progress: how much is done. The phase determines its unit: bytes of layers while pulling and pushing, else packages or files."`
	Total       int64  `json:"total,omitempty" doc:"Of progress: what done counts up to; absent when it is not known. It may grow."`
	Message     string `json:"message,omitempty" doc:"Of progress, warning and error: what happens."`
	Code        string `json:"code,omitempty" doc:"Of error: the error's code."`
	ExitCode    int    `json:"exit_code,omitempty" doc:"Of error: the exit code of the command that failed."`
	Image       *Image `json:"image,omitempty" doc:"Of done: the image."`
}

// ImagePush says which image to push where.
type ImagePush struct {
	Image string `json:"image" minLength:"1" doc:"An image that the workspace has built." example:"app:v1"`
	To    string `json:"to,omitempty" doc:"Where to, with the registry; the image's own name when omitted." example:"registry.example.com/team/app:v1"`
}
