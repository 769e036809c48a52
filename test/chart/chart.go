// Package chart renders the Helm chart of Modbox with Helm's own library. It is a module of its own, because the product
// needs neither Helm nor Kubernetes.
package chart

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ci "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// Dir is the chart, from the directory of this package.
var Dir = filepath.Join("..", "..", "deploy", "helm", "modbox")

// Release is the name of the release and of its namespace in all that is rendered here.
const Release = "modbox"

// Rendered is a rendered chart.
type Rendered struct {
	// Notes is the text after an installation.
	Notes string
	// Documents are the objects in YAML, in the order of the templates' names and of their places there.
	Documents []string
}

// Render renders the chart in a directory with values, without a cluster.
func Render(dir string, values map[string]any) (Rendered, error) {
	return render(dir, values, engine.Render)
}

// RenderIn renders the chart with values for a cluster, whose objects it looks up.
func RenderIn(cluster engine.ClientProvider, dir string, values map[string]any) (Rendered, error) {
	return render(dir, values, func(c ci.Charter, all common.Values) (map[string]string, error) {
		return engine.RenderWithClientProvider(c, all, cluster)
	})
}

func render(dir string, values map[string]any, templates func(ci.Charter, common.Values) (map[string]string, error)) (Rendered, error) {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return Rendered{}, err
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: Release, Namespace: Release, Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return Rendered{}, err
	}
	files, err := templates(c, all)
	if err != nil {
		return Rendered{}, err
	}
	var r Rendered
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) == "NOTES.txt" {
			r.Notes = files[name]
			continue
		}
		for part := range strings.SplitSeq("\n"+files[name], "\n---\n") {
			if part = strings.TrimSpace(part); part != "" {
				r.Documents = append(r.Documents, part)
			}
		}
	}
	return r, nil
}

// Text returns all objects as one file.
func (r Rendered) Text() string { return strings.Join(r.Documents, "\n---\n") + "\n" }

// ReadValues returns the values in a file.
func ReadValues(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}
