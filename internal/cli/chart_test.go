package cli

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/internal/config"
)

// manifest has the fields of an object of Kubernetes that the test reads.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Args []string
					Env  []struct{ Name, Value string }
				}
			}
		}
	}
}

// manifests returns the objects in a file.
func manifests(t *testing.T, path string) []manifest {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []manifest
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		list = append(list, m)
	}
}

// TestChart checks that this program accepts the settings, variables and arguments of the Helm chart. The tests in test/chart
// compare the files with the rendered chart.
func TestChart(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("..", "..", "test", "chart", "testdata", "*.golden.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, filepath.Join("..", "..", "deploy", "kustomize", "base", "modbox.yaml")) {
		settings, environs, commands := map[string]string{}, map[string][]string{}, 0
		for _, m := range manifests(t, path) {
			if text, ok := m.Data["modbox.yaml"]; ok {
				settings[m.Metadata.Name] = text
			}
			for _, c := range m.Spec.Template.Spec.Containers {
				commands++
				environ := []string{}
				for _, v := range c.Env {
					environ = append(environ, v.Name+"="+v.Value)
				}
				environs[m.Metadata.Name] = environ
				cmd, rest, err := Commands().Find(c.Args)
				if err == nil {
					err = errors.Join(cmd.ParseFlags(rest), cmd.ValidateRequiredFlags(), cmd.ValidateArgs(cmd.Flags().Args()))
				}
				if err != nil {
					t.Errorf("%s: arguments of %s: %q: %v", path, m.Metadata.Name, c.Args, err)
				}
			}
		}
		if len(settings) != 2 || commands != 2 {
			t.Errorf("%s has settings of %d programs and arguments of %d", path, len(settings), commands)
		}
		for name, text := range settings {
			if environs[name] == nil {
				t.Errorf("%s: no program has the settings %s", path, name)
			}
			checkSettings(t, path, name, text, environs[name])
		}
	}
}

func checkSettings(t *testing.T, path, name, text string, environ []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "modbox.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{File: file, Environ: environ})
	if err != nil {
		t.Errorf("%s: settings of %s: %v", path, name, err)
	}
	if server := !strings.HasSuffix(name, "-worker"); server && (cfg.Worker.Listen == "" || cfg.Worker.SecretDir == "" || cfg.Metrics.Access != "token") {
		t.Errorf("%s: settings of %s: %+v", path, name, cfg.Worker)
	}
}
