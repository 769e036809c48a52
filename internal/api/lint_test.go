package api_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/internal/api"
)

// document has the parts of an OpenAPI document that the lint checks.
type document struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	OperationID string `yaml:"operationId"`
	Summary     string
	Parameters  []struct {
		Name, In, Description string
		Schema                schema
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

// schema is a schema or a property of one. Only a property that is a reference needs no description of its own.
type schema struct {
	Ref         string `yaml:"$ref"`
	Type        any    // a string, or a list of them
	Description string
	Properties  map[string]schema
	Required    []string
	Items       *schema
	AnyOf       []schema   `yaml:"anyOf"`
	Values      additional `yaml:"additionalProperties"`
}

// additional is the schema of the values of a map, or nothing for false and true.
type additional struct{ schema *schema }

func (a *additional) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	a.schema = new(schema)
	return n.Decode(a.schema)
}

// is reports whether values may be of one of the types.
func (s schema) is(types ...string) bool {
	permitted, ok := s.Type.([]any)
	if !ok {
		permitted = []any{s.Type}
	}
	return slices.ContainsFunc(permitted, func(t any) bool { name, _ := t.(string); return slices.Contains(types, name) }) ||
		slices.ContainsFunc(s.AnyOf, func(s schema) bool { return s.is(types...) })
}

// collect adds the schemas to which s refers to found.
func (s schema) collect(schemas map[string]schema, found map[string]bool) {
	if name := s.Ref[strings.LastIndex(s.Ref, "/")+1:]; name != "" && !found[name] {
		found[name] = true
		schemas[name].collect(schemas, found)
	}
	for _, p := range s.Properties {
		p.collect(schemas, found)
	}
	for _, a := range s.AnyOf {
		a.collect(schemas, found)
	}
	for _, inner := range []*schema{s.Items, s.Values.schema} {
		if inner != nil {
			inner.collect(schemas, found)
		}
	}
}

// The names in paths, one per noun, and what property names look like.
var (
	pathNames = []string{
		"build", "checkpoint", "context", "delivery", "execution", "image", "invitation", "key", "port", "recording", "registry", "sandbox", "sandbox_image", "session",
		"snapshot", "ssh_key", "stream", "token", "user", "webhook", "window", "worker", "workspace",
	}
	// otherNames are names that properties do not have, with the names to use.
	otherNames = map[string]string{"dependencies": "apt_packages", "packages": "apt_packages, npm_packages or pip_packages", "memory_lost": "memory_lost_reason"}
	// canceled is the spelling of "cancelled" that the document does not have.
	canceled  = regexp.MustCompile(`(?i)\bcancel(ed|ing)\b`)
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	buildPath = regexp.MustCompile(`^/v1/builds|/builds`)
	pathName  = regexp.MustCompile(`\{([^}]*)\}`)
	// numberWithoutUnit finds schema and property in a report of checkUnit.
	numberWithoutUnit = regexp.MustCompile(`^schema (\w+): the name of the number (\w+) `)
	// units are the ends of names of numbers, except for those in unitless, which count, identify or order something.
	units    = regexp.MustCompile(`_(seconds|ms|nanoseconds|bytes|mb|byte_seconds|millicores|per_minute)$`)
	unitless = []string{
		"after_seq", "anchor_seq", "attempts", "blank_boxes", "boxes", "builds", "cols", "column", "cores", "count", "dropped", "errors_omitted", "event_seq", "execution_count", "executions", "exit_code", "failed",
		"file_count", "gid", "head_seq", "hits", "https_ports", "image_tasks", "limit", "line", "misses", "pending", "pid", "port", "ports", "processes", "readiness_port", "records", "requests", "restarts", "rows", "sandboxes", "seq", "signal", "status", "step", "steps", "uid",
	}
	// otherNumbers are numbers whose names do not say their unit, with the reason.
	otherNumbers = map[string]string{
		"SessionTokens.expires_in":         "it has its name from OAuth 2.0, RFC 6749",
		"SessionTokens.refresh_expires_in": "it is named like expires_in, which is beside it",
		"Desktop.width":                    pixels,
		"Desktop.height":                   pixels,
		"DesktopAction.amount":             "it counts steps of the wheel, as the field's APIs for computer use call it",
		"DesktopAction.clicks":             "it counts clicks",
		"DesktopWindow.x":                  pixels,
		"DesktopWindow.y":                  pixels,
		"DesktopWindow.width":              pixels,
		"DesktopWindow.height":             pixels,
		"Point.x":                          pixels,
		"Point.y":                          pixels,
		"ResizeDesktop.width":              pixels,
		"ResizeDesktop.height":             pixels,
		"StartRecording.fps":               "its unit is its name: frames per second",
		"ImageBuildMessage.done":           progressCounts,
		"ImageBuildMessage.total":          progressCounts,
		"ImageProgress.done":               progressCounts,
		"ImageProgress.total":              progressCounts,
		"SnapshotBuildProgress.done":       progressCounts,
		"SnapshotBuildProgress.total":      progressCounts,
	}
)

const (
	progressCounts = "it counts bytes, packages or files, depending on the phase"
	pixels         = "screens and pictures are measured in pixels everywhere"
)

// lint returns which rules of docs/api.md a document breaks.
func lint(text []byte) (broken []string, err error) {
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	report := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	if found := canceled.Find(text); found != nil {
		report("%s has two l in the rest of the document", found)
	}
	answers := map[string]bool{} // the schemas that are in answers
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, m := range pathName.FindAllStringSubmatch(path, -1) {
			if !slices.Contains(pathNames, m[1]) {
				report("%s: the parameter {%s} is not one of %v", path, m[1], pathNames)
			}
		}
		if buildPath.MatchString(path) {
			report("%s: the path does not say whether an image or a snapshot is built", path)
		}
		for method, op := range d.Paths[path] {
			at := strings.ToUpper(method) + " " + path
			if op.OperationID == "" || op.Summary == "" || op.Responses["default"].Content["application/problem+json"].Schema.Ref == "" {
				report("%s: operationId, summary or the answer for errors is missing", at)
			}
			checkParameters(at, op, report)
			for _, answer := range op.Responses {
				for _, content := range answer.Content {
					content.Schema.collect(d.Components.Schemas, answers)
				}
			}
			checkDelete(at, method, op, report)
			checkList(at, method, op, d.Components.Schemas, report)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		for property, is := range s.Properties {
			if is.Ref == "" && is.Description == "" {
				report("schema %s: %s has no description", name, property)
			}
			if !snakeCase.MatchString(property) {
				report("schema %s: %s is not in snake_case", name, property)
			}
			if instead := otherNames[property]; instead != "" {
				report("schema %s: the name of %s is %s", name, property, instead)
			}
			if answers[name] && is.is("null") {
				report("schema %s: %s may be null; a property without a value is absent from answers", name, property)
			}
			checkUnit("schema "+name, property, is, report)
		}
		if _, ok := s.Properties["items"]; ok && strings.HasSuffix(name, "Page") {
			if !slices.Contains(s.Required, "items") || slices.Contains(s.Required, "next_cursor") {
				report("schema %s: items is in all pages, and next_cursor in all but the last", name)
			}
		}
	}
	return broken, nil
}

// deleteNames are the operations of DELETE whose names are the terms of the field.
var deleteNames = []string{"close-window", "revoke-token", "unpublish-port"}

// checkDelete checks that DELETE, and nothing else, is called delete-…, and answers 204.
// A deleted sandbox keeps its record, which is the answer.
func checkDelete(at, method string, op operation, report func(string, ...any)) {
	named := strings.HasPrefix(op.OperationID, "delete-") || slices.Contains(deleteNames, op.OperationID)
	if named != (method == "delete") {
		report("%s: the operation %s; DELETE and only DELETE is called delete-… or one of %v", at, op.OperationID, deleteNames)
	}
	want := "204"
	if op.OperationID == "delete-sandbox" {
		want = "200"
	}
	for status, answer := range op.Responses {
		if method == "delete" && status != "default" && (status != want || (status == "204") != (len(answer.Content) == 0)) {
			report("%s: answers %s, want %s; only 204 is without a body", at, status, want)
		}
	}
}

// checkUnit checks that the name of a number, or of a list or map of numbers, ends with its unit.
func checkUnit(at, name string, s schema, report func(string, ...any)) {
	number := s.is("integer", "number")
	for _, inner := range []*schema{s.Items, s.Values.schema} {
		number = number || inner != nil && inner.is("integer", "number")
	}
	if number && !units.MatchString(name) && !slices.Contains(unitless, name) {
		report("%s: the name of the number %s does not end with its unit, such as _seconds or _bytes", at, name)
	}
}

func checkParameters(at string, op operation, report func(string, ...any)) {
	for _, p := range op.Parameters {
		checkUnit(at, p.Name, p.Schema, report)
		if p.Description == "" {
			report("%s: the parameter %s has no description", at, p.Name)
		}
		if p.In == "query" && !snakeCase.MatchString(p.Name) {
			report("%s: the parameter %s is not in snake_case", at, p.Name)
		}
		if p.In == "query" && (p.Name == "before" || p.Name == "after" || p.Name == "page") {
			report("%s: the parameter %s is another way of paging than limit and cursor", at, p.Name)
		}
	}
}

// checkList checks a GET whose operation is called list-…, or that answers items.
func checkList(at, method string, op operation, schemas map[string]schema, report func(string, ...any)) {
	if method != "get" {
		return
	}
	ref := op.Responses["200"].Content["application/json"].Schema.Ref
	name := ref[strings.LastIndex(ref, "/")+1:]
	_, items := schemas[name].Properties["items"]
	_, cursor := schemas[name].Properties["next_cursor"]
	if !items && !cursor && !strings.HasPrefix(op.OperationID, "list-") {
		return
	}
	if !items || !cursor {
		report("%s: answers %s, and lists answer items and next_cursor", at, name)
	}
	for _, want := range []string{"limit", "cursor"} {
		found := false
		for _, p := range op.Parameters {
			found = found || p.Name == want && p.In == "query"
		}
		if !found {
			report("%s: a list without the parameter %s", at, want)
		}
	}
}

func TestTheDocumentKeepsTheRules(t *testing.T) {
	text, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	broken, err := lint(text)
	if err != nil {
		t.Fatal(err)
	}
	excepted := map[string]bool{}
	for _, b := range broken {
		if m := numberWithoutUnit.FindStringSubmatch(b); m != nil && otherNumbers[m[1]+"."+m[2]] != "" {
			excepted[m[1]+"."+m[2]] = true
			continue
		}
		t.Error(b)
	}
	for name := range otherNumbers {
		if !excepted[name] {
			t.Errorf("%s says its unit, or is gone; remove it from otherNumbers", name)
		}
	}
}

func TestTheLintFindsWhatBreaksARule(t *testing.T) {
	const good = `
paths:
  /v1/things/{sandbox}:
    get:
      operationId: list-things
      summary: List things
      parameters: [{name: limit, in: query, description: d}, {name: cursor, in: query, description: d}]
      responses:
        "200": {content: {application/json: {schema: {$ref: "#/components/schemas/ThingPage"}}}}
        default: {content: {application/problem+json: {schema: {$ref: "#/components/schemas/Problem"}}}}
    delete:
      operationId: delete-thing
      summary: Delete a thing
      responses:
        "204": {description: Gone}
        default: {content: {application/problem+json: {schema: {$ref: "#/components/schemas/Problem"}}}}
components:
  schemas:
    ThingPage: {required: [items], properties: {items: {description: d}, next_cursor: {description: d}}}
    Thing: {properties: {note: {type: [string, 'null'], description: d}}}
`
	if broken, err := lint([]byte(good)); err != nil || len(broken) != 0 {
		t.Fatalf("the good document: %v, %v", broken, err)
	}
	for name, change := range map[string][2]string{
		"parameter_of_a_path":  {"{sandbox}", "{ref}"},
		"operation_id":         {"operationId: list-things", "operationId: ''"},
		"summary":              {"summary: List things", "summary: ''"},
		"errors":               {"default: {content", "other: {content"},
		"limit":                {"name: limit", "name: size"},
		"cursor":               {"name: cursor", "name: after"},
		"description":          {"name: limit, in: query, description: d", "name: limit, in: query"},
		"camel_case_parameter": {"{name: limit", "{name: pageSize, in: query, description: d}, {name: limit"},
		"items":                {"{items: {description: d}, next_cursor: {description: d}}", "{things: {description: d}, next_cursor: {description: d}}"},
		"next_cursor":          {"{items: {description: d}, next_cursor: {description: d}}", "{items: {description: d}, next: {description: d}}"},
		"required_cursor":      {"[items]", "[items, next_cursor]"},
		"optional_items":       {"[items]", "[]"},
		"null":                 {"next_cursor: {", "next_cursor: {type: [string, 'null'], "},
		"null_of_a_reference":  {"next_cursor: {", "next_cursor: {anyOf: [{$ref: x}, {type: 'null'}], "},
		"null_below_a_list":    {"{items: {description: d}, next", "{items: {type: array, items: {$ref: '#/components/schemas/Thing'}, description: d}, next"},
		"number_without_unit":  {"{items: {description: d}, next", "{items: {description: d}, size: {type: integer, description: d}, next"},
		"map_without_unit":     {"{items: {description: d}, next", "{items: {description: d}, sizes: {additionalProperties: {type: number}, description: d}, next"},
		"parameter_no_unit":    {"{name: limit", "{name: wait, in: query, description: d, schema: {type: integer}}, {name: limit"},
		"dependencies":         {"{items: {description: d}, next", "{items: {description: d}, dependencies: {description: d}, next"},
		"packages":             {"{items: {description: d}, next", "{items: {description: d}, packages: {description: d}, next"},
		"remove":               {"operationId: delete-thing", "operationId: remove-thing"},
		"delete_of_a_get":      {"operationId: list-things", "operationId: delete-things"},
		"answer_of_a_delete":   {`"204": {description: Gone}`, `"200": {description: Gone}`},
		"body_of_a_delete":     {`"204": {description: Gone}`, `"204": {content: {application/json: {}}}`},
		"memory_lost":          {"{items: {description: d}, next", "{items: {description: d}, memory_lost: {description: d}, next"},
		"spelling":             {"summary: List things", "summary: List canceled things"},
		"builds_of_nothing":    {"/v1/things/{sandbox}", "/v1/builds/{sandbox}"},
		"property_description": {"{items: {description: d}", "{items: {}"},
		"camel_case_property":  {"{items: {description: d}, next", "{items: {description: d}, nextThing: {description: d}, next"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, change[0], change[1], 1)
			if bad == good {
				t.Fatalf("%q is not in the document", change[0])
			}
			if broken, err := lint([]byte(bad)); err != nil || len(broken) == 0 {
				t.Errorf("lint = %v, %v, want a broken rule", broken, err)
			}
		})
	}
}
