// Package imagerows keeps the index of the images in the database. It has the SQL; package
// internal/image/index has the rules.
package imagerows

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/modbox/modbox/internal/image/index"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Rows are the records of the images in a database. They are safe for concurrent use.
type Rows struct{ db *database.DB }

var _ index.Rows = Rows{}

// New returns the rows in a database.
func New(db *database.DB) Rows { return Rows{db} }

const columns = `key, position, name, tag, is_current, owner, digest, size_bytes, file_count, file_time, mark, manifest, manifest_bytes,
	manifest_type, recipe_hash, description, config, memory_bytes, readiness_port, ttl, pull_reference, pull_asked, pull_checked_at,
	is_private, committed, cache_key, packages, lost_at, created_at, updated_at, below`

const insert = "INSERT INTO images (" + columns + `) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
	$19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31)`

// Images implements [index.Rows].
func (r Rows) Images(ctx context.Context) ([]index.Record, error) {
	list, err := r.images(ctx)
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	return list, nil
}

func (r Rows) images(ctx context.Context) ([]index.Record, error) {
	// One transaction, so that the three tables fit each other.
	tx, err := r.db.Reader().BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	rows, err := tx.QueryContext(ctx, "SELECT "+columns+" FROM images ORDER BY position, key")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []index.Record
	at := map[string]int{}
	for rows.Next() {
		key, rec, err := scan(rows)
		if err != nil {
			return nil, err
		}
		at[key] = len(list)
		list = append(list, rec)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	err = each(ctx, tx, "SELECT image_key, workspace_id, used_at FROM image_users", func(key, ws string, when time.Time) {
		rec := &list[at[key]]
		rec.Users = put(rec.Users, sandbox.WorkspaceID(ws), when)
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, tx, "SELECT image_key, proof, proven_at FROM image_readers", func(key, proof string, when time.Time) {
		rec := &list[at[key]]
		if rec.Pull != nil {
			rec.Pull.Proofs = put(rec.Pull.Proofs, proof, when)
		}
	})
	return list, err
}

func put[K comparable](m map[K]time.Time, key K, at time.Time) map[K]time.Time {
	if m == nil {
		m = map[K]time.Time{}
	}
	m[key] = at
	return m
}

// each calls add for each row of a query for a key, a text and a time.
func each(ctx context.Context, tx *sql.Tx, query string, add func(key, text string, at time.Time)) error {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key, text string
		var at int64
		if err := rows.Scan(&key, &text, &at); err != nil {
			return err
		}
		add(key, text, database.FromNanos(at))
	}
	return rows.Err()
}

// ChangeImages implements [index.Rows].
func (r Rows) ChangeImages(ctx context.Context, put []index.Record, remove []string) error {
	err := r.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, key := range remove {
			if err := deleteImage(ctx, tx, key); err != nil {
				return err
			}
		}
		for i := range put {
			if err := replace(ctx, tx, &put[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("change images: %w", err)
	}
	return nil
}

// deleteImage deletes the row of an image, and with it the rows of its users and readers.
func deleteImage(ctx context.Context, tx *sql.Tx, key string) error {
	_, err := tx.ExecContext(ctx, "DELETE FROM images WHERE key = $1", key)
	return err
}

// replace writes the rows of a record.
func replace(ctx context.Context, tx *sql.Tx, rec *index.Record) error {
	key := rec.Key()
	if err := deleteImage(ctx, tx, key); err != nil {
		return err
	}
	config, err := json.Marshal(rec.Config)
	if err != nil {
		return err
	}
	packages, err := json.Marshal(rec.Packages)
	if err != nil {
		return err
	}
	var committed []byte
	if rec.Commit != nil {
		if committed, err = json.Marshal(rec.Commit); err != nil {
			return err
		}
	}
	pull := cmp.Or(rec.Pull, &index.Pull{})
	asked := ""
	if pull.Asked != (v1.Hash{}) {
		asked = pull.Asked.String()
	}
	_, err = tx.ExecContext(ctx, insert, key, rec.Position, rec.Name, rec.Tag, database.Number(rec.Current), rec.Owner, rec.Digest, rec.SizeBytes, rec.FileCount,
		database.Nanos(rec.FileTime), hex.EncodeToString(rec.Mark), rec.Manifest.Digest.String(), rec.Manifest.Size, string(rec.Manifest.MediaType), rec.RecipeHash,
		rec.Description, string(config), rec.MemoryBytes, int64(rec.ReadinessPort), int64(rec.TTL), pull.Reference, asked, database.Nanos(pull.CheckedAt),
		database.Number(pull.Private), string(committed), rec.CacheKey, string(packages), database.Nanos(rec.LostAt), database.Nanos(rec.CreatedAt), database.Nanos(rec.UpdatedAt),
		strings.Join(rec.Below, " "))
	if err != nil {
		return err
	}
	for ws, at := range rec.Users {
		if _, err := tx.ExecContext(ctx, "INSERT INTO image_users (image_key, workspace_id, used_at) VALUES ($1, $2, $3)", key, ws, database.Nanos(at)); err != nil {
			return err
		}
	}
	for proof, at := range pull.Proofs {
		if _, err := tx.ExecContext(ctx, "INSERT INTO image_readers (image_key, proof, proven_at) VALUES ($1, $2, $3)", key, proof, database.Nanos(at)); err != nil {
			return err
		}
	}
	return nil
}

// scan reads a row of images.
func scan(row *sql.Rows) (key string, rec index.Record, err error) {
	var mark, manifest, mediaType, config, asked, committed, packages, below string
	var fileTime, port, ttl, checkedAt, lostAt, createdAt, updatedAt int64
	var pull index.Pull
	err = row.Scan(&key, &rec.Position, &rec.Name, &rec.Tag, &rec.Current, &rec.Owner, &rec.Digest, &rec.SizeBytes, &rec.FileCount,
		&fileTime, &mark, &manifest, &rec.Manifest.Size, &mediaType, &rec.RecipeHash,
		&rec.Description, &config, &rec.MemoryBytes, &port, &ttl, &pull.Reference, &asked, &checkedAt,
		&pull.Private, &committed, &rec.CacheKey, &packages, &lostAt, &createdAt, &updatedAt, &below)
	if err != nil {
		return "", rec, err
	}
	rec.ReadinessPort, rec.TTL, rec.Manifest.MediaType = uint16(port), time.Duration(ttl), types.MediaType(mediaType)
	rec.FileTime, rec.LostAt, rec.CreatedAt, rec.UpdatedAt = database.FromNanos(fileTime), database.FromNanos(lostAt), database.FromNanos(createdAt), database.FromNanos(updatedAt)
	if below != "" {
		rec.Below = strings.Fields(below)
	}
	if mark != "" {
		if rec.Mark, err = hex.DecodeString(mark); err != nil {
			return "", rec, fmt.Errorf("image %s: mark: %w", rec.Digest, err)
		}
	}
	if rec.Manifest.Digest, err = hash(manifest); err != nil {
		return "", rec, fmt.Errorf("image %s: manifest: %w", rec.Digest, err)
	}
	if pull.Reference != "" {
		if pull.Asked, err = hash(asked); err != nil {
			return "", rec, fmt.Errorf("image %s: digest of the registry: %w", rec.Digest, err)
		}
		pull.CheckedAt, rec.Pull = database.FromNanos(checkedAt), &pull
	}
	if committed != "" {
		if err := json.Unmarshal([]byte(committed), &rec.Commit); err != nil {
			return "", rec, fmt.Errorf("image %s: committed layer: %w", rec.Digest, err)
		}
	}
	if err := json.Unmarshal([]byte(config), &rec.Config); err != nil {
		return "", rec, fmt.Errorf("image %s: configuration: %w", rec.Digest, err)
	}
	if err := json.Unmarshal([]byte(packages), &rec.Packages); err != nil {
		return "", rec, fmt.Errorf("image %s: packages: %w", rec.Digest, err)
	}
	return key, rec, nil
}

// hash reverses the stored form of a digest; the zero digest is "" or ":".
func hash(s string) (v1.Hash, error) {
	if s == "" || s == ":" {
		return v1.Hash{}, nil
	}
	return v1.NewHash(s)
}
