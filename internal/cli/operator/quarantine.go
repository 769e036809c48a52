package operator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/modbox/modbox/internal/cli/base"
	"github.com/modbox/modbox/internal/config"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/server"
	"github.com/modbox/modbox/internal/statedir"
)

// The kinds of quarantined objects.
const (
	kindSaved  = "saved state"
	kindRootFS = "root filesystem"
)

// quarantined is an object in quarantine.
type quarantined struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Path is the path of its files.
	Path      string     `json:"path"`
	Sandbox   sandbox.ID `json:"sandbox_id,omitempty"`
	Reason    string     `json:"reason"`
	At        time.Time  `json:"at"`
	SizeBytes int64      `json:"size_bytes"`
}

// listQuarantine returns the objects in quarantine, each kind oldest first.
func listQuarantine(ctx context.Context, cfg config.Config) ([]quarantined, error) {
	list := []quarantined{}
	q := server.OpenQuarantine(cfg)
	entries, err := q.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		list = append(list, quarantined{ID: e.ID, Kind: kindSaved, Path: q.Path(e.ID), Sandbox: e.Sandbox, Reason: e.Reason, At: e.At, SizeBytes: e.SizeBytes})
	}
	st, err := server.OpenExistingImages(cfg)
	if errors.Is(err, server.ErrNoImage) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	lost, err := st.Removal().Lost(ctx)
	for _, l := range lost {
		list = append(list, quarantined{
			ID: l.Digest, Kind: kindRootFS, Path: filepath.Join(cfg.StateDir, statedir.ImagesDir, "images", strings.TrimPrefix(l.Digest, "sha256:")+".erofs"),
			Reason: "the database has no snapshot and no sandbox that needs it", At: l.At, SizeBytes: l.SizeBytes,
		})
	}
	return list, err
}

// NewQuarantineCommand returns the command "modbox quarantine".
func NewQuarantineCommand(env *base.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quarantine",
		Short: "Saved states of this machine that the database does not know",
		Long: `The server moves a saved sandbox that its database does not know to the directory
"quarantine" of the state directory, and keeps a root filesystem of a snapshot that the
database does not know, instead of removing them: the database may be the wrong one.
A start with a database that knows them brings them back by itself. The server removes
them after quarantine.max_age, and earlier when their bytes are needed.`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newQuarantineListCommand(env), newQuarantineRemoveCommand(env))
	return cmd
}

func newQuarantineListCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the entries of the quarantine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := local.Load(env)
			if err != nil {
				return err
			}
			list, err := listQuarantine(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(list)
			}
			rows := make([][]string, len(list))
			for i, q := range list {
				rows[i] = []string{q.ID, q.Kind, base.Size(q.SizeBytes), base.Age(q.At), q.Reason}
			}
			return env.PrintTable([]string{"ID", "KIND", "SIZE", "AGE", "REASON"}, rows)
		},
	}
	local.Add(cmd)
	return cmd
}

func newQuarantineRemoveCommand(env *base.Env) *cobra.Command {
	var local base.LocalFlags
	cmd := &cobra.Command{
		Use: "rm ID...", Short: "Delete something that is in quarantine, for good", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := local.Load(env)
			if err != nil {
				return err
			}
			for _, id := range args {
				err := server.OpenQuarantine(cfg).Remove(id)
				if sandbox.CodeOf(err) == sandbox.NotFound {
					err = removeLost(cmd.Context(), cfg, id, err)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	local.Add(cmd)
	return cmd
}

// removeLost removes a root filesystem in quarantine; notFound is the error if there are no images.
func removeLost(ctx context.Context, cfg config.Config, digest string, notFound error) error {
	st, err := server.OpenExistingImages(cfg)
	if errors.Is(err, server.ErrNoImage) {
		return notFound
	}
	if err != nil {
		return err
	}
	if err := st.Removal().RemoveLost(ctx, digest); sandbox.CodeOf(err) == sandbox.NotFound {
		return notFound
	} else if err != nil {
		return err
	}
	return nil
}

// describeQuarantine summarizes the quarantine; "" if it is empty.
func describeQuarantine(ctx context.Context, cfg config.Config) (string, error) {
	list, err := listQuarantine(ctx, cfg)
	if err != nil || len(list) == 0 {
		return "", err
	}
	var total int64
	oldest := list[0].At
	for _, q := range list {
		total += q.SizeBytes
		if q.At.Before(oldest) {
			oldest = q.At
		}
	}
	return fmt.Sprintf("%d saved states or root filesystems that the database does not know, %s, the oldest found %s", len(list), humanize.IBytes(uint64(total)), humanize.Time(oldest)), nil
}
