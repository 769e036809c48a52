package imagerows

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Stored are the records of the files of images in the object store. They are safe for concurrent use.
type Stored struct{ db *database.DB }

// NewStored returns the records in a database.
func NewStored(db *database.DB) Stored { return Stored{db} }

// All returns all records.
func (s Stored) All(ctx context.Context) ([]index.StoredFile, error) {
	list, err := database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (f index.StoredFile, err error) {
		var released, damaged int64
		err = row.Scan(&f.Digest, &f.Content, &f.SizeBytes, &f.Workspace, &f.By, &released, &damaged)
		f.ReleasedAt, f.DamagedAt = database.FromNanos(released), database.FromNanos(damaged)
		return f, err
	}, "SELECT digest, content, size_bytes, workspace_id, stored_by, released_at, damaged_at FROM stored_files")
	if err != nil {
		return nil, fmt.Errorf("list the stored files of images: %w", err)
	}
	return list, nil
}

// Add records files, in one transaction. Blobs has the content of the blobs that the object store does not have, by digest.
func (s Stored) Add(ctx context.Context, files []index.StoredFile, blobs map[string][]byte) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, f := range files {
			if _, err := tx.ExecContext(ctx, `INSERT INTO stored_files (digest, content, size_bytes, workspace_id, stored_by, data) VALUES ($1, $2, $3, $4, $5, $6)
				ON CONFLICT (digest) DO UPDATE SET content = $2, size_bytes = $3, workspace_id = $4, stored_by = $5, data = $6, released_at = 0, damaged_at = 0`,
				f.Digest, f.Content, f.SizeBytes, f.Workspace, f.By, blobs[f.Digest]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the stored files of an image: %w", err)
	}
	return nil
}

// Release records that no image needs files since a time, or with the zero time that images need them.
func (s Stored) Release(ctx context.Context, digests []string, at time.Time) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, digest := range digests {
			if _, err := tx.ExecContext(ctx, "UPDATE stored_files SET released_at = $1 WHERE digest = $2", database.Nanos(at), digest); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record which stored files images need: %w", err)
	}
	return nil
}

// Damaged records when a file in the object store was found damaged.
func (s Stored) Damaged(ctx context.Context, digest string, at time.Time) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE stored_files SET damaged_at = $1 WHERE digest = $2", database.Nanos(at), digest)
		return err
	})
	if err != nil {
		return fmt.Errorf("record that a stored file is damaged: %w", err)
	}
	return nil
}

// Forget deletes the record of a file.
func (s Stored) Forget(ctx context.Context, digest string) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM stored_files WHERE digest = $1", digest)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete the record of a stored file: %w", err)
	}
	return nil
}

// Blob returns the content of a blob that the database has. Errors: NotFound.
func (s Stored) Blob(ctx context.Context, digest string) ([]byte, error) {
	return blob(ctx, s.db, "SELECT data FROM stored_files WHERE content = '' AND digest = $1", digest)
}

// StoredBlobs implements [index.Rows].
func (r Rows) StoredBlobs(ctx context.Context, rec *index.Record) (map[v1.Hash][]byte, error) {
	data, err := blob(ctx, r.db, "SELECT data FROM stored_files WHERE content = '' AND digest = $1 AND EXISTS (SELECT 1 FROM stored_files WHERE digest = $2)",
		rec.Manifest.Digest.String(), rec.Digest)
	if err != nil {
		return nil, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("stored manifest of %s: %w", rec.Title(), err)
	}
	config, err := blob(ctx, r.db, "SELECT data FROM stored_files WHERE content = '' AND digest = $1", manifest.Config.Digest.String())
	if err != nil {
		return nil, err
	}
	return map[v1.Hash][]byte{manifest.Config.Digest: config, rec.Manifest.Digest: data}, nil
}

func blob(ctx context.Context, db *database.DB, query string, args ...any) (data []byte, err error) {
	err = db.Reader().QueryRowContext(ctx, query, args...).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, sandbox.Errorf(sandbox.NotFound, "the blob %v of an image is not stored", args[0])
	}
	if err != nil {
		return nil, fmt.Errorf("read a stored blob of an image: %w", err)
	}
	return data, nil
}
