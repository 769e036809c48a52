package certificate

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/mholt/acmez/v3/acme"
)

const (
	programTimeout = 5 * time.Minute
	// removeTimeout bounds the removal of a record while the server ends, which waits for it.
	removeTimeout = 10 * time.Second
	// programOutput bounds the output of a program in an error, in bytes.
	programOutput = 1000
)

// program sets DNS records for the challenge DNS-01:
//
//	PROGRAM present NAME VALUE   returns when the authoritative servers have the TXT record
//	PROGRAM remove NAME VALUE    removes it
//
// Two records can have the same name: for a host and for the wildcard beneath it.
type program struct{ path string }

// Present implements acmez.Solver.
func (p program) Present(ctx context.Context, c acme.Challenge) error {
	return p.run(ctx, "present", c)
}

// CleanUp implements acmez.Solver.
func (p program) CleanUp(ctx context.Context, c acme.Challenge) error {
	removal, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(removeTimeout, cancel) })()
	return p.run(removal, "remove", c)
}

func (p program) run(ctx context.Context, action string, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	var out tail
	cmd := exec.CommandContext(ctx, p.path, action, c.DNS01TXTRecordName(), c.DNS01KeyAuthorization())
	// Without the variables of the server, which can have secrets.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tls.acme.dns_program %s %s %s: %w: %s", p.path, action, c.DNS01TXTRecordName(), err, strings.TrimSpace(out.text.String()))
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ text bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	t.text.Write(p[max(0, n-programOutput):])
	t.text.Next(max(0, t.text.Len()-programOutput))
	return n, nil
}
