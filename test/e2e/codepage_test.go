package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// TestCodePage runs the shell and the Go of docs/run-code.md, one after the other in one sandbox, and compares what
// their comments say. A test of the Python client runs the page's Python.
func TestCodePage(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "run-code.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string) string {
		t.Helper()
		found := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
		if len(found) != 1 {
			t.Fatalf("the page has %d blocks of %s, and this test knows of 1", len(found), language)
		}
		return found[0][1]
	}
	s := testserver.Start(t)
	s.MustCreate(client.CreateOptions{Name: "demo", Image: "modbox/data"})
	execute := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "SERVER="+s.URL, "TOKEN="+s.Token, "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
		return string(out)
	}

	shell := block("sh")
	_, comment, _ := strings.Cut(shell, "\n# ")
	answer := func(text string) (v map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if _, ok := v["duration_ms"].(float64); !ok {
			t.Errorf("%s has no duration_ms", text)
		}
		delete(v, "duration_ms")
		return v
	}
	if d := cmp.Diff(answer(strings.ReplaceAll(comment, "\n#", "")), answer(execute("bash", "-c", shell))); d != "" {
		t.Errorf("the answer (-page +got):\n%s", d)
	}

	code := block("go")
	said := regexp.MustCompile(`// (\S+) is (.+)\n`).FindStringSubmatch(code)
	if said == nil {
		t.Fatalf("no comment names a value: %s", code)
	}
	program := `package main

import (
	"context"
	"fmt"
	"os"

	"github.com/modbox/modbox/client/sandbox"
)

func main() {
	ctx := context.Background()
` + code + `
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(` + said[1] + `)
}
`
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(execute("go", "run", file)); got != said[2] {
		t.Errorf("%s is %q, and the page says %s", said[1], got, said[2])
	}
}
