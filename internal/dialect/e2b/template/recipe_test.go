package template

import (
	"strings"
	"testing"

	"github.com/modbox/modbox/internal/sandbox"
)

// TestDockerfile translates steps.
func TestDockerfile(t *testing.T) {
	r := Recipe{StartCmd: "serve\n--now", ReadyCmd: `test -e "$HOME/up"`, Steps: []Step{
		{Type: stepEnv, Args: []string{"A", `say "hi" \ $HOME`}},
		{Type: stepRun, Args: []string{"echo 'a' && cat <<EOF\nx\nEOF"}},
		{Type: stepRun, Args: []string{"touch /x", "root"}},
		{Type: stepCopy, Args: []string{"./app/../app", "dest", "", "0644"}, FilesHash: "h"},
		{Type: stepCopy, Args: []string{"*.txt", "$dest", "root", ""}, FilesHash: "h"},
		{Type: stepWorkdir, Args: []string{"/srv"}},
		{Type: stepUser, Args: []string{"root"}},
	}}
	d, err := r.dockerfile("modbox/base:latest", 2, 512)
	if err != nil {
		t.Fatal(err)
	}
	want := `ENV A="say \"hi\" \\ $HOME"
RUN ["/bin/bash","-l","-c","echo 'a' && cat <<EOF\nx\nEOF"]
USER root
RUN ["/bin/bash","-l","-c","touch /x"]
USER user
COPY --chown=user --chmod=0644 ["4/app","dest"]
COPY --chown=root ["5/*.txt","\\$dest/"]
USER root
RUN ["/bin/sh","-c","[ -d \"$1\" ] || { mkdir -p \"$1\" && chown \"$2\" \"$1\"; }","sh","/srv","user"]
USER user
WORKDIR "/srv"
USER root
ENTRYPOINT ["/bin/bash","-l","-c","serve\n--now"]
LABEL modbox.e2b.ready-command="test -e \"\$HOME/up\""
LABEL modbox.e2b.cpu-count="2"
LABEL modbox.e2b.memory-mb="512"
`
	_, got, _ := strings.Cut(d.source.String(), "WORKDIR /home/user\n")
	if got != want {
		t.Errorf("Dockerfile:\n%s\nwant:\n%s", got, want)
	}
	lines := strings.Split(d.source.String(), "\n")
	for i, step := range map[int]int{0: 0, 5: 1, 6: 2, 8: 3, 10: 4, 13: 6, 16: 7} {
		if d.stepOf(i+1) != step {
			t.Errorf("line %d (%s) is of step %d, want %d", i+1, lines[i], d.stepOf(i+1), step)
		}
	}
	if got := d.stepOf(0) + d.stepOf(len(lines)+5); got != 0 {
		t.Errorf("lines outside the file have step %d", got)
	}
}

// TestDockerfileRefusals gives steps that are no steps, and texts that would become other instructions.
func TestDockerfileRefusals(t *testing.T) {
	for name, s := range map[string]Step{
		"type":          {Type: "HEALTHCHECK"},
		"no command":    {Type: stepRun},
		"user of a run": {Type: stepRun, Args: []string{"x", "a\nRUN y"}},
		"user":          {Type: stepUser, Args: []string{"a b"}},
		"odd env":       {Type: stepEnv, Args: []string{"A"}},
		"env name":      {Type: stepEnv, Args: []string{"A=1 B", "x"}},
		"env lines":     {Type: stepEnv, Args: []string{"A", "x\nRUN y"}},
		"no env":        {Type: stepEnv},
		"workdir":       {Type: stepWorkdir, Args: []string{"/a\nRUN y"}},
		"no workdir":    {Type: stepWorkdir},
		"copy":          {Type: stepCopy, Args: []string{"a"}},
		"owner":         {Type: stepCopy, Args: []string{"a", "b", "c d"}},
		"mode":          {Type: stepCopy, Args: []string{"a", "b", "", "rwx"}},
		"zero":          {Type: stepRun, Args: []string{"a\x00b"}},
	} {
		r := Recipe{Steps: []Step{s}}
		if _, err := r.dockerfile("base", 0, 0); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "steps[0]") {
			t.Errorf("%s: %v, want invalid, naming steps[0]", name, err)
		}
	}
	if _, err := (&Recipe{Steps: make([]Step, stepsMax+1)}).dockerfile("base", 0, 0); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("too many steps: %v, want invalid", err)
	}
	if _, err := (&Recipe{ReadyCmd: "a\nb"}).dockerfile("base", 0, 0); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a ready command of two lines: %v, want invalid", err)
	}
}
