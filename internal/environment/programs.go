package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/modbox/modbox/internal/agentapi"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/retry"
)

// programs is the main program of modbox/chromium, whose browser waits until its box has a sandbox. Called again with other
// arguments, it talks to the running main program: images/chromium/build/programs.
const programs = "/usr/local/bin/programs"

// assigner is the command that gives those programs its environment variables.
var assigner = []string{programs, "assign"}

// Where those programs answer: supervisord, the X server, and nginx, which asks x11vnc.
const (
	supervisordSocket = "/tmp/supervisor.sock"
	displaySocket     = "/tmp/.X11-unix/X99"
	screenPort        = 8080
)

// programsTimeout bounds the answers of those programs.
const programsTimeout = 3 * time.Second

// hasPrograms reports whether [programs] is the main program of an image.
func hasPrograms(img *spec.Image) bool {
	return slices.Equal(mainCommand(img), []string{programs, "serve"})
}

// awaitPrograms returns when the programs of an image have started that need no sandbox.
func awaitPrograms(ctx context.Context, b *box.Box) error {
	failure, err := run(ctx, b, agentapi.Command{Argv: []string{programs, "await"}})
	if err == nil && failure != "" {
		err = errors.New(failure)
	}
	if err != nil {
		return fmt.Errorf("await the programs of the image: %w", err)
	}
	// They have just started, and may be slow on a busy host: as long as there is time, they are asked again.
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, askPrograms(ctx, b) },
		retry.Pauses(100*time.Millisecond, time.Second), retry.Forever())
	return err
}

// askPrograms asks each of the programs that need no sandbox, at the same time, and returns an error unless all answer soon. Their sockets alone
// say nothing: the kernel also accepts connections for a program that hangs, and in a restored box the files that tell
// "programs await" that they have started are always there.
func askPrograms(ctx context.Context, b *box.Box) error {
	ctx, cancel := context.WithTimeout(ctx, programsTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	for name, ask := range map[string]func(context.Context, *box.Box) error{
		"supervisord": askSupervisord, "the X server": askDisplay, "the screen": askScreen,
	} {
		group.Go(func() error {
			if err := ask(ctx, b); err != nil {
				return fmt.Errorf("ask %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// askSupervisord returns an error unless supervisord says that it runs.
func askSupervisord(ctx context.Context, b *box.Box) error {
	conn, err := b.Agent.TunnelSocket(ctx, supervisordSocket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	const call = `<?xml version="1.0"?><methodCall><methodName>supervisor.getState</methodName></methodCall>`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://supervisord/RPC2", strings.NewReader(call))
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("Content-Type", "text/xml")
	resp, err := roundTrip(conn, req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && !strings.Contains(string(answer), "RUNNING") {
		err = fmt.Errorf("it does not run: %s", resp.Status)
	}
	return err
}

// askDisplay returns an error unless the X server accepts a client.
func askDisplay(ctx context.Context, b *box.Box) error {
	conn, err := b.Agent.TunnelSocket(ctx, displaySocket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	// The first request of a client: little-endian, version 11.0, no authorization. The answer begins with 1.
	_, err = conn.Write([]byte{'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	var answer [1]byte
	if err == nil {
		_, err = io.ReadFull(conn, answer[:])
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return err
	case answer[0] != 1:
		return errors.New("it refuses clients")
	}
	return nil
}

// askScreen returns an error unless nginx and x11vnc answer.
func askScreen(ctx context.Context, b *box.Box) error {
	conn, err := b.Agent.Tunnel(ctx, screenPort)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/vnc/websockify", http.NoBody)
	if err != nil {
		return err
	}
	req.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="},
		"X-Forwarded-Proto": {"http"}, // without it, nginx takes it for a request of a page
	}
	resp, err := roundTrip(conn, req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("a request for it was answered with %s", resp.Status)
	}
	return nil
}
