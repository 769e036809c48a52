package chart_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/test/chart"
)

// value is a value of the chart that has a comment.
type value struct {
	name, meaning string
	node          *yaml.Node
}

// values returns the values in values.yaml. One that has a comment is documented with all that is in it.
func values(t *testing.T) []value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart.Dir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var list []value
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		for i := 0; i < len(n.Content); i += 2 {
			key, content := n.Content[i], n.Content[i+1]
			name := prefix + key.Value
			comment := key.HeadComment
			if at := strings.LastIndex(comment, "\n\n"); at >= 0 { // the first comment of the file
				comment = comment[at+2:]
			}
			switch {
			case comment != "":
				var lines []string
				for line := range strings.Lines(comment) {
					lines = append(lines, strings.TrimSpace(strings.TrimPrefix(line, "#")))
				}
				list = append(list, value{name, strings.Join(lines, " "), content})
			case content.Kind == yaml.MappingNode && len(content.Content) > 0:
				walk(name+".", content)
			default:
				t.Errorf("%s has no comment in values.yaml", name)
			}
		}
	}
	walk("", document.Content[0])
	return list
}

func TestValuesAreDocumented(t *testing.T) {
	const begin, end = "<!-- values -->\n", "<!-- /values -->"
	path := filepath.Join(chart.Dir, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no table of the values", path)
	}
	var table strings.Builder
	table.WriteString("| value | default | meaning |\n|---|---|---|\n")
	for _, v := range values(t) {
		var decoded any
		if err := v.node.Decode(&decoded); err != nil {
			t.Fatal(err)
		}
		def, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&table, "| `%s` | `%s` | %s |\n", v.name, def, strings.ReplaceAll(v.meaning, "|", `\|`))
	}
	want := before + begin + table.String() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s (-want +got; go test . -update writes it):\n%s", path, diff)
	}
}

// valuesSchema is the part of a JSON schema that the test reads.
type valuesSchema struct {
	Properties           map[string]valuesSchema `json:"properties"`
	AdditionalProperties any                     `json:"additionalProperties"`
	Ref                  string                  `json:"$ref"`
}

// The schema has the values of values.yaml, all of them and no others, so that a misspelled value is an error.
func TestSchemaHasTheValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart.Dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var root valuesSchema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	delete(root.Properties, "global") // Helm adds it
	inSchema := map[string]bool{}
	var walk func(prefix string, s valuesSchema)
	walk = func(prefix string, s valuesSchema) {
		if s.AdditionalProperties != false {
			t.Errorf("%q may have values that are not in the schema", prefix)
		}
		for name, inner := range s.Properties {
			if inner.Properties != nil {
				walk(prefix+name+".", inner)
			} else {
				inSchema[prefix+name] = true
			}
		}
	}
	walk("", root)
	inValues := map[string]bool{}
	for _, v := range values(t) {
		inValues[v.name] = true
	}
	if diff := cmp.Diff(inValues, inSchema); diff != "" {
		t.Errorf("values.yaml and values.schema.json differ (-values +schema):\n%s", diff)
	}
}
