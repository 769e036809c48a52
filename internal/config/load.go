package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Source is the origin of settings besides the defaults.
type Source struct {
	// File is the path of a YAML file; "" for none.
	File string
	// Environ is the environment, as from os.Environ.
	Environ []string
	// Flags are the result of AddFlags; nil for none.
	Flags *Flags
}

// Load returns the settings of all sources, checked. Its errors name the setting, and the line for
// a setting in the file.
func Load(src Source) (Config, error) {
	c := Default()
	if src.File != "" {
		if err := c.loadFile(src.File); err != nil {
			return Config{}, err
		}
	}
	env := map[string]string{}
	for _, kv := range src.Environ {
		if name, value, ok := strings.Cut(kv, "="); ok {
			env[name] = value
		}
	}
	for _, s := range c.settings() {
		value, ok := env[s.Env()]
		if !ok {
			continue
		}
		if err := s.set(value); err != nil {
			return Config{}, fmt.Errorf("%s: %w", s.Env(), err)
		}
	}
	if src.Flags != nil {
		for _, s := range c.settings() {
			value, ok := src.Flags.given[s.Name]
			if !ok {
				continue
			}
			if err := s.set(value); err != nil {
				return Config{}, fmt.Errorf("--%s: %w", s.Flag(), err)
			}
		}
	}
	if err := c.resolve(func(name string) string { return env[name] }); err != nil {
		return Config{}, err
	}
	return c, c.validate()
}

// unknownField matches yaml's message about an unknown key.
var unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)

func (c *Config) loadFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) { // EOF: an empty file
		return fmt.Errorf("%s: %s", path, unknownField.ReplaceAllString(err.Error(), `unknown setting "$1"`))
	}
	return nil
}

// Setting is a leaf of Config.
type Setting struct {
	Name  string // path in the file, e.g. sandbox.max_memory
	Doc   string // description
	value reflect.Value
}

// Env returns the name of its environment variable.
func (s Setting) Env() string {
	return "MODBOX_" + strings.ToUpper(strings.ReplaceAll(s.Name, ".", "_"))
}

// Flag returns the name of its flag, without dashes in front.
func (s Setting) Flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(s.Name) }

// String returns its value in the format of the file.
func (s Setting) String() string { return fmt.Sprint(s.value.Interface()) }

// set parses text into the setting.
func (s Setting) set(text string) error {
	switch p := s.value.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *string:
		*p = text
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*p = n
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*p = b
	default:
		panic(fmt.Sprintf("setting %s has type %T, which set does not know", s.Name, p))
	}
	return nil
}

// Settings lists all settings in the order of the struct, with their defaults.
func Settings() []Setting {
	c := Default()
	return c.settings()
}

func (c *Config) settings() []Setting { return leaves(reflect.ValueOf(c).Elem(), "") }

func leaves(v reflect.Value, prefix string) []Setting {
	var list []Setting
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := prefix + field.Tag.Get("yaml")
		if doc, ok := field.Tag.Lookup("doc"); ok {
			list = append(list, Setting{Name: name, Doc: doc, value: v.Field(i)})
		} else {
			list = append(list, leaves(v.Field(i), name+".")...)
		}
	}
	return list
}

// Flags remembers which settings were given as flags.
type Flags struct{ given map[string]string }

// AddFlags adds a flag for every setting to fs, or only for the named settings.
func AddFlags(fs *pflag.FlagSet, names ...string) *Flags {
	f := &Flags{given: map[string]string{}}
	for _, s := range Settings() {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		fs.Var(&flagValue{setting: s, flags: f}, s.Flag(), s.Doc)
	}
	return f
}

// Given reports whether any of the flags was given.
func (f *Flags) Given() bool { return len(f.given) > 0 }

// flagValue is a pflag.Value that notes given flags.
type flagValue struct {
	setting Setting
	flags   *Flags
}

func (v *flagValue) String() string {
	if v.flags == nil { // pflag asks a zero value for its default
		return ""
	}
	return v.setting.String()
}

func (v *flagValue) Set(text string) error {
	if err := v.setting.set(text); err != nil {
		return err
	}
	v.flags.given[v.setting.Name] = text
	return nil
}

func (v *flagValue) Type() string {
	switch v.setting.value.Interface().(type) {
	case Duration:
		return "duration"
	case Bytes:
		return "size"
	case CPU:
		return "cpu"
	case int, Count, Factor:
		return "number"
	case bool:
		return "true|false" // pflag permits a bool flag without a value
	default:
		return "string"
	}
}
