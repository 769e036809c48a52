package e2b

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/api/command"
	"github.com/modbox/modbox/internal/guest"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// readyMax bounds the time until the ready command of a template succeeds: the clients wait a minute for a create.
	readyMax = 50 * time.Second
	// readyTry bounds an attempt.
	readyTry = 20 * time.Second
	// readyOutput bounds the output that an error shows, in bytes.
	readyOutput = 1 << 10
)

var (
	errNotReady = errors.New("it was not run")
	readyPauses = retry.Pauses(200*time.Millisecond, 2*time.Second)
)

// ready waits until the ready command of the image of a new sandbox succeeds. Errors: Timeout with the
// output of the last attempt; errors of the sandbox.
func (s *sandboxes) ready(ctx context.Context, sb *sandbox.Sandbox) error {
	settings, err := s.settings(ctx, sb.Image)
	if err != nil || settings.ReadyCommand == "" {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	in := command.Sandbox{Exec: func(ctx context.Context, cmd agentapi.Command) (*guest.Command, error) {
		return s.svc.Guest().Exec(ctx, caller(ctx), string(sb.ID), cmd)
	}}
	last := errNotReady
	_, err = backoff.Retry(limited, func() (struct{}, error) {
		cmd := agentapi.Command{Argv: []string{"/bin/bash", "-l", "-c", settings.ReadyCommand}, Timeout: readyTry}
		res, err := command.Run(limited, in, cmd, nil, readyOutput)
		switch {
		case err != nil && limited.Err() == nil:
			return struct{}{}, backoff.Permanent(err)
		case err != nil:
			return struct{}{}, err
		case res.Exit.Code != 0:
			last = fmt.Errorf("it exits with %d: %s", res.Exit.Code, strings.TrimSpace(sandbox.Excerpt(string(res.Stderr)+string(res.Stdout))))
			return struct{}{}, last
		}
		return struct{}{}, nil
	}, readyPauses, retry.Forever())
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return sandbox.Errorf(sandbox.Timeout, "the ready command of the template did not succeed within %s; %s", readyMax, last)
	}
	return err
}
