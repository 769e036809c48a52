package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/bench"
)

// The programs of the clients, in the directory of [options.clients].
const (
	programE2B = "e2b.mjs"
	programSDK = "modbox.mjs"
)

// clients are the programs of clients in a directory, for a server.
type clients struct {
	*bench.Server
	dir string
}

// program is a program in Node.js that makes a sandbox for each line of its input: it prints what a command in
// the sandbox prints of the line, and another line when the sandbox has ended.
type program struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors bytes.Buffer
}

// launch starts a program of the clients.
func (c clients) launch(ctx context.Context, name string) (*program, error) {
	p := &program{cmd: exec.CommandContext(ctx, "node", name)}
	p.cmd.Dir = c.dir
	p.cmd.Env = append(os.Environ(), "MODBOX_URL="+c.URL, "MODBOX_API_TOKEN="+c.Token,
		"E2B_API_URL="+c.URL, "E2B_SANDBOX_URL="+c.URL, "E2B_API_KEY=e2b_"+hex.EncodeToString([]byte(c.Token)))
	p.cmd.Stderr = &p.errors
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// hello asks for a sandbox, and returns when the first output has come.
func (p *program) hello() error {
	if _, err := io.WriteString(p.in, "hello\n"); err != nil {
		return err
	}
	return p.expect("hello")
}

// ended returns when the sandbox of hello has ended.
func (p *program) ended() error { return p.expect("ended") }

func (p *program) expect(want string) error {
	switch got, err := p.out.ReadString('\n'); {
	case err != nil:
		return err
	case strings.TrimSpace(got) != want:
		return fmt.Errorf("it prints %q, and not %q", got, want)
	}
	return nil
}

// close ends the program, and adds what it says to an error.
func (p *program) close(err error) error {
	err = errors.Join(err, p.in.Close(), p.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(p.cmd.Args, " "), err, p.errors.String())
	}
	return err
}

// fromStart is the time from the start of Node.js to the first output.
func (c clients) fromStart(name string) bench.Op {
	return c.Pooled(func(ctx context.Context) (time.Duration, error) {
		var p *program
		took, err := bench.Timed(func() (err error) {
			if p, err = c.launch(ctx, name); err != nil {
				return err
			}
			return p.hello()
		})
		if p == nil {
			return took, err
		}
		if err == nil {
			err = p.ended()
		}
		return took, p.close(err)
	})
}

// inProgram is the time from a create to the first output, in a program that runs.
func (c clients) inProgram(p *program) bench.Op {
	return c.Pooled(func(context.Context) (time.Duration, error) {
		took, err := bench.Timed(p.hello)
		if err == nil {
			err = p.ended()
		}
		return took, err
	})
}

// addClients measures the first program with E2B's client beside the same with Modbox's SDK: what the
// dialect and its client cost.
func addClients(ctx context.Context, r *bench.Report, rounds int, m *bench.Server, dir string) (err error) {
	if dir == "" {
		r.Notes = append(r.Notes, "The rows of E2B's client need Node.js with npm, and packages from its registry: this run has none of these rows.")
		return nil
	}
	c := clients{m, dir}
	var running [2]*program
	for i, name := range []string{programE2B, programSDK} {
		p, err := c.launch(ctx, name)
		if err != nil {
			return err
		}
		defer func() { err = p.close(err) }()
		running[i] = p
	}
	const peer = "Modbox's SDK for TypeScript"
	for _, l := range []bench.Line{
		{
			What: "first program with E2B's client: create from the pool → first output (`echo`)", Ours: c.inProgram(running[0]),
			Peer: peer, Theirs: c.inProgram(running[1]),
		},
		{
			What: "the same from the start of Node.js", Ours: c.fromStart(programE2B),
			Peer: peer, Theirs: c.fromStart(programSDK),
		},
	} {
		if err := r.Add(ctx, rounds, l); err != nil {
			return fmt.Errorf("%s: %w", l.What, err)
		}
	}
	return nil
}
