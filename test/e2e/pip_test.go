package e2e_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/test/testserver"
)

// wheel returns a Python package that has a module of its name with the constant VERSION.
func wheel(t *testing.T, name, version, metadata string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var record strings.Builder
	for _, f := range [][2]string{
		{name + ".py", fmt.Sprintf("VERSION = %q\n", version)},
		{info + "METADATA", fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n%s", name, version, metadata)},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	} {
		w, err := z.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&record, "%s,,\n", f[0])
	}
	w, err := z.Create(info + "RECORD")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(w, "%s%sRECORD,,\n", &record, info); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// packageIndex serves wheels at every address of the host and returns its port.
func packageIndex(t *testing.T, wheels map[string][]byte) int {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, ok := wheels[path.Base(r.URL.Path)]; ok {
			_, _ = w.Write(data)
			return
		}
		prefix := path.Base(r.URL.Path) + "-"
		w.Header().Set("Content-Type", "text/html")
		for name := range wheels {
			if strings.HasPrefix(name, prefix) {
				fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a>\n", name, name)
			}
		}
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // ends with Shutdown
	}()
	t.Cleanup(func() {
		_ = srv.Shutdown(context.WithoutCancel(t.Context()))
		<-done
	})
	return l.Addr().(*net.TCPAddr).Port
}

func TestPipPackages(t *testing.T) {
	t.Parallel() // it waits for mirrors
	host := outward(t)
	port := packageIndex(t, map[string][]byte{
		"hello-1.0-py3-none-any.whl": wheel(t, "hello", "1.0", "Provides-Extra: loud\nRequires-Dist: shout; extra == 'loud'\n"),
		"hello-2.0-py3-none-any.whl": wheel(t, "hello", "2.0", ""),
		"shout-3.1-py3-none-any.whl": wheel(t, "shout", "3.1", ""),
	})
	s := testserver.Start(t, "--network-allow-cidrs", host, "--build-pip-index-url", fmt.Sprintf("http://%s:%d/simple", host, port))
	create := func(o client.CreateOptions) *client.Sandbox {
		t.Helper()
		o.WaitUpTo = 8 * time.Minute
		sb, err := s.Sandboxes.Create(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	sb := create(client.CreateOptions{Image: codeExec, PipPackages: []string{"hello[loud]==1.*"}})
	if sb.State != client.Running || len(sb.PipPackages) != 1 || sb.Network.Enabled {
		t.Fatalf("sandbox %+v, cause %+v", sb, sb.Cause)
	}
	// Every user's Python finds them, and no virtual environment is active.
	const ask = "python3 -c 'import hello, shout; print(hello.VERSION, shout.VERSION)'"
	for _, line := range []string{ask, "sudo " + ask, "cd / && /usr/bin/" + ask} {
		if res := s.Bash(sb.ID, line, time.Minute); string(res.Stdout) != "1.0 3.1\n" {
			t.Errorf("%s: %d %q %q", line, res.ExitCode, res.Stdout, lastOf(res.Stderr))
		}
	}
	again := create(client.CreateOptions{Image: codeExec, PipPackages: []string{"hello[loud]==1.*"}})
	if again.ImageDigest != sb.ImageDigest {
		t.Errorf("the same packages gave root filesystem %s, before %s", again.ImageDigest, sb.ImageDigest)
	}
	t.Run("snapshot build", func(t *testing.T) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"modbox-snapshot.yaml": "version: 1\nruntime: " + codeExec + "\nname: with-pip\npip_packages: ['hello==2.*']\n"})
		buildSnapshot(t, s, dir)
		sb := create(client.CreateOptions{Snapshot: "with-pip"})
		if res := s.Bash(sb.ID, "python3 -c 'import hello; print(hello.VERSION)'", time.Minute); string(res.Stdout) != "2.0\n" {
			t.Errorf("in a sandbox of the snapshot: %d %q %q", res.ExitCode, res.Stdout, lastOf(res.Stderr))
		}
	})
	t.Run("command line", func(t *testing.T) {
		out, errOut, code := run(t, s, "", "run", "--pip", "hello==2.*", codeExec, "--", "python3", "-c", "import hello; print(hello.VERSION)")
		if out != "2.0\n" || code != 0 {
			t.Errorf("run = %q %q %d", out, errOut, code)
		}
	})
	t.Run("Python", func(t *testing.T) { pipInPython(t, s) })
	t.Run("TypeScript", func(t *testing.T) { pipInTypeScript(t, s) })
	for name, c := range map[string]struct {
		image, pkg, want string
	}{
		"no such package": {codeExec, "no-such-package", "the index has no Python package no-such-package"},
		"no such version": {codeExec, "hello==9", "the index has no Python package hello==9"},
		"no pip":          {"modbox/base", "hello", "has no pip; with Debian, add python3-pip to apt_packages"},
	} {
		t.Run(name, func(t *testing.T) {
			sb := create(client.CreateOptions{Image: c.image, PipPackages: []string{c.pkg}})
			if sb.Cause == nil || sb.Cause.Code != "image" || !strings.Contains(sb.Cause.Message, c.want) {
				t.Errorf("sandbox is %s, cause %+v, want %q", sb.State, sb.Cause, c.want)
			}
		})
	}
}

// pipProgram creates a sandbox and builds a snapshot with Python packages.
const pipProgram = `
import modbox
ask = "python3 -c 'import hello; print(hello.VERSION)'"
with modbox.Sandbox.create(image="` + codeExec + `", pip_packages=["hello==2.*"]) as sbx:
    print(sbx.run(ask).stdout, end="")
with modbox.ModboxClient() as client:
    for event in client.snapshots.build_stream("` + codeExec + `", name="pip-in-python", pip_packages=["hello==1.*"]):
        pass
    with client.sandboxes.temporary(snapshot=event.snapshot.id, ttl_seconds=3600, wait_seconds=600) as sandbox:
        print(client.sandboxes.exec(sandbox.id, shell=ask).stdout, end="")
    client.snapshots.delete(event.snapshot.id)
    try:
        modbox.Sandbox.create(image="` + codeExec + `", pip_packages=["no-such-package"])
    except modbox.ModboxError as error:
        print(error)
`

// pipInPython has the Python client install packages.
func pipInPython(t *testing.T, s *testserver.Server) {
	source, err := filepath.Abs("../../sdk/python/src")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", pipProgram)
	cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token, "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "2.0\n1.0\n") || !strings.Contains(string(out), "the index has no Python package no-such-package") {
		t.Errorf("%v: %s", err, out)
	}
}

// pipScript does in TypeScript's client what pipProgram does in Python's.
const pipScript = `
import { Modbox, ModboxError, Sandbox } from "./esm/index.js";
const image = "` + codeExec + `", ask = "python3 -c 'import hello; print(hello.VERSION)'";
const sbx = await Sandbox.create({ image, pipPackages: ["hello==2.*"] });
process.stdout.write((await sbx.run(ask)).stdout);
await sbx.delete();
const client = new Modbox();
let last;
for await (const event of client.snapshots.buildStream(image, { name: "pip-in-typescript", pipPackages: ["hello==1.*"] })) last = event;
const of = await Sandbox.create({ snapshot: last.snapshot.id });
process.stdout.write((await of.run(ask)).stdout);
await of.delete();
await client.snapshots.delete(last.snapshot.id);
try {
  await Sandbox.create({ image, pipPackages: ["no-such-package"] });
} catch (error) {
  if (!(error instanceof ModboxError)) throw error;
  console.log(error.message);
}
`

// pipInTypeScript has the TypeScript client install packages. The client is compiled to a directory of this test,
// because other suites build it in its own.
func pipInTypeScript(t *testing.T, s *testserver.Server) {
	dir, sdk := t.TempDir(), filepath.Join("..", "..", "sdk", "typescript")
	modules, err := filepath.Abs(filepath.Join(sdk, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{filepath.Join("..", "..", "scripts", "npm-ci.sh"), sdk},
		{"node", filepath.Join(modules, "typescript", "bin", "tsc"), "-p", sdk, "--outDir", filepath.Join(dir, "esm"), "--declaration", "false"},
	} {
		if out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", line, err, out)
		}
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{"package.json": `{"type": "module"}`, "pip.mjs": pipScript})
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "pip.mjs"))
	cmd.Env = append(os.Environ(), "MODBOX_URL="+s.URL, "MODBOX_API_TOKEN="+s.Token)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "2.0\n1.0\n") || !strings.Contains(string(out), "the index has no Python package no-such-package") {
		t.Errorf("%v: %s", err, out)
	}
}

// An index that does not answer is no package that does not exist.
func TestPipIndexIsUnreachable(t *testing.T) {
	s := testserver.Start(t, "--build-pip-index-url", "https://index.invalid/simple")
	sb, err := s.Sandboxes.Create(t.Context(), client.CreateOptions{Image: codeExec, PipPackages: []string{"hello"}, WaitUpTo: 8 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if sb.Cause == nil || !strings.Contains(sb.Cause.Message, "the index of Python packages cannot be reached") {
		t.Errorf("sandbox is %s, cause %+v", sb.State, sb.Cause)
	}
}

// TestPipWithoutNetwork installs a package in a sandbox without network, as a command and as code: pip does not
// repeat its requests, and its output says why it finds nothing and what helps.
func TestPipWithoutNetwork(t *testing.T) {
	s := testserver.Start(t)
	sb := s.MustCreate(client.CreateOptions{Image: "modbox/data"})
	check := func(how, out string, failed bool) {
		t.Helper()
		for _, want := range []string{"this-sandbox-has-no-network.invalid", "enable-its-network", "pip_packages", "No matching distribution"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s without network has no %q in its output: %s", how, want, out)
			}
		}
		if !failed || strings.Contains(out, "Retrying") {
			t.Errorf("%s without network, failed: %v: %s", how, failed, out)
		}
	}
	for _, line := range []string{"pip install no-such-package", "python3 -m venv /tmp/v && /tmp/v/bin/pip install no-such-package"} {
		res := s.Bash(sb.ID, line+" 2>&1", 2*time.Minute)
		check(line, string(res.Stdout), res.ExitCode != 0)
	}
	for _, code := range []string{"!pip install no-such-package", "%pip install no-such-package"} {
		res, err := s.Client.Sandboxes.RunCode(t.Context(), sb.ID, code, client.CodeOptions{Timeout: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		check(code, res.Stdout+res.Stderr, true)
	}
	on := true
	if _, err := s.Sandboxes.SetNetwork(t.Context(), sb.ID, client.NetworkChange{Enabled: &on}); err != nil {
		t.Fatal(err)
	}
	if res := s.Bash(sb.ID, `echo "[$PIP_RETRIES$NPM_CONFIG_FETCH_RETRIES$PIP_EXTRA_INDEX_URL]"`, time.Minute); string(res.Stdout) != "[]\n" {
		t.Errorf("with network the variables are %q, want none", res.Stdout)
	}
}
