package database

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
)

// BenchmarkWrite measures writes that are on the disk when they return, by so many
// writers at once, and how many waits for the disk each took.
func BenchmarkWrite(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run("writers="+strconv.Itoa(writers), func(b *testing.B) {
			s, err := Open(b.Context(), filepath.Join(b.TempDir(), "modbox.db"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			if err := s.Write(b.Context(), func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "CREATE TABLE words (word TEXT NOT NULL UNIQUE)")
				return err
			}); err != nil {
				b.Fatal(err)
			}
			var n atomic.Int64
			before := s.batches.syncs.Load()
			b.SetParallelism(writers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := s.Write(b.Context(), put(strconv.FormatInt(n.Add(1), 10))); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(s.batches.syncs.Load()-before)/float64(b.N), "syncs/op")
		})
	}
}
