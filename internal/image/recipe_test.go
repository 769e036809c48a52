package image_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/modbox/modbox/images"
	"github.com/modbox/modbox/internal/image"
	"github.com/modbox/modbox/internal/sandbox"
)

func TestInvalidRecipes(t *testing.T) {
	const good = "name: a/b\ndate: 2025-01-02\ndebian: {suite: trixie}\nmemory: 64Mi\n"
	if _, err := image.LoadRecipe(fstest.MapFS{"recipe.yaml": {Data: []byte(good)}}); err != nil {
		t.Fatalf("the recipe that all cases change is not valid: %v", err)
	}
	npm := func(s string) string {
		return good + "npm: [{package: p, version: 1.2.3, integrity: sha512-x, " + s + "}]\n"
	}
	for name, c := range map[string]struct{ recipe, field string }{
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
		"npm_name":         {strings.Replace(npm(""), "package: p", "package: ../p", 1), "npm.package"},
		"npm_range":        {strings.Replace(npm(""), "1.2.3", "^1.2.3", 1), "npm.version"},
		"npm_integrity":    {strings.Replace(npm(""), "sha512-x", "sha1-x", 1), "npm.integrity"},
		"npm_from":         {npm("files: {../x: /x}"), "npm.files"},
		"npm_to":           {npm("files: {x: /../x}"), "npm.files"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := image.LoadRecipe(fstest.MapFS{"recipe.yaml": {Data: []byte(c.recipe)}})
			wantCode(t, "LoadRecipe", err, sandbox.Invalid)
			if got := fieldOf(err); got != c.field {
				t.Errorf("the error is about %q, want %q: %v", got, c.field, err)
			}
		})
	}
}

func TestBuiltinRecipes(t *testing.T) {
	s, err := image.Open(t.TempDir(), images.FS, image.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Name != "modbox/code-exec" || !list[0].IsDefault || list[1].Name != "modbox/base" || list[1].IsDefault {
		t.Errorf("List() = %+v, want modbox/code-exec as default, and modbox/base", list)
	}
	if got := list[0].Config; got.User != "user" || got.WorkingDir != "/workspace" {
		t.Errorf("config of modbox/code-exec = %+v", got)
	}
}
