package program_test

import (
	"reflect"
	"testing"

	"github.com/modbox/modbox/internal/program"
)

func TestOf(t *testing.T) {
	source := func(language string, sources ...string) program.Use {
		return program.Use{Language: language, Sources: sources}
	}
	for _, tc := range []struct {
		argv []string
		want program.Use
	}{
		{nil, program.Use{}},
		{[]string{"ls", "-c", "x"}, program.Use{}},
		{[]string{"python3", "-c", "x"}, source("python", "x")},
		{[]string{"/usr/bin/python3.13", "-IuBc", "x", "-c", "y"}, source("python", "x")},
		{[]string{"python", "-cx", "y"}, source("python", "x")},
		{[]string{"python3", "-X", "utf8", "-W", "ignore", "-Xdev", "-c", "x"}, source("python", "x")},
		{[]string{"python3", "-m", "http.server", "-c", "x"}, program.Use{Language: "python"}},
		{[]string{"python3", "a.py", "-c", "x"}, program.Use{Language: "python", File: "a.py"}},
		{[]string{"python3", "-u", "-", "a"}, program.Use{Language: "python", Stdin: true}},
		{[]string{"python3"}, program.Use{Language: "python", Stdin: true}},
		{[]string{"python3", "-c"}, program.Use{Language: "python"}},
		{[]string{"bash", "-sc", "x"}, source("bash", "x")},
		{[]string{"bash", "-c", "x", "name"}, source("bash", "x")},
		{[]string{"/bin/sh", "-ec", "x"}, source("bash", "x")},
		{[]string{"bash", "-c", "-x", "+e", "x"}, source("bash", "x")},
		{[]string{"bash", "-o", "pipefail", "-lc", "x"}, source("bash", "x")},
		{[]string{"bash", "--rcfile", "f", "-c", "--", "x"}, source("bash", "x")},
		{[]string{"bash", "-s", "x"}, program.Use{Language: "bash", Stdin: true}},
		{[]string{"bash", "run.sh", "-c", "x"}, program.Use{Language: "bash", File: "run.sh"}},
		{[]string{"node", "-e", "x", "-e", "y"}, source("javascript", "x", "y")},
		{[]string{"node", "-pe", "x"}, source("javascript", "x")},
		{[]string{"nodejs", "-r", "esm", "--input-type", "module", "--eval=x"}, source("javascript", "x")},
		{[]string{"bun", "--print", "x"}, source("javascript", "x")},
		{[]string{"node", "--no-warnings", "a.js", "-e", "x"}, program.Use{Language: "javascript", File: "a.js"}},
		{[]string{"node", "-"}, program.Use{Language: "javascript", Stdin: true}},
		{[]string{"deno", "eval", "--quiet", "x"}, source("typescript", "x")},
		{[]string{"perl", "-E", "x"}, source("perl", "x")},
		{[]string{"php", "-r", "x"}, source("php", "x")},
		{[]string{"Rscript", "-e", "x"}, source("r", "x")},
		{[]string{"env", "-i", "-u", "A", "B=c", "python3", "-c", "x"}, source("python", "x")},
		{[]string{"/usr/bin/timeout", "-s", "KILL", "5", "nice", "-n", "3", "bash", "-c", "x"}, source("bash", "x")},
		{[]string{"busybox", "sh", "-c", "x"}, source("bash", "x")},
		{[]string{"env"}, program.Use{}},
	} {
		if got := program.Of(tc.argv); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("Of(%q) = %+v, want %+v", tc.argv, got, tc.want)
		}
	}
}

func TestLanguage(t *testing.T) {
	for file, want := range map[string]string{"/a/b.py": "python", "x.MJS": "javascript", "x.ts": "typescript", "run.sh": "bash", "a.txt": "", "py": ""} {
		if got := program.Language(file); got != want {
			t.Errorf("Language(%q) = %q, want %q", file, got, want)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("env", "bash", "-c", "x")
	f.Add("python3", "-Xc", "--", "-")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		u := program.Of([]string{a, b, c, d})
		if u.Stdin && len(u.Sources) > 0 || u.Language == "" && (len(u.Sources) > 0 || u.File != "" || u.Stdin) {
			t.Errorf("%+v", u)
		}
	})
}
