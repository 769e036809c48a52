package environment

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/kernelapi"
	"github.com/modbox/modbox/internal/retry"
	"github.com/modbox/modbox/internal/sandbox"
)

// supervisor is the beginning of the command of an image whose main process is the supervisor of
// interpreters (package kernel). The names of languages follow.
var supervisor = []string{"/.modbox/agent", "kernels", "serve"}

// Commands that give their environment variables to that supervisor: for all interpreters, and for
// interpreters that start later.
var (
	announcer      = []string{"/.modbox/agent", "kernels", "environment"}
	laterAnnouncer = []string{"/.modbox/agent", "kernels", "later-environment"}
)

const (
	// announceTimeout bounds the announcement of an environment.
	announceTimeout = 5 * time.Second
	// maxAnswer bounds how much is read of an answer or of an error's text.
	maxAnswer = 4 << 10
)

// Prestarts reports whether the main command of an image can be started in a box that belongs to no
// sandbox yet, because it can take over the environment of its sandbox later: the supervisor of interpreters, or the
// programs of an image. It holds for built-in images only, whose programs nobody else has written.
func Prestarts(img *spec.Image) bool {
	return img.Builtin && (len(languages(img)) > 0 || hasPrograms(img))
}

// languages returns the languages whose interpreters the main command of an image starts.
func languages(img *spec.Image) []string {
	main := mainCommand(img)
	if len(main) <= len(supervisor) || !slices.Equal(main[:len(supervisor)], supervisor) {
		return nil
	}
	return main[len(supervisor):]
}

func mainCommand(img *spec.Image) []string {
	return slices.Concat(img.Config.Entrypoint, img.Config.Cmd)
}

// Prestart starts the main command of such an image in a box of no sandbox, and returns when its
// interpreters or programs have started. The agent of the box must answer.
func Prestart(ctx context.Context, b *box.Box, img *spec.Image) error {
	if err := Configure(ctx, b, prestarted(img)); err != nil {
		return err
	}
	if hasPrograms(img) {
		return awaitPrograms(ctx, b)
	}
	return awaitInterpreters(ctx, b, languages(img))
}

// awaitInterpreters returns when the interpreters of languages have started.
func awaitInterpreters(ctx context.Context, b *box.Box, languages []string) error {
	for _, language := range languages {
		_, err := backoff.Retry(ctx, func() (struct{}, error) {
			attempt, cancel := context.WithTimeout(ctx, announceTimeout)
			defer cancel()
			err := callSupervisor(attempt, b, "/contexts", kernelapi.ContextSpec{Language: language})
			var refused *refusal
			if errors.As(err, &refused) {
				err = backoff.Permanent(err)
			}
			return struct{}{}, err
		}, retry.Pauses(10*time.Millisecond, 100*time.Millisecond), retry.Forever())
		if err != nil {
			return fmt.Errorf("start the interpreter of %s: %w", language, err)
		}
	}
	return nil
}

// prestarted returns the configuration of the agent of a box with such an image and of no sandbox.
func prestarted(img *spec.Image) agentapi.Config {
	env := map[string]string{}
	for _, kv := range img.Config.Env {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			env[name] = value
		}
	}
	return agentapi.Config{
		Unassigned: true, Env: env, WorkingDir: img.Config.WorkingDir, User: img.Config.User, Main: mainCommand(img),
	}
}

// WarmUp has the Python that [Prestart] started load modules.
func WarmUp(ctx context.Context, b *box.Box, modules []string) error {
	if err := callSupervisor(ctx, b, "/contexts/python/modules", kernelapi.Modules(modules)); err != nil {
		return fmt.Errorf("load modules of Python: %w", err)
	}
	return nil
}

// Reconnect configures the agent of a box that was restored from a box of [Prestart], and of no sandbox yet. It returns when the
// interpreters or programs answer.
func Reconnect(ctx context.Context, b *box.Box, img *spec.Image) error {
	cfg := prestarted(img)
	cfg.Restored = true
	if err := Configure(ctx, b, cfg); err != nil {
		return err
	}
	if hasPrograms(img) {
		return askPrograms(ctx, b)
	}
	return awaitInterpreters(ctx, b, languages(img))
}

// refusal is an answer of the supervisor that stays the same when the request is repeated.
type refusal struct{ status, reason string }

func (r *refusal) Error() string { return "the supervisor answered " + r.status + ": " + r.reason }

// callSupervisor posts a request to the supervisor. For a context it returns when its interpreter has started.
func callSupervisor(ctx context.Context, b *box.Box, to string, request any) error {
	conn, err := b.Agent.TunnelSocket(ctx, path.Join(kernelapi.Directory, kernelapi.Socket))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	body, err := json.Marshal(request)
	if err != nil {
		return backoff.Permanent(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://supervisor"+to, strings.NewReader(string(body)))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Close = true
	resp, err := roundTrip(conn, req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost
	if resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // a part of it helps as well
		return &refusal{resp.Status, sandbox.OneLine(string(reason))}
	}
	return nil
}

// roundTrip sends the only request of a connection, and returns its answer.
func roundTrip(conn net.Conn, req *http.Request) (*http.Response, error) {
	transport := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableCompression:     true,
		MaxResponseHeaderBytes: 16 << 10,
	}
	return transport.RoundTrip(req)
}

// Announce gives the interpreters or programs that [Prestart] started for an image the environment of the box's sandbox,
// with which its agent was configured.
func Announce(ctx context.Context, b *box.Box, img *spec.Image) error {
	argv := announcer
	if hasPrograms(img) {
		argv = assigner
	}
	failure, err := announce(ctx, b, argv)
	if err == nil && failure != "" {
		err = fmt.Errorf("announce the environment: %s", failure)
	}
	return err
}

// AnnounceLater gives the supervisor of interpreters of a running box, or the programs of its image, the environment with which
// the box's agent was configured: for interpreters and programs that start later. Interpreters and programs that run keep their
// environment. It takes at most 5 seconds.
//
// A supervisor that refuses it is no error, and neither is a program that cannot be started: it is of an earlier version, or the
// work of the guest.
func (s *Service) AnnounceLater(ctx context.Context, b *box.Box) error {
	img, err := s.image(ctx, b)
	if err != nil {
		return err
	}
	return announceLater(ctx, b, &img)
}

func announceLater(ctx context.Context, b *box.Box, img *spec.Image) error {
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if hasPrograms(img) {
		_, err := announce(ctx, b, assigner)
		if refused := (*agentapi.Error)(nil); err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	conn, err := b.Agent.TunnelSocket(ctx, path.Join(kernelapi.Directory, kernelapi.Socket))
	switch sandbox.CodeOf(box.AgentError(err)) {
	case sandbox.PortClosed, sandbox.Invalid:
		return nil // none runs; it will start with the environment that it needs
	}
	if err != nil {
		return err
	}
	_ = conn.Close() // nothing was written
	_, err = announce(ctx, b, laterAnnouncer)
	return err
}

// announce runs a command that announces the environment, and returns the beginning of its errors if
// it failed.
func announce(ctx context.Context, b *box.Box, argv []string) (failure string, err error) {
	return run(ctx, b, agentapi.Command{Argv: argv, Timeout: announceTimeout})
}

// run runs a command to its end, and returns the beginning of its errors if it failed.
func run(ctx context.Context, b *box.Box, c agentapi.Command) (failure string, err error) {
	cmd, err := b.Agent.Exec(ctx, c)
	if err != nil {
		return "", err
	}
	defer func() { _ = cmd.Close() }() // nothing is lost
	var output []byte
	for {
		f, err := cmd.Next()
		switch {
		case err == io.EOF:
			return "", fmt.Errorf("%s has no end", strings.Join(c.Argv, " "))
		case err != nil:
			return "", err
		case f.Type == agentapi.FrameStderr:
			output = append(output, f.Data[:min(len(f.Data), maxAnswer-len(output))]...)
		case f.Type == agentapi.FrameExit && f.Exit.Code != 0:
			return cmp.Or(sandbox.OneLine(string(output)), "it gives no reason"), nil
		case f.Type == agentapi.FrameExit:
			return "", nil
		}
	}
}
