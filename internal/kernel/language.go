package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modbox/modbox/internal/kernelapi"
)

// languages has the names of the languages, and how their interpreters are started.
var languages = map[string]func(dir string, spec *kernelapi.ContextSpec) (kernel, error){
	"python":     startPython,
	"r":          startR,
	"bash":       startBashContext,
	"javascript": startNodeContext,
	"typescript": startNodeContext,
	"java":       startJavaContext,
}

// Other names of languages.
var aliases = map[string]string{"python3": "python", "py": "python", "js": "javascript", "node": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash"}

// language returns the name of a language, which may be given by another name.
func language(name string) (string, error) {
	name = strings.ToLower(name)
	if known, ok := aliases[name]; ok {
		name = known
	}
	if _, ok := languages[name]; !ok {
		return "", &kernelapi.Error{Code: kernelapi.CodeInvalid, Field: "language", Message: fmt.Sprintf(
			"%q is not known; known are python, javascript, typescript, bash, r and java", name)}
	}
	return name, nil
}

// startKernel starts the interpreter of a language.
func startKernel(dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	if spec.Cwd != "" {
		if info, err := os.Stat(spec.Cwd); err != nil || !info.IsDir() {
			return nil, &kernelapi.Error{Code: kernelapi.CodeInvalid, Field: "cwd", Message: fmt.Sprintf("%q is not a directory in the sandbox", spec.Cwd)}
		}
	}
	return languages[spec.Language](dir, spec)
}

// notInstalled says what to install for a language.
func notInstalled(language, what, packages string) error {
	return &kernelapi.Error{Code: kernelapi.CodeNotInstalled, Message: fmt.Sprintf(
		"%s needs %s, which this sandbox does not have; create the sandbox with apt_packages %s, or from an image with it", language, what, packages)}
}

// launcher starts ipykernel as its module ipykernel_launcher does, but without debugpy, which ipykernel
// imports to debug cells, and whose import takes as long as the others together.
const launcher = `import sys
if sys.path[0] == '':
    del sys.path[0]
sys.modules['debugpy'] = None
from ipykernel import kernelapp
try:
    import ipykernel.debugger
except ImportError:
    pass
del sys.modules['debugpy']
kernelapp.launch_new_instance()`

// startPython starts the first Python that has ipykernel.
func startPython(dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	var tried []string
	for _, name := range []string{"python3", "python", "/usr/bin/python3"} {
		python, err := exec.LookPath(name)
		if err != nil || slices.Contains(tried, python) {
			continue
		}
		tried = append(tried, python)
		k, err := startJupyter([]string{python, "-c", launcher, "-f", "{connection_file}", "--HistoryManager.hist_file=:memory:"}, false, dir, spec)
		switch {
		case err == nil:
			return setUp(k)
		case !strings.Contains(err.Error(), "No module named 'ipykernel'"):
			return nil, err
		}
	}
	return nil, notInstalled("python", "the Python package ipykernel", "python3-ipykernel")
}

// setUp executes the startup code, for output that arrives in time and more formats of values. Its failure is not one of the kernel: packages differ.
func setUp(k *jupyter) (kernel, error) {
	files, err := scripts()
	if err != nil {
		return nil, err
	}
	k.attach(func(kernelapi.Event) {}) // its process repeats what it sends as messages
	if _, err := k.run(files["python.py"]+files["table.py"]+files["chart.py"], true, func(kernelapi.Event) {}); err != nil {
		return nil, err
	}
	return k, nil
}

func startR(dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	const missing = "the R package IRkernel"
	r, err := exec.LookPath("R")
	if err != nil {
		return nil, notInstalled("r", missing, "r-cran-irkernel")
	}
	k, err := startJupyter([]string{r, "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"}, true, dir, spec)
	if err != nil && strings.Contains(err.Error(), "no package called") {
		return nil, notInstalled("r", missing, "r-cran-irkernel")
	}
	if err != nil {
		return nil, err
	}
	k.raw = true
	k.attach(nil)
	return k, nil
}

func startBashContext(dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		return nil, notInstalled("bash", "bash", "bash")
	}
	k, err := startBash([]string{bash, "--noprofile", "--norc", "--noediting", "-i"}, dir, spec)
	if err != nil {
		return nil, err
	}
	return k, nil
}

func startNodeContext(dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	program, err := exec.LookPath("node")
	if err != nil {
		program, err = exec.LookPath("nodejs")
	}
	if err != nil {
		return nil, notInstalled(spec.Language, "Node.js", "nodejs")
	}
	k, err := startNode(program, dir, spec)
	if err != nil {
		if _, after, ok := strings.Cut(err.Error(), "TypeScript needs "); ok {
			return nil, &kernelapi.Error{Code: kernelapi.CodeNotInstalled, Message: "typescript needs " + after}
		}
		return nil, err
	}
	return k, nil
}

func startJavaContext(dir string, spec *kernelapi.ContextSpec) (kernel, error) {
	jshell, err := exec.LookPath("jshell")
	if err == nil {
		jshell, err = filepath.EvalSymlinks(jshell)
	}
	if err != nil {
		return nil, notInstalled(spec.Language, "a JDK", "default-jdk-headless")
	}
	return startJava(filepath.Dir(jshell), dir, spec)
}
