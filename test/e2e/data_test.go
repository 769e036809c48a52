package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// dataImage has Python with the packages for data, and Node.js.
const dataImage = "modbox/data"

// run runs code of a language.
func (c cells) run(language, code string) *client.CodeResult {
	c.t.Helper()
	res, err := c.runCode(c.t.Context(), code, client.CodeOptions{Language: language})
	if err != nil {
		c.t.Fatalf("%s %q: %v", language, code, err)
	}
	return res
}

// value runs code and compares its status and the text of its value.
func (c cells) value(language, code, want string) {
	c.t.Helper()
	res := c.run(language, code)
	var got any
	for _, out := range res.Results {
		if out.Main {
			got = out.Data["text/plain"]
		}
	}
	if got != want || res.Status != "ok" {
		c.t.Errorf("%s %q = %+v, want the value %s", language, code, res, want)
	}
}

// format returns the only value of a run in a format.
func (c cells) format(code, mime string) any {
	c.t.Helper()
	res := c.run("python", code)
	if len(res.Results) != 1 || res.Results[0].Data[mime] == nil {
		c.t.Fatalf("python %q = %+v, want one result with %s", code, res, mime)
	}
	return res.Results[0].Data[mime]
}

// image compares the beginning of a value that is an image.
func (c cells) image(code, mime, begin string) {
	c.t.Helper()
	text, _ := c.format(code, mime).(string)
	if mime != "image/svg+xml" {
		data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			c.t.Errorf("python %q: %v", code, err)
		}
		text = string(data)
	}
	if !strings.HasPrefix(text, begin) || len(text) < 1000 {
		c.t.Errorf("python %q = %d bytes of %s: %.40q", code, len(text), mime, text)
	}
}

// startData creates a sandbox of the data image and waits until its interpreter has started.
func startData(t *testing.T, s *testserver.Server) (*client.Sandbox, cells) {
	t.Helper()
	sb := s.MustCreate(client.CreateOptions{Image: dataImage})
	c := cells{t, s.Client, sb.ID}
	for {
		all, err := c.contexts().Collect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 1 && all[0].State == "idle" {
			if all[0].ID != "python" || all[0].Cwd != "/workspace" || all[0].Restarts != 0 {
				t.Errorf("context of a new sandbox = %+v", all[0])
			}
			return sb, c
		}
		time.Sleep(20 * time.Millisecond) // polling a process of the sandbox
	}
}

// TestData runs code in a sandbox of the data image, whose interpreter starts with the sandbox.
func TestData(t *testing.T) {
	s := testserver.Start(t)
	sb, c := startData(t, s)

	t.Run("packages", func(t *testing.T) {
		res := c.run("python", `import importlib
for name in "numpy pandas scipy sklearn matplotlib seaborn PIL requests openpyxl ipykernel".split():
    print(name, importlib.import_module(name).__version__)`)
		t.Logf("\n%s", res.Stdout)
		if res.Status != "ok" || strings.Count(res.Stdout, "\n") != 10 {
			t.Errorf("imports = %+v", res)
		}
		c.value("python", "import sys; 'debugpy' in sys.modules", "False")
		c.value("python", "import os; os.getuid(), os.getcwd(), os.environ['MODBOX_SANDBOX_ID'] == '"+sb.ID+"'", "(1000, '/workspace', True)")
		c.value("python", "import numpy as np; float(np.linalg.det(np.eye(300)))", "1.0")
	})
	t.Run("plots", func(t *testing.T) {
		c.image("import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]);", "image/png", "\x89PNG\r\n")
		c.image("import seaborn\nax = seaborn.histplot([1, 2, 2, 3])", "image/png", "\x89PNG\r\n")
		c.run("python", "from matplotlib_inline.backend_inline import set_matplotlib_formats\nset_matplotlib_formats('svg')")
		c.image("plt.plot([1, 4, 9]);", "image/svg+xml", "<?xml")
		c.run("python", "set_matplotlib_formats('jpeg')")
		c.image("plt.plot([1, 4, 9]);", "image/jpeg", "\xff\xd8\xff")
		c.run("python", "set_matplotlib_formats('pdf')")
		c.image("plt.plot([1, 4, 9]);", "application/pdf", "%PDF-")
		c.run("python", "set_matplotlib_formats('png')")
	})
	t.Run("formats", func(t *testing.T) {
		c.run("python", "from IPython.display import HTML, JSON, Latex, Markdown")
		for _, tt := range []struct {
			code, mime string
			want       any
		}{
			{"HTML('<b>x</b>')", "text/html", "<b>x</b>"},
			{"Markdown('**x**')", "text/markdown", "**x**"},
			{"Latex('$x^2$')", "text/latex", "$x^2$"},
			{"JSON({'a': [1, None]})", "application/json", map[string]any{"a": []any{1., nil}}},
		} {
			if diff := cmp.Diff(tt.want, c.format(tt.code, tt.mime)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.code, diff)
			}
		}
	})
	t.Run("charts", func(t *testing.T) {
		chart, _ := c.format("plt.plot([1, 2], [3, 4.5], label='a'); plt.title('T'); plt.xlabel('time (s)');", "application/vnd.modbox.chart+json").(map[string]any)
		want := map[string]any{"type": "line", "title": "T", "x_label": "time (s)", "x_unit": "s", "elements": []any{
			map[string]any{"label": "a", "points": []any{[]any{1., 3.}, []any{2., 4.5}}},
		}}
		for key, value := range want {
			if diff := cmp.Diff(value, chart[key]); diff != "" {
				t.Errorf("%s of the chart (-want +got):\n%s", key, diff)
			}
		}
	})
	t.Run("tables", func(t *testing.T) {
		const code = "import pandas as pd\npd.DataFrame({'n': [1, 2], 's': ['x', None]})"
		if text, _ := c.format(code, "text/html").(string); !strings.Contains(text, "<table") {
			t.Errorf("data frame as HTML = %q", text)
		}
		table, _ := c.format(code, "application/vnd.dataresource+json").(map[string]any)
		rows := []any{map[string]any{"index": 0., "n": 1., "s": "x"}, map[string]any{"index": 1., "n": 2., "s": nil}}
		if diff := cmp.Diff(rows, table["data"]); diff != "" || table["total_rows"] != 2. {
			t.Errorf("data frame = %v (-want +got):\n%s", table, diff)
		}
		table, _ = c.format("pd.DataFrame({'n': range(100000)})", "application/vnd.dataresource+json").(map[string]any)
		if rows, _ := table["data"].([]any); len(rows) != 1000 || table["total_rows"] != 100000. {
			t.Errorf("%d rows of a large data frame, total %v", len(rows), table["total_rows"])
		}
	})
	t.Run("errors", func(t *testing.T) {
		res := c.run("python", "def f(x):\n    return 1 / x\nf(0)")
		if res.Status != "error" || res.Error == nil || res.Error.Name != "ZeroDivisionError" || res.Error.Value != "division by zero" {
			t.Fatalf("an error = %+v", res)
		}
		if text := strings.Join(res.Error.Traceback, "\n"); !strings.Contains(text, "Traceback") || strings.Count(text, "line 2") == 0 && !strings.Contains(text, "2") {
			t.Errorf("traceback:\n%s", text)
		}
		if res := c.run("python", "if x"); res.Error == nil || res.Error.Name != "SyntaxError" {
			t.Errorf("code with a mistake = %+v", res)
		}
	})
	t.Run("order", func(t *testing.T) {
		var got []string
		err := c.stream(t.Context(), `import sys
print("a", flush=True)
display(1)
print("b", file=sys.stderr, flush=True)
display(2)
print("c", flush=True)
3`, client.CodeOptions{}, func(ev client.CodeEvent) error {
			text := strings.TrimSpace(ev.Text)
			if ev.Result != nil {
				text = fmt.Sprint(ev.Result.Data["text/plain"])
			}
			got = append(got, strings.TrimSpace(ev.Type+" "+text))
			return nil
		})
		want := []string{"started", "stdout a", "result 1", "stderr b", "result 2", "stdout c", "result 3", "end"}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("events: %v (-want +got):\n%s", err, diff)
		}
	})
	t.Run("interrupts", func(t *testing.T) { interruptData(t, c) })
	t.Run("side by side", func(t *testing.T) {
		second, err := c.client.Sandboxes.Contexts.Create(t.Context(), c.id, client.ContextOptions{Language: "python", Cwd: "/tmp"})
		if err != nil {
			t.Fatal(err)
		}
		c.run("python", "side = 1")
		ended := make(chan error, 1)
		go func() {
			res, err := c.runCode(t.Context(), "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint(os.getcwd(), 'side' in globals())", client.CodeOptions{ContextID: second.ID})
			if err == nil && res.Stdout != "/tmp False\n" {
				err = fmt.Errorf("%+v", res)
			}
			ended <- err
		}()
		c.value("python", "open('/tmp/go', 'w').write('x'); side", "1")
		if err := <-ended; err != nil {
			t.Errorf("code in the second context: %v", err)
		}
	})
	t.Run("javascript", func(t *testing.T) {
		c.value("javascript", "const n = await Promise.resolve(20); n + 1", "21")
		c.value("javascript", "const n = 4; [n, process.version.split('.')[0]]", "[ 4, 'v22' ]")
		if res := c.run("javascript", "null.x"); res.Error == nil || res.Error.Name != "TypeError" {
			t.Errorf("an error = %+v", res)
		}
		c.value("typescript", "interface P { a: number }\nconst p: P = { a: 3 }; p.a as number", "3")
	})
}

// interruptData interrupts code by its context and by its timeout, after which it still has its state.
func interruptData(t *testing.T, c cells) {
	c.run("python", "kept = 7")
	for _, code := range []string{"while True: pass", "import time; time.sleep(1000)", "import subprocess; subprocess.run(['sleep', '1000'])"} {
		var status string
		err := c.stream(t.Context(), "print('go', flush=True)\n"+code, client.CodeOptions{}, func(ev client.CodeEvent) error {
			if ev.Type == "stdout" {
				if err := c.client.Sandboxes.Contexts.Interrupt(t.Context(), c.id, "python"); err != nil {
					return err
				}
			}
			status += ev.Status
			return nil
		})
		if err != nil || status != "interrupted" {
			t.Errorf("interrupted %q = %s, %v", code, status, err)
		}
		res, err := c.runCode(t.Context(), code, client.CodeOptions{Timeout: time.Second})
		if err != nil || res.Status != "timed_out" || res.Error == nil || res.Error.Name != "KeyboardInterrupt" {
			t.Errorf("%q with a timeout = %+v, %v", code, res, err)
		}
		c.value("python", "kept", "7")
	}
}

// notebook is a session of cells in a sandbox.
type notebook struct {
	cells
	count, total int
}

// interrupted runs the next cell, which never ends, and interrupts it when it has begun.
func (n *notebook) interrupted(i int) {
	n.t.Helper()
	n.count++
	var status string
	var count int
	err := n.stream(n.t.Context(), "print('go', flush=True)\nwhile True: pass", client.CodeOptions{}, func(ev client.CodeEvent) error {
		status, count = ev.Status, ev.ExecutionCount
		if ev.Type == "stdout" {
			return n.client.Sandboxes.Contexts.Interrupt(n.t.Context(), n.id, "python")
		}
		return nil
	})
	if err != nil || status != "interrupted" || count != n.count {
		n.t.Fatalf("cell %d is %q with the execution count %d, %v; want interrupted and %d", i, status, count, err, n.count)
	}
}

// cell runs the next cell: a value, a plot, an error, an interrupt or a timeout.
func (n *notebook) cell(i int) {
	n.t.Helper()
	if i%10 == 9 {
		n.interrupted(i)
		return
	}
	code, status := fmt.Sprintf("total += %d\ntotal", i), "ok"
	o := client.CodeOptions{}
	switch i % 10 {
	case 3:
		code = "import matplotlib.pyplot as plt\nplt.plot(range(total));"
	case 6:
		code, status = "total / 0", "error"
	case 8:
		code, status = "import time\nwhile True: time.sleep(0.01)", "timed_out"
		o.Timeout = time.Second
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Minute)
	defer cancel()
	res, err := n.runCode(ctx, code, o)
	if err != nil {
		n.t.Fatalf("cell %d: %v", i, err)
	}
	n.count++
	if res.Status != status || res.Restarted || res.ExecutionCount != n.count {
		n.t.Fatalf("cell %d = %+v, want %s and the execution count %d", i, res, status, n.count)
	}
	has := func(mime string, want any) bool {
		return slices.ContainsFunc(res.Results, func(out client.CodeOutput) bool {
			return out.Data[mime] != nil && (want == nil || out.Data[mime] == want)
		})
	}
	switch {
	case i%10 == 3 && !has("image/png", nil):
		n.t.Errorf("cell %d has no plot: %+v", i, res)
	case code[0] == 't' && status == "ok":
		n.total += i
		if !has("text/plain", fmt.Sprint(n.total)) {
			n.t.Errorf("cell %d = %+v, want %d", i, res, n.total)
		}
	}
}

// TestNotebook is a session of 50 cells that goes on over a pause, a resume and a fork, in both sandboxes.
func TestNotebook(t *testing.T) {
	s := testserver.Start(t)
	sb, c := startData(t, s)
	n := &notebook{cells: c}
	c.run("python", "total = 0")
	n.count = 1
	for i := 1; i <= 15; i++ {
		n.cell(i)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sandboxes.Resume(t.Context(), sb.ID, client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := 16; i <= 25; i++ {
		n.cell(i)
	}
	if _, err := s.Sandboxes.Pause(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	for i := 26; i <= 35; i++ { // the first wakes it
		n.cell(i)
	}
	forks, err := s.Sandboxes.Fork(t.Context(), sb.ID, client.ForkOptions{})
	if err != nil || forks[0].Err != nil {
		t.Fatal(err, forks)
	}
	f := *n
	f.cells = cells{t, s.Client, forks[0].Sandbox.ID}
	c.run("python", "side = 'parent'")
	f.run("python", "side = 'fork'")
	n.count, f.count = n.count+1, f.count+1
	for i := 36; i <= 50; i++ {
		n.cell(i)
		f.cell(i)
	}
	c.value("python", "side", "'parent'")
	f.value("python", "side", "'fork'")
}
