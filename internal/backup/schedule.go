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
	"github.com/modbox/modbox/internal/sandbox"
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

// Last returns when the newest backup in a directory was made; zero when there is none. Times in the future, of a clock that was wrong, do not count.
func Last(dir string) (time.Time, error) {
	names, err := List(dir)
	for _, name := range names {
		if at, _ := made(name); !at.After(time.Now().Add(skew)) {
			return earlier(at, time.Now()), nil
		}
	}
	return time.Time{}, err
}

// made returns the time in the name of a backup.
func made(name string) (time.Time, bool) {
	text, ok := strings.CutPrefix(filepath.Base(name), namePrefix)
	text, ok2 := strings.CutSuffix(text, nameSuffix)
	at, err := time.Parse(stamp, text)
	return at, ok && ok2 && err == nil
}

// Target is a place where a schedule makes backups.
type Target interface {
	// Last returns when the newest backup was made; zero when there is none.
	Last(ctx context.Context) (time.Time, error)
	// Make makes a backup and removes excess backups. After an error, name is "" if there is no new backup.
	Make(ctx context.Context) (name string, err error)
	// String names the place.
	String() string
}

// Schedule determines when backups are made automatically.
type Schedule struct {
	Every  time.Duration // 0 or less: never
	Target Target
	Log    *slog.Logger
	// Made is called with the time of the newest backup, whenever it is found out; may be nil.
	Made func(time.Time)
}

// Run makes backups until ctx ends: the first when the newest of the target is old enough, then
// one after each interval. Failures are logged and retried.
func (s *Schedule) Run(ctx context.Context) {
	if s.Every <= 0 {
		return
	}
	for {
		wait, err := s.next(ctx, time.Now())
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
			s.Log.Error("backup was not made, trying again", "target", s.Target.String(), "error", err)
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
func (s *Schedule) next(ctx context.Context, now time.Time) (time.Duration, error) {
	last, err := s.Target.Last(ctx)
	if err != nil || last.IsZero() {
		return 0, err
	}
	if s.Made != nil {
		s.Made(last)
	}
	return last.Add(s.Every).Sub(now), nil
}

// back makes a backup. It logs an error of a backup that was made.
func (s *Schedule) back(ctx context.Context) error {
	begin := time.Now()
	name, err := s.Target.Make(ctx)
	if name == "" {
		return err
	}
	s.Log.Info("made a backup", "target", s.Target.String(), "backup", name, "took", time.Since(begin))
	if err != nil && ctx.Err() == nil {
		s.Log.Error("the backup was made, but old backups or their data were not removed; the next backup tries again", "target", s.Target.String(), "backup", name, "error", err)
	}
	return nil
}

// Directory is a target of files in a directory, which is created if it is missing.
type Directory struct {
	Path string
	Keep int // the number of the newest backups to retain; 0 or less: all
	// Write makes a backup at a path that does not exist.
	Write func(ctx context.Context, path string) error
	Log   *slog.Logger
}

var _ Target = Directory{}

// Last implements [Target].
func (d Directory) Last(context.Context) (time.Time, error) { return Last(d.Path) }

// String implements [Target].
func (d Directory) String() string { return d.Path }

// Make implements [Target].
func (d Directory) Make(ctx context.Context) (string, error) {
	if err := durable.MkdirAll(d.Path); err != nil {
		return "", err
	}
	path := filepath.Join(d.Path, Name(time.Now()))
	if err := d.Write(ctx, path); err != nil {
		return "", err
	}
	names, err := List(d.Path)
	if err != nil || d.Keep <= 0 {
		return path, err
	}
	names = slices.DeleteFunc(names, d.ofTheFuture)
	for _, old := range names[min(len(names), d.Keep):] {
		if err := os.Remove(old); err != nil {
			return path, fmt.Errorf("remove an old backup: %w", err)
		}
	}
	return path, nil
}

// ofTheFuture reports whether a backup has a time in the future, and warns of it.
func (d Directory) ofTheFuture(path string) bool {
	at, _ := made(path)
	if !at.After(time.Now().Add(skew)) {
		return false
	}
	d.Log.Warn("a backup has a time in the future: it does not count for backup.keep and is not removed; check the clock, and delete the file when you do not need it", "file", path)
	return true
}

// Remote is a target in a bucket, which is opened for each backup.
type Remote struct {
	Name string // of the bucket, for the log
	Keep int    // the number of the newest backups to retain; 0 or less: all
	Open func(ctx context.Context) (*Bucket, error)
	// Write makes a backup.
	Write func(ctx context.Context, b *Bucket) (Stored, error)
	Log   *slog.Logger
}

var _ Target = Remote{}

// Last implements [Target].
func (r Remote) Last(ctx context.Context) (at time.Time, err error) {
	b, err := r.Open(ctx)
	if err != nil {
		return at, err
	}
	defer func() { _ = b.Close() }() // it was only read
	return b.Last(ctx)
}

// String implements [Target].
func (r Remote) String() string { return r.Name }

// Make implements [Target].
func (r Remote) Make(ctx context.Context) (string, error) {
	b, err := r.Open(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = b.Close() }() // everything is written
	b.Warn = func(text string) { r.Log.Warn(text, "bucket", r.Name) }
	s, err := r.Write(ctx, b)
	if err != nil {
		return "", err
	}
	if r.Keep <= 0 {
		return s.ID, nil
	}
	p, err := b.Prune(ctx, r.Keep, Grace)
	if sandbox.CodeOf(err) == sandbox.Unavailable {
		r.Log.Warn("the bucket of backups was not pruned; the next backup tries again", "bucket", r.Name, "error", err)
		return s.ID, nil
	}
	if err != nil {
		return s.ID, fmt.Errorf("prune the bucket of backups: %w", err)
	}
	r.Log.Info("pruned the bucket of backups", "bucket", r.Name, "backups", len(p.Backups), "objects", p.Removed, "bytes", p.RemovedBytes)
	return s.ID, nil
}
