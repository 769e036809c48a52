package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/modbox/modbox/internal/durable"
)

const (
	namePrefix, nameSuffix = "modbox-", ".tar.zst"
	stamp                  = "20060102T150405Z"
	// retry bounds the time between a failed backup and the next attempt.
	retry = 10 * time.Minute
)

// Name returns the file name of a backup that is made at a time.
func Name(at time.Time) string { return namePrefix + at.UTC().Format(stamp) + nameSuffix }

// List returns the paths of the backups in a directory with names of [Name], newest first; none
// when the directory does not exist.
func List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ok := made(e.Name()); ok {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(names) // by time
	slices.Reverse(names)
	return names, nil
}

// Last returns when the newest backup in a directory was made; zero when there is none.
func Last(dir string) (time.Time, error) {
	names, err := List(dir)
	if err != nil || len(names) == 0 {
		return time.Time{}, err
	}
	at, _ := made(names[0])
	return at, nil
}

// made returns the time in the name of a backup.
func made(name string) (time.Time, bool) {
	text, ok := strings.CutPrefix(filepath.Base(name), namePrefix)
	text, ok2 := strings.CutSuffix(text, nameSuffix)
	at, err := time.Parse(stamp, text)
	return at, ok && ok2 && err == nil
}

// Schedule determines when backups are made automatically.
type Schedule struct {
	Every     time.Duration // 0 or less: never
	Directory string        // created if it is missing
	Keep      int           // the number of the newest backups to retain; 0 or less: all
	// Write makes a backup at a path that does not exist.
	Write func(ctx context.Context, path string) error
	Log   *slog.Logger
}

// Run makes backups until ctx ends: the first when the newest in the directory is old enough, then
// one after each interval. Failures are logged and retried.
func (s *Schedule) Run(ctx context.Context) {
	if s.Every <= 0 {
		return
	}
	for {
		wait, err := s.next(time.Now())
		if err == nil && wait <= 0 {
			err = s.back(ctx)
			if err == nil {
				continue
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			s.Log.Error("backup was not made, trying again", "directory", s.Directory, "error", err)
			wait = min(retry, s.Every)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// next returns the time until the next backup is due.
func (s *Schedule) next(now time.Time) (time.Duration, error) {
	last, err := Last(s.Directory)
	if err != nil || last.IsZero() {
		return 0, err
	}
	return last.Add(s.Every).Sub(now), nil
}

// back makes a backup and removes excess backups.
func (s *Schedule) back(ctx context.Context) error {
	if err := durable.MkdirAll(s.Directory); err != nil {
		return err
	}
	begin := time.Now()
	path := filepath.Join(s.Directory, Name(begin))
	if err := s.Write(ctx, path); err != nil {
		return err
	}
	s.Log.Info("made a backup", "file", path, "took", time.Since(begin))
	names, err := List(s.Directory)
	if err != nil || s.Keep <= 0 {
		return err
	}
	for _, old := range names[min(len(names), s.Keep):] {
		if err := os.Remove(old); err != nil {
			return fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return nil
}
