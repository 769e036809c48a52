package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"time"

	"github.com/modbox/modbox/client/wire"
)

// ImageBuildOptions describe an image to build from a Dockerfile.
type ImageBuildOptions struct {
	// Tag is the image's name, as in app, app:v1 or registry.example.com/team/app:v1; without a name
	// the image is known by its digest and removed after an hour unless something uses it.
	Tag string
	// Path is the path of the Dockerfile in the context; "" is Dockerfile. Dockerfile, unless nil, is
	// its content instead.
	Path       string
	Dockerfile []byte
	// BuildArgs are values of ARGs.
	BuildArgs map[string]string
	// Target is the stage to build, by name or number; "" is the last.
	Target string
	// NoCache disables the layer cache. Network lets RUN reach the network. Push pushes the image to
	// the registry in Tag.
	NoCache, Network, Push bool
	// Resources limit each RUN; empty fields are the server's default for builds.
	Resources Resources
	// Timeout bounds the build, in whole seconds; 0 is the server's limit.
	Timeout time.Duration
	// WaitForQuota bounds the time for which the server waits for the workspace's quota, in whole
	// seconds up to 10 minutes, within Timeout; 0 does not wait.
	WaitForQuota time.Duration
}

// ImageBuildEvent reports the progress of a build.
type ImageBuildEvent struct {
	// Type is "step", "output", "warning" or "progress"; later servers may add types.
	Type string `json:"type"`
	// Step counts the instructions from 1 to Steps. Instruction stands on Line, in Stage. An event
	// with Cached follows the event of the same instruction if its layer was in the cache.
	Step        int    `json:"step"`
	Steps       int    `json:"steps"`
	Stage       string `json:"stage"`
	Line        int    `json:"line"`
	Instruction string `json:"instruction"`
	Cached      bool   `json:"cached"`
	// Data is output of a command.
	Data []byte `json:"data"`
	// ImageProgress has the fields of "progress"; its Message is also the message of "warning".
	ImageProgress
}

// ImageBuildError is the error of a build when an instruction of its Dockerfile is at fault.
type ImageBuildError struct {
	// Line is the line of the Instruction; ExitCode is the exit code of a command that failed.
	Line        int
	Instruction string
	ExitCode    int
	Err         *Error
}

func (e *ImageBuildError) Error() string { return e.Err.Error() }

// Unwrap returns the error with its code.
func (e *ImageBuildError) Unwrap() error { return e.Err }

// Build has the server build an image from a Dockerfile. Files is a tar of the files to build
// from, plain or compressed with gzip, bzip2 or zstd. It calls events, which may be nil, with each
// event until it returns. The build ends when ctx does.
//
// Errors: an [ImageBuildError] when an instruction is at fault; Invalid, NotFound, Forbidden,
// QuotaExceeded, TooLarge, Timeout, Unavailable.
func (c *Images) Build(ctx context.Context, o ImageBuildOptions, files io.Reader, events func(ImageBuildEvent)) (*Image, error) {
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	go func() { _ = pw.CloseWithError(writeBuild(form, o, files)) }() // does not fail
	defer pr.Close()
	resp, err := c.send(ctx, request{
		method: http.MethodPost, path: "/v1/images/build", stream: pr, header: http.Header{"Content-Type": {form.FormDataContentType()}},
	})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("build: %w", err)
		}
		var m struct {
			ImageBuildEvent
			Code     Code   `json:"code"`
			ExitCode int    `json:"exit_code"`
			Image    *Image `json:"image"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("build: %w", err)
		}
		switch {
		case m.Type == "done" && m.Image != nil:
			return m.Image, nil
		case m.Type == "error":
			err := &Error{Code: m.Code, Message: m.Message}
			if m.Line == 0 {
				return nil, err
			}
			return nil, &ImageBuildError{Line: m.Line, Instruction: m.Instruction, ExitCode: m.ExitCode, Err: err}
		case m.Type != "ping" && events != nil:
			events(m.ImageBuildEvent)
		}
	}
}

// writeBuild writes the parts of a build.
func writeBuild(form *multipart.Writer, o ImageBuildOptions, files io.Reader) error {
	options := wire.ImageBuild{
		Tag: o.Tag, Dockerfile: o.Path, BuildArgs: o.BuildArgs, Target: o.Target, NoCache: o.NoCache, Network: o.Network, Push: o.Push,
		TimeoutSeconds: int(o.Timeout / time.Second), WaitForQuotaSeconds: seconds(o.WaitForQuota),
	}
	if o.Resources != (Resources{}) {
		options.Resources = &o.Resources
	}
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {`form-data; name="options"`}, "Content-Type": {"application/json"},
	})
	if err != nil {
		return err
	}
	if err := json.NewEncoder(part).Encode(options); err != nil {
		return err
	}
	if o.Dockerfile != nil {
		if err := form.WriteField("dockerfile", string(o.Dockerfile)); err != nil {
			return err
		}
	}
	if part, err = form.CreateFormFile("context", "context.tar"); err != nil {
		return err
	}
	if _, err := io.Copy(part, files); err != nil {
		return err
	}
	return form.Close()
}

// Push has the server push an image that the workspace has built to a registry: to another
// reference, or with "" to the reference that is its name. Progress is as in [Images.Pull].
// Errors: Invalid, NotFound, Forbidden, Timeout and Unavailable, with the registry's message.
func (c *Images) Push(ctx context.Context, ref, to string, progress func(ImageProgress)) (*Image, error) {
	body := wire.ImagePush{Image: ref, To: to}
	return c.watchImage(ctx, "push "+ref, request{method: http.MethodPost, path: "/v1/images/push", body: body}, progress)
}
