package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/cli/base"
)

// eventFlags are the flags of "modbox events".
type eventFlags struct {
	follow bool
	format string
	types  []string
	since  string
	limit  int
}

// NewEventsCommand returns the command "modbox events".
func NewEventsCommand(env *base.Env) *cobra.Command {
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "events [SANDBOX]",
		Short: "Show what happened to a sandbox, or to all",
		Long: `Show what happened to a sandbox, oldest first; without SANDBOX, to all sandboxes of
the workspace, the last 50 events. With -o json or --json one object per line.

With -f the command goes on with what happens next: for a sandbox until it has
ended, without SANDBOX until it is interrupted. Without SANDBOX it then begins
with the next event, or with --since at that time. It connects again when the
connection breaks or the server restarts, and shows each event once.`,
		Example: `  modbox events my-agent
  modbox events -f --type created,destroyed,failed
  modbox events --since 1h -o json`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: env.CompleteSandboxes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			since, err := f.check(env)
			if err != nil {
				return err
			}
			c, err := env.Client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				err = f.ofSandbox(cmd.Context(), env, c, args[0], since)
			} else {
				err = f.ofWorkspace(cmd.Context(), env, c, since)
			}
			if cmd.Context().Err() != nil {
				return &base.ExitError{Code: base.ExitInterrupt}
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with what happens next")
	cmd.Flags().StringVarP(&f.format, "output", "o", "", "json (default: text)")
	cmd.Flags().StringSliceVar(&f.types, "type", nil, "only events of these types, such as created,failed")
	cmd.Flags().StringVar(&f.since, "since", "", "only events from that time on: a duration such as 10m, or a time (RFC 3339)")
	cmd.Flags().IntVar(&f.limit, "limit", 0, "number of newest events without -f (default 50 without SANDBOX, else all)")
	return cmd
}

// check returns the time of --since, zero for none. Errors: a usage error that names the flag.
func (f *eventFlags) check(env *base.Env) (time.Time, error) {
	if f.format != "" && f.format != "json" {
		return time.Time{}, base.UsageError("--output: %q is not json", f.format)
	}
	env.JSON = env.JSON || f.format == "json"
	switch {
	case f.limit < 0:
		return time.Time{}, base.UsageError("--limit: must be at least 1")
	case f.limit > 0 && f.follow:
		return time.Time{}, base.UsageError("give either --limit or --follow")
	}
	if f.since == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(f.since); err == nil && ago >= 0 {
		return time.Now().Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339, f.since)
	if err != nil {
		return time.Time{}, base.UsageError("--since: %q is neither a duration such as 10m nor a time such as 2026-01-31T12:00:00Z", f.since)
	}
	return at, nil
}

// ofWorkspace shows the events of all sandboxes.
func (f *eventFlags) ofWorkspace(ctx context.Context, env *base.Env, c *client.Client, since time.Time) error {
	feed := c.Events
	if !f.follow {
		limit := f.limit
		if limit == 0 && since.IsZero() {
			limit = 50
		}
		return printEvents(ctx, env, feed, client.EventFilter{Types: f.types, Since: since}, limit, true)
	}
	return follow(ctx, env, feed, client.FollowOptions{Types: f.types, Since: since}, true)
}

// ofSandbox shows the events of one sandbox.
func (f *eventFlags) ofSandbox(ctx context.Context, env *base.Env, c *client.Client, ref string, since time.Time) error {
	feed := c.Events
	// Get comes before the events, so that the last events of an ended sandbox are read.
	sb, err := c.Sandboxes.Get(ctx, ref)
	if err != nil {
		return err
	}
	filter := client.EventFilter{Sandbox: sb.ID, Types: f.types, Since: since}
	if !f.follow || sb.State.Ended() {
		return printEvents(ctx, env, feed, filter, f.limit, false)
	}
	o := client.FollowOptions{Sandbox: sb.ID, Since: since}
	if since.IsZero() {
		o.Since = time.Unix(0, 0) // from the beginning
	}
	if len(f.types) > 0 { // with the types of the end, which must be seen
		o.Types = append([]string{"destroyed", "failed"}, f.types...)
	}
	for e, err := range feed.Follow(ctx, o) {
		if err == nil && f.shows(e.Type) {
			err = printEvent(env, e, false)
		}
		if err != nil || e.Type == "destroyed" || e.Type == "failed" {
			return err
		}
	}
	return nil
}

// shows reports whether --type has a type.
func (f *eventFlags) shows(typ string) bool {
	return len(f.types) == 0 || slices.Contains(f.types, typ)
}

// follow shows events until ctx ends.
func follow(ctx context.Context, env *base.Env, feed *client.Events, o client.FollowOptions, named bool) error {
	for e, err := range feed.Follow(ctx, o) {
		if err == nil {
			err = printEvent(env, e, named)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printEvents shows events that have happened, with a limit only the newest.
func printEvents(ctx context.Context, env *base.Env, feed *client.Events, f client.EventFilter, limit int, named bool) error {
	if limit == 0 {
		for e, err := range feed.List(f).All(ctx) {
			if err == nil {
				err = printEvent(env, e, named)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	f.Descending = true
	last, _, err := base.First(ctx, feed.List(f), limit)
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(last) {
		if err := printEvent(env, e, named); err != nil {
			return err
		}
	}
	return nil
}

// printEvent shows an event, with the name of its sandbox if named.
func printEvent(env *base.Env, e client.Event, named bool) error {
	if env.JSON {
		return json.NewEncoder(env.Stdout).Encode(e)
	}
	name := ""
	if named {
		name = fmt.Sprintf("%-20s  ", base.Clean(e.SandboxName))
	}
	_, err := fmt.Fprintf(env.Stdout, "%s  %s%-10s  %s\n", e.Time.Local().Format(time.RFC3339), name, e.Type, base.Clean(e.Message))
	return err
}
