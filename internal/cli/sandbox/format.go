package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// listFormat returns the function that prints a list of sandboxes in a format of --output. Errors:
// a usage error that names the flag.
func listFormat(env *base.Env, format string, quiet bool) (func([]client.Sandbox) error, error) {
	text, isTemplate := strings.CutPrefix(format, "template=")
	switch {
	case format != "" && quiet:
		return nil, base.UsageError("give either --output or --quiet")
	case format != "" && format != "json" && env.JSON:
		return nil, base.UsageError("give either --output or --json")
	case isTemplate:
		return templateFormat(env, text)
	case format == "json" || format == "" && env.JSON:
		return func(list []client.Sandbox) error { return env.PrintJSON(list) }, nil
	case format == "yaml":
		return func(list []client.Sandbox) error { return printYAML(env, list) }, nil
	case format == "" || format == "wide":
		return func(list []client.Sandbox) error { return printSandboxes(env, list, quiet, format == "wide") }, nil
	}
	return nil, base.UsageError("--output: %q is none of wide, yaml, json and template=TEXT", format)
}

// plain returns v as --json shows it, with texts that are safe for terminals.
func plain(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber() // numbers keep their digits
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	return cleaned(decoded), nil
}

func cleaned(v any) any {
	switch v := v.(type) {
	case string:
		return base.Clean(v)
	case []any:
		for i := range v {
			v[i] = cleaned(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = cleaned(v[key])
		}
	}
	return v
}

func printYAML(env *base.Env, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var document yaml.Node // JSON is YAML; a node keeps the order of the fields
	if err := yaml.Unmarshal(b, &document); err != nil {
		return err
	}
	block(&document)
	encoder := yaml.NewEncoder(env.Stdout)
	encoder.SetIndent(2)
	return encoder.Encode(&document)
}

// block gives nodes from JSON the usual style of YAML.
func block(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode && len(n.Content) > 0 || n.Tag == "!!str" {
		n.Style = 0
	}
	for _, child := range n.Content {
		block(child)
	}
}

// templateFormat prints a line per sandbox.
func templateFormat(env *base.Env, text string) (func([]client.Sandbox) error, error) {
	t, err := template.New("output").Option("missingkey=zero").Parse(text)
	if err != nil {
		return nil, base.UsageError("--output: %w", err)
	}
	return func(list []client.Sandbox) error {
		for _, sb := range list {
			fields, err := plain(sb)
			if err != nil {
				return err
			}
			var line strings.Builder
			if err := t.Execute(&line, fields); err != nil {
				return base.UsageError("--output: %w", err)
			}
			if _, err := fmt.Fprintln(env.Stdout, strings.ReplaceAll(line.String(), "<no value>", "")); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func printSandboxes(env *base.Env, list []client.Sandbox, quiet, wide bool) error {
	switch {
	case quiet:
		for _, sb := range list {
			fmt.Fprintln(env.Stdout, sb.ID)
		}
		return nil
	case len(list) == 0:
		_, err := fmt.Fprintln(env.Stderr, "No sandboxes.")
		return err
	}
	headers := []string{"NAME", "ID", "STATE", "IMAGE", "MEMORY", "CPU", "AGE", "ENDS IN"}
	onWorkers := wide && slices.ContainsFunc(list, func(sb client.Sandbox) bool { return sb.Worker != "" })
	if wide {
		headers = append(headers, "DISK", "INTERNET", "CREATED BY", "LABELS")
	}
	if onWorkers {
		headers = append(headers, "WORKER")
	}
	var rows [][]string
	for _, sb := range list {
		state, left := string(sb.State), base.Until(sb.Deadline)
		if sb.ArchivedAt != nil {
			state += " (archived)"
		}
		if sb.State.Ended() {
			left = ""
			if sb.Cause != nil {
				state += " (" + sb.Cause.Code + ")"
			}
		}
		row := []string{sb.Name, sb.ID, state, sb.Image, sb.Resources.Memory, sb.Resources.CPU, base.Age(sb.CreatedAt), left}
		if wide {
			internet := "no"
			if sb.Network.Enabled {
				internet = "yes"
			}
			row = append(row, sb.Resources.Disk, internet, sb.CreatedBy, labels(sb.Labels))
		}
		if onWorkers {
			row = append(row, sb.Worker)
		}
		rows = append(rows, row)
	}
	return env.PrintTable(headers, rows)
}

// labels returns labels as KEY=VALUE, separated by commas.
func labels(m map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key+"="+m[key])
	}
	return strings.Join(list, ",")
}
