// Package openapi writes the OpenAPI document of /v1: the comments of Go types are the descriptions
// of their schemas, and the order of their fields is the order of the properties.
package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/yaml"
)

// YAML returns a document as YAML. The properties of a schema are in the order of the fields of
// its Go type.
func YAML(document *huma.OpenAPI) ([]byte, error) {
	b, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(b, &tree); err != nil {
		return nil, err
	}
	schemas := tree["components"].(map[string]any)["schemas"].(map[string]any)
	for name, s := range schemas {
		schema := s.(map[string]any)
		properties, ok := schema["properties"].(map[string]any)
		t := document.Components.Schemas.TypeFromRef("#/components/schemas/" + name)
		if ok && t != nil {
			schema["properties"] = orderedObject{properties, fieldNames(t)}
		}
	}
	if b, err = json.Marshal(tree); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = yaml.Convert(&text, bytes.NewReader(b))
	return text.Bytes(), err
}

// Describe adds the comments of the Go types to their schemas.
func Describe(schemas map[string]*huma.Schema) {
	for name, schema := range schemas {
		if schema.Description == "" {
			schema.Description = typeDescriptions[name]
		}
	}
}

// fieldNames returns the JSON names of the fields of a struct and of its embedded structs.
func fieldNames(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// orderedObject is a JSON object whose members have an order. Members without
// a place in the order are an error.
type orderedObject struct {
	members map[string]any
	order   []string
}

// MarshalJSON implements json.Marshaler.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	written := 0
	b.WriteByte('{')
	for _, name := range o.order {
		value, ok := o.members[name]
		if !ok {
			continue
		}
		if written++; written > 1 {
			b.WriteByte(',')
		}
		member, err := json.Marshal(map[string]any{name: value})
		if err != nil {
			return nil, err
		}
		b.Write(member[1 : len(member)-1])
	}
	b.WriteByte('}')
	if written != len(o.members) {
		return nil, fmt.Errorf("order members: %d of %d are no fields of the type", len(o.members)-written, len(o.members))
	}
	return b.Bytes(), nil
}

// Base64Text describes bytes in base64: huma's own schema of []byte takes "" for no base64.
type Base64Text []byte

// Schema describes bytes in base64, which may be empty.
func (Base64Text) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "byte"}
}
