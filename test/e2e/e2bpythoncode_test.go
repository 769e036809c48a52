package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modbox/modbox/test/testserver"
)

// execute runs code as the Python client does, with all members of the body, and returns the lines by their type.
func (c *pythonClient) execute(t *testing.T, body string) map[string][]map[string]any {
	t.Helper()
	a := c.send("POST", "/execute", body, c.inside("49999", "Content-Type", "application/json")...)
	if a.StatusCode != http.StatusOK {
		t.Fatalf("execute %s = %d %s", body, a.StatusCode, a.text)
	}
	all := map[string][]map[string]any{}
	for line := range strings.SplitSeq(strings.TrimSuffix(a.text, "\n"), "\n") {
		var v map[string]any
		into(t, line, &v)
		kind, _ := v["type"].(string)
		all[kind] = append(all[kind], v)
	}
	return all
}

// TestE2BPythonCode sends what the Python code interpreter sends.
func TestE2BPythonCode(t *testing.T) {
	c := newPython(t, testserver.Start(t), "code-interpreter-v1")
	run := func(code, context string) string {
		return fmt.Sprintf(`{"code":%q,"context_id":%s,"language":null,"env_vars":null}`, code, context)
	}
	got := c.execute(t, run("x = 20\nprint('out')\nx + 1", "null"))
	if len(got["stdout"]) != 1 || got["stdout"][0]["text"] != "out\n" || got["result"][0]["text"] != "21" || got["result"][0]["is_main_result"] != true ||
		got["number_of_executions"][0]["execution_count"] != 1.0 || len(got["error"]) != 0 {
		t.Errorf("first run = %v", got)
	}
	if got := c.execute(t, run("1/0", "null")); len(got["error"]) != 1 || got["error"][0]["name"] != "ZeroDivisionError" || !strings.Contains(fmt.Sprint(got["error"][0]["traceback"]), "ZeroDivisionError") {
		t.Errorf("an error = %v", got)
	}
	var made struct{ ID, Language, Cwd string }
	a := c.send("POST", "/contexts", `{"language":"python","cwd":"/tmp"}`, c.inside("49999", "Content-Type", "application/json")...)
	if into(t, a.text, &made); a.StatusCode != http.StatusOK || made.Language != "python" || made.Cwd != "/tmp" {
		t.Errorf("context = %d %s", a.StatusCode, a.text)
	}
	context := `"` + made.ID + `"`
	if got := c.execute(t, run("import os; os.getcwd()", context)); got["result"][0]["text"] != "/tmp" {
		t.Errorf("in a context = %v", got)
	}
	for _, call := range [][2]string{{"POST", "/restart"}, {"DELETE", ""}} {
		if a := c.send(call[0], "/contexts/"+made.ID+call[1], "", c.inside("49999")...); a.StatusCode != http.StatusOK || a.text != "null\n" {
			t.Errorf("%s %s = %d %q", call[0], call[1], a.StatusCode, a.text)
		}
	}
	// The clients show the text of this status to their users.
	for _, tc := range [][2]string{
		{run("1", context), "not found"},
		{`{"code":"1","language":"r"}`, "apt_packages r-cran-irkernel"},
		{`{"code":"1","language":"java"}`, "apt_packages default-jdk-headless"},
		{`{"code":"1","language":"cobol"}`, `"cobol" is not known; known are python, javascript, typescript, bash, r and java`},
	} {
		if a := c.send("POST", "/execute", tc[0], c.inside("49999", "Content-Type", "application/json")...); a.StatusCode != http.StatusNotFound || !strings.Contains(a.text, tc[1]) {
			t.Errorf("execute %s = %d %q, want 404 and %q", tc[0], a.StatusCode, a.text, tc[1])
		}
	}
	if a := c.send("POST", "/contexts", `{"language":"java"}`, c.inside("49999", "Content-Type", "application/json")...); a.StatusCode != http.StatusNotFound || !strings.Contains(a.text, "java needs a JDK") {
		t.Errorf("context of Java = %d %q", a.StatusCode, a.text)
	}
	c.interrupt(t)
	if got := c.execute(t, run("x + 1 + 1", "null")); got["result"][0]["text"] != "22" {
		t.Errorf("after an interruption = %v", got)
	}
}

// interrupt leaves while code runs.
func (c *pythonClient) interrupt(t *testing.T) {
	t.Helper()
	ctx, leave := context.WithCancel(c.ctx)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, "POST", c.server+"/execute", strings.NewReader(`{"code":"print('begun', flush=True)\nimport time; time.sleep(1000)"}`))
	if err != nil {
		t.Fatal(err)
	}
	headers := c.inside("49999", "Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "begun") {
		t.Fatalf("first line = %q, %v", line, err)
	}
}
