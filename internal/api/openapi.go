package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/modbox/modbox/client/wire"
	"github.com/modbox/modbox/internal/api/edge"
	"github.com/modbox/modbox/internal/api/openapi"
	"github.com/modbox/modbox/internal/api/sshaccess"
)

//go:generate go test -run TestTypeDescriptions ./openapi -update
//go:generate go test -run TestOpenAPIDocument . -update

const apiDescription = `Modbox gives programs their own isolated Linux: a sandbox with its own URL, file system and limits, that ends by itself when its time is up.

Every route needs a bearer token. Errors are RFC 9457 problems with a ` + "`code`" + ` for programs. A trailing slash on a path makes no difference. Unknown fields and parameters are errors.`

// registerV1 adds all routes of /v1 to mux and returns their description.
func (s *Server) registerV1(mux router) *huma.OpenAPI {
	a := newAPI(mux, s.cfg.Version)
	s.registerSandboxes(a)
	s.registerExec(a)
	s.registerExecutions(a)
	s.registerFiles(a)
	s.registerWriteFiles(a)
	s.registerStateful(a)
	s.registerSnapshots(a)
	s.registerSnapshotFiles(a, mux)
	s.registerBuilds(a, mux)
	s.registerImageBuilds(a, mux)
	s.registerObserve(a)
	s.registerRuntimes(a)
	s.registerPackages(a)
	s.registerNetwork(a)
	s.registerAccount(a)
	route(a, sshaccess.DescribeOperation, (&sshaccess.Routes{Server: s.cfg.SSH}).Describe)
	s.registerSessions(a)
	s.registerWorkspaces(a)
	s.registerUsers(a)
	s.registerRegistries(a)
	s.registerAudit(a)
	s.registerStreams(a, mux)
	s.describeStreams(a)
	// Huma describes its own error model although all errors are problems here.
	schemas := a.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	openapi.Describe(schemas)
	return a.OpenAPI()
}

// Document returns the OpenAPI 3.1 document of /v1 as YAML.
func Document() ([]byte, error) {
	s := &Server{cfg: withDefaults(Config{Version: "1"})}
	return openapi.YAML(s.registerV1(http.NewServeMux()))
}

// registerStreams adds the routes whose bodies are streams, with their descriptions.
func (s *Server) registerStreams(a huma.API, mux router) {
	raw := func(op huma.Operation, h edge.Handler) {
		op.Parameters = append([]*huma.Param{{
			Name: "sandbox", In: "path", Required: true, Schema: &huma.Schema{Type: "string"},
			Description: "The sandbox: its id or its name, percent-encoded.",
		}}, op.Parameters...)
		describe(a, &op)
		mux.HandleFunc(op.Method+" "+op.Path, h.ServeHTTP)
		a.OpenAPI().AddOperation(&op)
	}
	raw(huma.Operation{
		OperationID: "exec-stream", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/exec/stream", Tags: []string{"exec"},
		Summary:     "Run a command and stream its output",
		Description: "Takes the body of exec. Answers one JSON object a line as things happen: `started`, then `stdout` and `stderr` with data in base64, at last `exit`; or `error` when how the command ended is not known. After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. When the client goes away the command is killed.",
		RequestBody: &huma.RequestBody{Required: true, Content: jsonContent[wire.Exec](a)},
		Responses: map[string]*huma.Response{"200": {Description: "The stream", Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: schemaOf[wire.StreamMessage](a)},
		}}},
	}, s.streamExec)
	raw(huma.Operation{
		OperationID: "run-code-stream", Method: http.MethodPost, Path: "/v1/sandboxes/{sandbox}/code/stream", Tags: []string{"code"},
		Summary:     "Run code in a context and stream its output",
		Description: "Takes the body of code. Answers one JSON object a line as things happen: `started`, then `stdout`, `stderr`, `result` and `error`, at last `end`; or `failure` when how the code ended is not known. After 15 seconds of silence comes a `ping`, to be skipped like any type that is not known. When the client goes away the code is interrupted.",
		RequestBody: &huma.RequestBody{Required: true, Content: jsonContent[wire.RunCode](a)},
		Responses: map[string]*huma.Response{"200": {Description: "The stream", Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: schemaOf[wire.CodeEvent](a)},
		}}},
	}, registerCode(a, s))
	raw(huma.Operation{
		OperationID: "exec-attach", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/exec/attach", Tags: []string{"exec"},
		Summary:     "Run a command over a WebSocket",
		Description: attachDescription,
		Responses:   map[string]*huma.Response{"101": {Description: "The WebSocket"}},
	}, s.attach)
	raw(huma.Operation{
		OperationID: "attach-execution", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/executions/{execution}/attach", Tags: []string{"executions"},
		Summary:     "Attach to an execution over a WebSocket",
		Description: "The messages are the messages of exec/attach, without the client's first message. The execution goes on when the client disconnects, and any number of clients may be attached.",
		Parameters: []*huma.Param{
			{Name: "execution", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The execution."},
			query("offset", "The byte of stdout to begin at; 0 when omitted.", false),
		},
		Responses: map[string]*huma.Response{"101": {Description: "The WebSocket"}},
	}, s.attachExecution)
	path := query("path", "The path; a relative path begins at the working directory of commands, the image's.", true)
	binary := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	raw(huma.Operation{
		OperationID: "read-file", Method: http.MethodGet, Path: "/v1/sandboxes/{sandbox}/files", Tags: []string{"files"},
		Summary: "Read a file", Description: "Its content. The header Range is honoured.",
		Parameters: []*huma.Param{path},
		Responses:  map[string]*huma.Response{"200": {Description: "The content", Content: binary}, "206": {Description: "The part asked for", Content: binary}},
	}, s.readFile)
	raw(huma.Operation{
		OperationID: "write-file", Method: http.MethodPut, Path: "/v1/sandboxes/{sandbox}/files", Tags: []string{"files"},
		Summary: "Write a file", Description: "The body becomes the file, whatever its size. Until all of it is there the path is as it was.",
		Parameters: []*huma.Param{
			path,
			query("mode", "Permission bits in octal; a new file has 0644 without, an existing one keeps its own.", false),
			query("parents", "Make missing parent directories: true or false.", false),
			query("user", "Owner of a new file; the image's user when omitted.", false),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: binary},
		Responses:   map[string]*huma.Response{"200": {Description: "The file", Content: jsonContent[wire.FileInfo](a)}},
	}, s.writeFile)
	s.describeArchives(a, raw, path)
	s.registerImages(a, mux)
	s.registerCatalogue(a)
}

// describeStreams describes the routes of streams, which need no token and are
// served beside the others, see registerPublic.
func (s *Server) describeStreams(a huma.API) {
	binary := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}
	id := &huma.Param{Name: "stream", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}, Description: "The stream. Its id is a secret: it replaces a token."}
	add := func(op huma.Operation) {
		op.Tags, op.Security = []string{"executions"}, []map[string][]string{}
		op.Responses["default"] = problemResponse(a)
		a.OpenAPI().AddOperation(&op)
	}
	add(huma.Operation{
		OperationID: "read-stream", Method: http.MethodGet, Path: "/v1/streams/{stream}",
		Summary:     "Read a stream",
		Description: "The bytes it holds, while it grows and afterwards. The header Range is honoured when nothing else is asked for. The headers Modbox-Stream-Ended and Modbox-Stream-Truncated say how it is.",
		Parameters: []*huma.Param{
			id,
			query("offset", "The byte to begin at; 0 when omitted.", false),
			query("follow", "Wait at the end for more until the stream ends: true or false.", false),
			query("timestamps", "Put the time at which it came before every line: true or false.", false),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The bytes", Content: binary}, "206": {Description: "The part asked for", Content: binary}},
	})
	add(huma.Operation{
		OperationID: "write-stream", Method: http.MethodPut, Path: "/v1/streams/{stream}",
		Summary:     "Write to an input stream",
		Description: "The body is added as it comes, and ends the stream.",
		Parameters:  []*huma.Param{id, query("eof", "Whether the stream ends with the body: true or false; true when omitted.", false)},
		RequestBody: &huma.RequestBody{Required: true, Content: binary},
		Responses:   map[string]*huma.Response{"204": {Description: "It was added"}},
	})
}

const attachDescription = `The first message is text: ` + "`{\"command\":[…] or \"shell\":\"…\",\"cwd\",\"env\",\"user\",\"timeout_seconds\",\"tty\":{\"rows\",\"cols\"},\"stdin\":true}`" + `.

Then binary messages carry data: their first byte is the channel (0 stdin, 1 stdout, 2 stderr), the rest raw bytes. With a terminal everything is on stdout.

Text messages from the client: ` + "`{\"type\":\"resize\",\"rows\",\"cols\"}`, `{\"type\":\"signal\",\"signal\":15}`, `{\"type\":\"stdin_eof\"}`" + `. From the server: ` + "`started`, at last `exit` or `error`" + `, with the fields of StreamMessage. The server pings every 15 seconds. When the client goes away the command is killed.`

func query(name, doc string, required bool) *huma.Param {
	return &huma.Param{Name: name, In: "query", Required: required, Description: doc, Schema: &huma.Schema{Type: "string"}}
}

func schemaOf[T any](a huma.API) *huma.Schema {
	return a.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
}

func jsonContent[T any](a huma.API) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: schemaOf[T](a)}}
}
