package computer

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/internal/api/route"
)

const (
	base    = "/v1/sandboxes/{sandbox}/desktop"
	bodyMax = 4 << 20 // the actions' texts, which JSON makes longer
)

var tags = []string{"desktop"}

// The operations of the routes, by the names of their functions.
var (
	describeOperation = huma.Operation{
		OperationID: "get-desktop", Method: http.MethodGet, Path: base, Tags: tags,
		Summary: "Get the screen's size and the pointer's position", Description: "`unsupported` if the sandbox has no desktop; the image modbox/sandbox has one.",
	}
	resizeOperation = huma.Operation{
		OperationID: "resize-desktop", Method: http.MethodPatch, Path: base, Tags: tags,
		Summary: "Change the screen's size", Description: "Windows that fill the screen follow.",
	}
	screenshotOperation = huma.Operation{
		OperationID: "take-screenshot", Method: http.MethodGet, Path: base + "/screenshot", Tags: tags,
		Summary: "Take a picture of the screen", Description: "A PNG of the whole screen, or of a part of it, of at most 16 MiB.",
		Parameters: []*huma.Param{
			route.SandboxParam(),
			route.Query("x", "Left edge of the part, in pixels; 0 when omitted.", false), route.Query("y", "Top edge of the part; 0 when omitted.", false),
			route.Query("width", "Width of the part; the whole screen when omitted.", false), route.Query("height", "Height of the part.", false),
			route.Query("pointer", "Show the mouse pointer: true or false.", false),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The picture", Content: map[string]*huma.MediaType{
			"image/png": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
		}}},
	}
	actOperation = huma.Operation{
		OperationID: "act-on-desktop", Method: http.MethodPost, Path: base + "/actions", Tags: tags, DefaultStatus: http.StatusNoContent, MaxBodyBytes: bodyMax,
		Summary: "Use mouse and keyboard", Description: "Actions are performed one after the other. A field that an action does not use is an error, and then nothing is done. Programs on the screen take a moment to react: take a screenshot afterwards.",
	}
	windowsOperation = huma.Operation{
		OperationID: "list-windows", Method: http.MethodGet, Path: base + "/windows", Tags: tags,
		Summary: "List the windows", Description: "In the order of their ids, at most 500 of a screen.",
	}
	focusOperation = huma.Operation{
		OperationID: "focus-window", Method: http.MethodPost, Path: base + "/windows/{window}/focus", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Raise a window and give it the keyboard",
	}
	closeOperation = huma.Operation{
		OperationID: "close-window", Method: http.MethodDelete, Path: base + "/windows/{window}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Close a window", Description: "Its program is asked to close it, and may ask in turn.",
	}
	openOperation = huma.Operation{
		OperationID: "open-on-desktop", Method: http.MethodPost, Path: base + "/open", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Open a URL or a file, or start a program", Description: "The program goes on after the request.",
	}
	recordOperation = huma.Operation{
		OperationID: "start-recording", Method: http.MethodPost, Path: base + "/recordings", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Record the screen to a file", Description: "An MP4 in the sandbox. A sandbox has at most 4 recordings under way, and 100 with a file, which have 10 GiB together; those under way count with their max_bytes. It has recordings to at most 400 paths on record, also if files are gone; beyond a limit the answer is `quota_exceeded`. `unavailable` if the sandbox does not answer within 10 seconds with the sizes. The recording is an execution: it goes on until it is stopped or has its maximum of time or bytes, also after a restart of the server and a resume of the sandbox.",
	}
	recordingsOperation = huma.Operation{
		OperationID: "list-recordings", Method: http.MethodGet, Path: base + "/recordings", Tags: tags,
		Summary: "List the recordings", Description: "Newest first, also after the sandbox ended, for as long as executions are stored, with the sizes of the files of the newest 400, as far as the sandbox answers within 10 seconds. A paused sandbox is not resumed, and the sizes are not known.",
	}
	recordingOperation = huma.Operation{
		OperationID: "get-recording", Method: http.MethodGet, Path: base + "/recordings/{recording}", Tags: tags, Summary: "Get a recording",
	}
	stopRecordingOperation = huma.Operation{
		OperationID: "stop-recording", Method: http.MethodPost, Path: base + "/recordings/{recording}/stop", Tags: tags,
		Summary: "End a recording", Description: "Answers when the file is complete. A recording that has ended stays as it is.",
	}
	deleteRecordingOperation = huma.Operation{
		OperationID: "delete-recording", Method: http.MethodDelete, Path: base + "/recordings/{recording}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Delete a recording", Description: "Ends it, and deletes its file, unless a later recording has the same path.",
	}
)

// Register adds the routes.
func (r *Routes) Register(m *route.Mux) {
	route.JSON(m, describeOperation, r.describe)
	route.JSON(m, resizeOperation, r.resize)
	m.Raw(screenshotOperation, r.screenshot)
	route.JSON(m, actOperation, r.act)
	route.JSON(m, windowsOperation, r.windows)
	route.JSON(m, focusOperation, r.focus)
	route.JSON(m, closeOperation, r.close)
	route.JSON(m, openOperation, r.open)
	route.JSON(m, recordOperation, r.record)
	route.JSON(m, recordingsOperation, r.recordings)
	route.JSON(m, recordingOperation, r.recording)
	route.JSON(m, stopRecordingOperation, r.stopRecording)
	route.JSON(m, deleteRecordingOperation, r.deleteRecording)
}
