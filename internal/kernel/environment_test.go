package kernel_test

import (
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/kernelapi"
)

// value returns the text of the value of Python code, which must succeed in an interpreter that keeps its state.
func (s *server) value(code string) string {
	s.t.Helper()
	got := s.begin(kernelapi.Run{Code: code}).rest()
	if got.Status != kernelapi.OK || got.Restarted || len(got.Results) != 1 {
		s.t.Fatalf("%s = %+v, want a value", code, got)
	}
	return strings.TrimPrefix(got.Results[0], "main ")
}

// TestEnvironment gives a Python that runs other variables, and then a variable that Python reads at its start.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"MODBOX_OLD", "MODBOX_NEW", "PYTHONHASHSEED"} {
		t.Setenv(name, "") // restored at the end
	}
	env := kernelapi.Environment{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	s := start(t)
	var c kernelapi.Context
	if code := s.do("POST", "/contexts", kernelapi.ContextSpec{Language: "python"}, &c); code != http.StatusOK {
		t.Fatalf("create = %d", code)
	}
	const pid = "__import__('os').getpid()"
	first := s.value(pid)
	want := "é \"'\\\n\x7f\u2028😀"
	env["MODBOX_NEW"] = want
	delete(env, "MODBOX_OLD")
	if code := s.do("PUT", "/environment", env, nil); code != http.StatusOK {
		t.Fatalf("environment = %d", code)
	}
	if got := s.value("__import__('os').environ['MODBOX_NEW'] == " + `'é "\'\\\n\x7f\u2028😀'`); got != "True" {
		t.Errorf("the new variable has the value: %s, want %q", got, want)
	}
	if got := s.value("__import__('os').environ.get('MODBOX_OLD'), [n for n in globals() if n in ('os', 'json', 'name', 'value')]"); got != "(None, [])" {
		t.Errorf("the removed variable, and names in the interpreter = %s", got)
	}
	if got := s.value(pid); got != first {
		t.Errorf("the interpreter has pid %s, before %s", got, first)
	}
	s.run("bash", "echo ${MODBOX_OLD-none} ${#MODBOX_NEW}", summary{Stdout: "none 9\n"})

	seeded := maps.Clone(env)
	seeded["PYTHONHASHSEED"] = "7"
	if code := s.do("PUT", "/environment", seeded, nil); code != http.StatusOK {
		t.Fatalf("environment = %d", code)
	}
	if got := s.value("(" + pid + ", __import__('os').environ['PYTHONHASHSEED'])"); got == "("+first+", '7')" || !strings.HasSuffix(got, ", '7')") {
		t.Errorf("after a variable that Python reads at its start: %s, want another interpreter with 7", got)
	}
	var refused kernelapi.Error
	if code := s.do("PUT", "/environment", kernelapi.Environment{"A=B": ""}, &refused); code != http.StatusBadRequest || refused.Code != kernelapi.CodeInvalid {
		t.Errorf("an invalid name = %d %+v", code, refused)
	}
}

// TestLaterEnvironment gives a supervisor other variables while an interpreter runs, which keeps its own.
func TestLaterEnvironment(t *testing.T) {
	for _, name := range []string{"MODBOX_OLD", "MODBOX_NEW"} {
		t.Setenv(name, "") // restored at the end
	}
	env := kernelapi.Environment{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	s := start(t)
	const show = "echo ${MODBOX_OLD-none} ${MODBOX_NEW:-empty} $$"
	shown := func(contextID string) (variables, pid string) {
		t.Helper()
		got := s.begin(kernelapi.Run{Context: contextID, Code: show}).rest()
		variables, pid, _ = cutLast(strings.TrimSpace(got.Stdout))
		return variables, pid
	}
	for _, id := range []string{"one", "two"} {
		if code := s.do("POST", "/contexts", kernelapi.ContextSpec{ID: id, Language: "bash"}, nil); code != http.StatusOK {
			t.Fatalf("create = %d", code)
		}
	}
	before, pid := shown("one")
	env["MODBOX_NEW"] = "new"
	delete(env, "MODBOX_OLD")
	env["PATH"] += ":/other" // would replace an interpreter that runs
	if code := s.do("PUT", "/environment/later", env, nil); code != http.StatusOK {
		t.Fatalf("environment = %d", code)
	}
	if after, same := shown("one"); after != before || same != pid {
		t.Errorf("an interpreter that runs shows %q in process %s, before %q in %s", after, same, before, pid)
	}
	if code := s.do("POST", "/contexts/two/restart", nil, nil); code != http.StatusOK {
		t.Fatalf("restart = %d", code)
	}
	if code := s.do("POST", "/contexts", kernelapi.ContextSpec{ID: "three", Language: "bash"}, nil); code != http.StatusOK {
		t.Fatalf("create = %d", code)
	}
	for _, id := range []string{"two", "three"} {
		if got, _ := shown(id); got != "none new" {
			t.Errorf("context %s shows %q, want the new variables", id, got)
		}
	}
}

// cutLast cuts s at its last space.
func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
