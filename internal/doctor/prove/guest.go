package prove

import (
	"context"
	"fmt"
	"strings"

	"github.com/modbox/modbox/client"
)

// guest is a running sandbox, by its id or name.
type guest struct {
	api *client.Client
	ref string
}

// sh runs a line of shell in /tmp and returns its output; an exit code other than 0 is an error.
func (g guest) sh(ctx context.Context, line string) (string, error) {
	res, err := g.api.Sandboxes.Exec(ctx, g.ref, client.Command{Argv: []string{"/bin/sh", "-c", line}, Cwd: "/tmp", Timeout: commandTimeout})
	if err != nil {
		return "", fmt.Errorf("run a command: %w", err)
	}
	if res.ExitCode != 0 {
		return "", fmt.Errorf("a command ended with %d: %s", res.ExitCode, strings.TrimSpace(string(res.Stderr)))
	}
	return strings.TrimSpace(string(res.Stdout)), nil
}

// hello checks that a command runs, and that a file has what it wrote.
func (g guest) hello(ctx context.Context) error {
	const hello = "hello from a sandbox"
	got, err := g.sh(ctx, "echo "+hello+" >file && cat file")
	if err == nil && got != hello {
		err = fmt.Errorf("a command printed %q, want %q", got, hello)
	}
	return err
}

const (
	// counter starts a process that counts in its memory. When there is a file "ask", it writes the next number to the file "answer".
	counter = `(setsid sh -c 'n=0; while :; do if [ -e ask ]; then rm ask; n=$((n+1)); echo $n >answer.new; mv answer.new answer; fi; sleep 0.05; done' </dev/null >/dev/null 2>&1 &) ; echo ok`
	// asking asks that process.
	asking = `rm -f answer; touch ask; i=0; while [ ! -e answer ]; do i=$((i+1)); [ $i -lt 400 ] || exit 3; sleep 0.05; done; cat answer`
)

// startCounter starts a process that counts in its memory, and checks its first number.
func (g guest) startCounter(ctx context.Context) error {
	if _, err := g.sh(ctx, counter); err != nil {
		return err
	}
	return g.counts(ctx, 1)
}

// counts checks the next number of the counter.
func (g guest) counts(ctx context.Context, want int) error {
	switch got, err := g.sh(ctx, asking); {
	case err != nil:
		return fmt.Errorf("its process does not answer: %w", err)
	case got != fmt.Sprint(want):
		return fmt.Errorf("its process counts %q, want %d", got, want)
	}
	return nil
}
