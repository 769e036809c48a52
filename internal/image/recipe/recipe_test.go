package recipe_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/internal/image/recipe"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
)

// good is a small recipe that the tests change.
const good = "name: a/b\ndate: 2025-01-02\ndebian: {suite: trixie}\nmemory: 64Mi\n"

func TestInvalidRecipes(t *testing.T) {
	if _, err := recipe.Load(fstest.MapFS{"recipe.yaml": {Data: []byte(good)}}); err != nil {
		t.Fatalf("the recipe that all cases change is not valid: %v", err)
	}
	npm := func(s string) string {
		return good + "npm: [{package: p, version: 1.2.3, integrity: sha512-x, " + s + "}]\n"
	}
	pip := good + "pip: [{package: p, version: 1.2.3, sha256: [" + strings.Repeat("0a", 32) + "]}]\n"
	if _, err := recipe.Load(fstest.MapFS{"recipe.yaml": {Data: []byte(pip)}}); err != nil {
		t.Fatalf("a recipe with a Python package is not valid: %v", err)
	}
	for name, c := range map[string]struct{ recipe, field string }{
		"pip_name":         {strings.Replace(pip, "package: p", "package: '-r x'", 1), "pip.package"},
		"pip_range":        {strings.Replace(pip, "1.2.3", "'>=1'", 1), "pip.version"},
		"pip_no_hash":      {strings.Replace(pip, strings.Repeat("0a", 32), "", 1), "pip.sha256"},
		"pip_hash":         {strings.Replace(pip, "0a0a", "0A0a", 1), "pip.sha256"},
		"empty":            {"", "name"},
		"unknown_key":      {good + "nmae: x\n", ""},
		"not_yaml":         {"\t:", ""},
		"name_upper":       {strings.Replace(good, "a/b", "A/b", 1), "name"},
		"name_with_tag":    {strings.Replace(good, "a/b", "a/b:c", 1), "name"},
		"name_of_registry": {strings.Replace(good, "a/b", "example.com/b", 1), "name"},
		"tag":              {good + "tag: 'a b'\n", "name"},
		"date":             {strings.Replace(good, "2025-01-02", "yesterday", 1), "date"},
		"suite_option":     {strings.Replace(good, "trixie", "--mode=root", 1), "debian.suite"},
		"package_option":   {strings.Replace(good, "trixie", "trixie, packages: ['-x']", 1), "debian.packages"},
		"package_list":     {strings.Replace(good, "trixie", "trixie, packages: ['a,b']", 1), "debian.packages"},
		"exclude":          {strings.Replace(good, "trixie", "trixie, exclude_files: ['/a b']", 1), "debian.exclude_files"},
		"setup_outside":    {good + "setup: ../x\n", "setup"},
		"setup_missing":    {good + "setup: x.sh\n", "setup"},
		"future_dated":     {good + "future_dated: [../x]\n", "future_dated"},
		"memory":           {strings.Replace(good, "64Mi", "63Mi", 1), "memory"},
		"memory_text":      {strings.Replace(good, "64Mi", "lots", 1), "memory"},
		"ttl":              {good + "ttl: 30s\n", "ttl"},
		"working_dir":      {good + "config: {working_dir: x}\n", "config.working_dir"},
		"env":              {good + "config: {env: {'A=B': x}}\n", "config.env"},
		"pull_reference":   {"name: a/b\npull: 'A b'\nmemory: 64Mi\n", "pull"},
		"pull_and_build":   {good + "pull: a/b:c\n", "pull"},
		"pull_memory":      {"name: a/b\npull: a/b:c\n", "memory"},
		"npm_name":         {strings.Replace(npm(""), "package: p", "package: ../p", 1), "npm.package"},
		"npm_range":        {strings.Replace(npm(""), "1.2.3", "^1.2.3", 1), "npm.version"},
		"npm_integrity":    {strings.Replace(npm(""), "sha512-x", "sha1-x", 1), "npm.integrity"},
		"npm_from":         {npm("files: {../x: /x}"), "npm.files"},
		"npm_to":           {npm("files: {x: /../x}"), "npm.files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := recipe.Load(fstest.MapFS{"recipe.yaml": {Data: []byte(c.recipe)}})
			wantCode(t, "LoadRecipe", err, sandbox.Invalid)
			if got := fieldOf(err); got != c.field {
				t.Errorf("the error is about %q, want %q: %v", got, c.field, err)
			}
		})
	}
}

func TestRecipeFrom(t *testing.T) {
	parent, err := recipe.Load(fstest.MapFS{
		"recipe.yaml": {Data: []byte(good + "\nconfig: {user: u, working_dir: /w, env: {A: parent, B: parent}}\nreadiness_port: 80")},
	})
	if err != nil {
		t.Fatal(err)
	}
	child := func(text string) *recipe.Recipe {
		t.Helper()
		r, err := recipe.Load(fstest.MapFS{
			"recipe.yaml":  {Data: []byte("name: c/d\nfrom: " + parent.Ref() + "\n" + text)},
			"runtime.yaml": {Data: []byte("tags: [x]\nrequires: {memory: 1Gi, cpu: 500m, network: true}")},
		}, parent)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := child("config: {env: {B: child}}")
	want := spec.Config{User: "u", WorkingDir: "/w", Env: []string{"A=parent", "B=child"}}
	if diff := cmp.Diff(want, r.Image().Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if got, want := r.Image().MemoryBytes, parent.Image().MemoryBytes; got != want || r.Image().ReadinessPort != 0 {
		t.Errorf("memory %d and readiness port %d, want the parent's %d and none", got, r.Image().ReadinessPort, want)
	}
	if r.Hash() == child("config: {env: {B: other}}").Hash() || r.Hash() == parent.Hash() {
		t.Error("different recipes have the same hash")
	}
	_, err = recipe.Load(fstest.MapFS{"recipe.yaml": {Data: []byte("name: c/d\nfrom: " + parent.Ref())}})
	wantCode(t, "LoadRecipe without its parent", err, sandbox.NotFound)
}

func TestRuntimeFile(t *testing.T) {
	load := func(runtime string) ([]*recipe.Recipe, error) {
		return recipe.LoadAll(fstest.MapFS{
			"x/recipe.yaml":  {Data: []byte(good)},
			"x/runtime.yaml": {Data: []byte(runtime)},
		})
	}
	list, err := load("icon: https://i.test/x\ncolor: '#102030'\nurl: https://x.test\ntags: [a, b]\nrequires: {memory: 1Gi, cpu: 500m, network: true}\nreadme: hello")
	if err != nil || len(list) != 1 || list[0].Runtime() == nil {
		t.Fatalf("LoadAll() = %+v, %v, want a runtime", list, err)
	}
	got := *list[0].Runtime()
	want := spec.Runtime{
		ID: got.ID, Name: got.Name, Image: got.Image, Description: got.Description,
		IconURL: "https://i.test/x", Color: "#102030", URL: "https://x.test", Tags: []string{"a", "b"},
		Requires: sandbox.Resources{MemoryBytes: 1 << 30, CPUMilli: 500}, NeedsNetwork: true, Readme: "hello",
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Image != list[0].Ref() {
		t.Errorf("runtime (-want +got):\n%s", diff)
	}
	for name, runtime := range map[string]string{
		"color": "color: red", "icon": "icon: http://x", "url": "url: ftp://x", "requires.memory": "requires: {memory: much}", "runtime.yaml": "unknown: 1",
	} {
		if _, err := load(runtime); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("runtime.yaml %q: %v, want %s refused", runtime, err, name)
		}
	}
}
