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
	Parameters  []struct{ Name, In, Description string }
	Responses   map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type schema struct {
	Ref        string `yaml:"$ref"`
	Properties map[string]property
	Required   []string
}

// property is a property of a schema. Only a reference needs no description of its own.
type property struct {
	Ref         string `yaml:"$ref"`
	Type        any
	Description string
}

// The names in paths, one per noun, and what property names look like.
var (
	pathNames = []string{
		"build", "checkpoint", "context", "execution", "image", "invitation", "key", "port", "registry", "sandbox", "sandbox_image", "session",
		"snapshot", "stream", "token", "user", "workspace",
	}
	// otherNames are names that properties do not have, with the names to use.
	otherNames = map[string]string{"dependencies": "apt_packages", "packages": "apt_packages or npm_packages", "memory_lost": "memory_lost_reason"}
	// canceled is the spelling of "cancelled" that the document does not have.
	canceled  = regexp.MustCompile(`(?i)\bcancel(ed|ing)\b`)
	snakeCase = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	buildPath = regexp.MustCompile(`^/v1/builds|/builds`)
	pathName  = regexp.MustCompile(`\{([^}]*)\}`)
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
		}
		if _, ok := s.Properties["items"]; ok && strings.HasSuffix(name, "Page") {
			for _, property := range []string{"items", "next_cursor"} {
				if !slices.Contains(s.Required, property) {
					report("schema %s: %s is not always there", name, property)
				}
			}
		}
	}
	return broken, nil
}

// deleteNames are the operations of DELETE whose names are the terms of the field.
var deleteNames = []string{"revoke-token", "unpublish-port"}

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

func checkParameters(at string, op operation, report func(string, ...any)) {
	for _, p := range op.Parameters {
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
	for _, b := range broken {
		// A log is no list: it has an end of its own.
		if !strings.Contains(b, "/snapshot-builds/{build}/log") {
			t.Error(b)
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
    ThingPage: {required: [items, next_cursor], properties: {items: {description: d}, next_cursor: {description: d}}}
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
		"optional_cursor":      {"[items, next_cursor]", "[items]"},
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
