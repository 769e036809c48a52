package database

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
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

// BenchmarkCopy copies a database of 200 MiB, and measures the longest of the writes that are made meanwhile, and of as many others.
func BenchmarkCopy(b *testing.B) {
	path := filepath.Join(b.TempDir(), "modbox.db")
	s, err := Open(b.Context(), path)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for range 20 {
		if err := s.Write(b.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS words (word TEXT NOT NULL UNIQUE); CREATE TABLE IF NOT EXISTS filler (b BLOB);
				WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 5000) INSERT INTO filler SELECT randomblob(2000) FROM c`)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	longest := func(ended func() bool) (most time.Duration) {
		for !ended() {
			n++
			begin := time.Now()
			if err := s.Write(b.Context(), put(strconv.Itoa(n))); err != nil {
				b.Fatal(err)
			}
			most = max(most, time.Since(begin))
		}
		return most
	}
	var during, alone time.Duration
	for b.Loop() {
		done := make(chan error, 1)
		var copied atomic.Bool
		go func() {
			done <- s.CopyTo(b.Context(), filepath.Join(b.TempDir(), "copy.db"))
			copied.Store(true)
		}()
		before := n
		during = max(during, longest(copied.Load))
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		until := n + n - before
		alone = max(alone, longest(func() bool { return n >= until }))
		b.StartTimer()
	}
	b.ReportMetric(float64(during.Microseconds())/1000, "ms/longest-write-during")
	b.ReportMetric(float64(alone.Microseconds())/1000, "ms/longest-write-alone")
	b.ReportMetric(float64(n)/2/float64(b.N), "writes/copy")
}
