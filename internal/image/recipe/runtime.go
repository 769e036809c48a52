package recipe

import (
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/modbox/modbox/internal/image/reference"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// RuntimeFile is the name of the file that makes a built-in recipe a runtime. It
// describes and is not part of the image: changing it builds nothing anew.
const RuntimeFile = "runtime.yaml"

// runtimeSpec is the content of runtime.yaml.
type runtimeSpec struct {
	Icon     string   `yaml:"icon"`
	Color    string   `yaml:"color"`
	URL      string   `yaml:"url"`
	Tags     []string `yaml:"tags"`
	Requires struct {
		Memory  string `yaml:"memory"`
		CPU     string `yaml:"cpu"`
		Disk    string `yaml:"disk"`
		Network bool   `yaml:"network"`
	} `yaml:"requires"`
	WarmUp []string `yaml:"warm_up"`
	Readme string   `yaml:"readme"`
}

var modulePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`) })

var colorPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^#[0-9A-Fa-f]{6}$`) })

// loadRuntime returns the description in runtime.yaml; nil without one.
func loadRuntime(dir fs.FS, img *spec.Image) (*spec.Runtime, error) {
	var text runtimeSpec
	err := decodeYAML(dir, RuntimeFile, &text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if text.Color != "" && !colorPattern().MatchString(text.Color) {
		return nil, sandbox.InvalidField("color", "%q is not a colour like #5FA04E", text.Color)
	}
	for field, url := range map[string]string{"icon": text.Icon, "url": text.URL} {
		if url != "" && !strings.HasPrefix(url, "https://") {
			return nil, sandbox.InvalidField(field, "%q does not begin with https://", url)
		}
	}
	for _, module := range text.WarmUp {
		if !modulePattern().MatchString(module) {
			return nil, sandbox.InvalidField("warm_up", "%q is not the name of a module of Python", module)
		}
	}
	r := &spec.Runtime{
		ID: img.ID, Name: strings.TrimPrefix(img.Ref(), reference.BuiltinPrefix), Image: img.Ref(), Description: img.Description,
		IconURL: text.Icon, Color: text.Color, URL: text.URL, Tags: text.Tags, Readme: text.Readme,
		NeedsNetwork: text.Requires.Network, WarmUp: text.WarmUp,
	}
	for _, q := range []struct {
		field, value string
		to           *int64
		scale        func(resource.Quantity) int64
	}{
		{"requires.memory", text.Requires.Memory, &r.Requires.MemoryBytes, func(q resource.Quantity) int64 { return q.Value() }},
		{"requires.cpu", text.Requires.CPU, &r.Requires.CPUMilli, func(q resource.Quantity) int64 { return q.MilliValue() }},
		{"requires.disk", text.Requires.Disk, &r.Requires.DiskBytes, func(q resource.Quantity) int64 { return q.Value() }},
	} {
		if q.value == "" {
			continue
		}
		n, err := resource.ParseQuantity(q.value)
		if err != nil {
			return nil, sandbox.InvalidField(q.field, "%q is not a quantity like 512Mi or 500m", q.value)
		}
		*q.to = q.scale(n)
	}
	return r, nil
}
