package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/client"
)

// AddSnapshot measures snapshots of a sandbox in which one byte of a file was changed since the one before. They stay until
// [Server.removeSnapshots].
func (r *Report) AddSnapshot(ctx context.Context, rounds int, m *Server) error {
	id, err := m.Start(ctx)
	if id != "" {
		defer m.Remove(context.WithoutCancel(ctx), id) //nolint:errcheck // its ttl ends it otherwise
	}
	if err != nil {
		return err
	}
	var largest int64
	got, err := Alternate(ctx, rounds, Side{Name: "modbox", Run: func(ctx context.Context) (time.Duration, error) {
		if err := m.exec(ctx, id, "bash", "-c", "head -c 1 /dev/urandom > ~/.bench"); err != nil {
			return 0, err
		}
		var sn *client.Snapshot
		took, err := Timed(func() (err error) {
			sn, err = m.c.Snapshots.Create(ctx, id, client.SnapshotOptions{})
			return err
		})
		if err != nil {
			return 0, err
		}
		m.snapshots = append(m.snapshots, sn.ID)
		largest = max(largest, sn.SizeBytes)
		return took, nil
	}})
	if err != nil {
		return err
	}
	p50 := Quantile(got[0].Samples, .5)
	r.Facts = append(r.Facts, Fact{
		What: "snapshot after one changed byte, p50", Ours: Milliseconds(p50), Target: "≤ " + Milliseconds(targetSnapshot), Met: p50 <= targetSnapshot,
	}, Fact{
		What: "space on the disk of such a snapshot, at most", Ours: fmt.Sprintf("%d KiB", (largest+1<<10-1)>>10), Target: "≤ " + mib(targetSnapshotBytes), Met: largest <= targetSnapshotBytes,
	})
	return nil
}
