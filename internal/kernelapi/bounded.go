package kernelapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

const (
	// MaxFormats bounds the formats of a result.
	MaxFormats = 64
	// MaxLines bounds the lines of a traceback.
	MaxLines = 1024
)

// Formats is a value by MIME type. Decoding more than MaxFormats fails: a short text has many
// members, and each takes much more memory than its text.
type Formats map[string]json.RawMessage

// UnmarshalJSON implements [json.Unmarshaler].
func (f *Formats) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if delim, _ := d.Token(); delim != json.Delim('{') { // an error comes without a token
		return errors.New("formats are not an object")
	}
	*f = Formats{}
	for n := 0; d.More(); n++ {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if n == MaxFormats {
			return fmt.Errorf("more than %d formats", MaxFormats)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		(*f)[name.(string)] = value // names of members are strings
	}
	return nil
}

// Lines are the lines of a traceback, or the names of formats. Decoding more than MaxLines fails.
type Lines []string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Lines) UnmarshalJSON(data []byte) (err error) {
	*l, err = list[string](data, MaxLines)
	return err
}

// Contexts are the contexts of a sandbox. Decoding more than MaxContexts fails.
type Contexts []Context

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Contexts) UnmarshalJSON(data []byte) (err error) {
	*c, err = list[Context](data, MaxContexts)
	return err
}

// list decodes an array of at most most elements.
func list[T any](data []byte, most int) ([]T, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if delim, _ := d.Token(); delim != json.Delim('[') { // an error comes without a token
		return nil, errors.New("not an array")
	}
	var all []T
	for d.More() {
		if len(all) == most {
			return nil, fmt.Errorf("more than %d elements", most)
		}
		var v T
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}
