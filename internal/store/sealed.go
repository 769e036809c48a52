package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// sealBatch is how many rows of before are encrypted in one transaction.
const sealBatch = 500

// Keys encrypts what must be read again. Internal/secret has one.
type Keys interface {
	// Seal encrypts a secret of an object: it can be read for that object only.
	Seal(plain, object string) (sandbox.Sealed, error)
	// Unseal decrypts what Seal encrypted for the object. Errors: Unavailable when the key
	// is not there.
	Unseal(s sandbox.Sealed, object string) (string, error)
}

// Option is a setting of a [Store].
type Option func(*Store)

// WithKeys gives the keys for the variables of sandboxes and snapshots. Without them none
// can be written, and they are read as if there were none.
func WithKeys(k Keys) Option { return func(s *Store) { s.keys = k } }

// sealedPrefix begins text that is encrypted. Text of a server before 00023 is a JSON object,
// a hash in hexadecimal, or "fork of" a sandbox.
const sealedPrefix = "sealed:"

// sealedColumns are those that have text which [Store.sealText] made.
var sealedColumns = []struct{ table, column string }{
	{"sandboxes", "env"}, {"sandboxes", "request_hash"}, {"snapshots", "env"},
}

// sealText returns what a column has of a secret text of a row: [sealedPrefix], the id of
// a key, a colon, and what it encrypts in base64.
func (s *Store) sealText(plain, column, id string) (string, error) {
	if s.keys == nil {
		return "", errors.New("the store has no keys to encrypt with")
	}
	sealed, err := s.keys.Seal(plain, id+" "+column)
	return encodeSealed(sealed), err
}

func encodeSealed(s sandbox.Sealed) string {
	return sealedPrefix + s.KeyID + ":" + base64.RawStdEncoding.EncodeToString(s.Data)
}

// decodeSealed reverses encodeSealed; ok is false for a text that is not encrypted.
func decodeSealed(text string) (s sandbox.Sealed, ok bool) {
	rest, ok := strings.CutPrefix(text, sealedPrefix)
	if !ok {
		return sandbox.Sealed{}, false
	}
	key, data, _ := strings.Cut(rest, ":")
	raw, err := base64.RawStdEncoding.DecodeString(data)
	return sandbox.Sealed{KeyID: key, Data: raw}, err == nil
}

// unsealText reverses sealText; it returns text that is not encrypted as it is. Errors:
// Unavailable when the key is not there.
func (s *Store) unsealText(text, column, id string) (string, error) {
	sealed, ok := decodeSealed(text)
	if !ok {
		return text, nil
	}
	plain, err := s.keys.Unseal(sealed, id+" "+column)
	if err != nil {
		return "", fmt.Errorf("%s of %s: %w", column, id, err)
	}
	return plain, nil
}

// sealEnv returns what a row has of variables.
func (s *Store) sealEnv(env map[string]string, id string) (string, error) {
	text, err := marshalMap(env)
	if err != nil || len(env) == 0 {
		return text, err
	}
	return s.sealText(text, "env", id)
}

// unsealEnv reverses sealEnv.
func (s *Store) unsealEnv(text, id string) (map[string]string, error) {
	if s.keys == nil {
		return nil, nil
	}
	text, err := s.unsealText(text, "env", id)
	if err != nil {
		return nil, err
	}
	env, err := unmarshalMap(text)
	if err != nil {
		return nil, fmt.Errorf("environment of %s: %w", id, err)
	}
	return env, nil
}

// SealVariables encrypts what a server before 00023 has written in clear, and takes the
// clear text out of the database's files. It does nothing when that is done, and goes on
// where it was interrupted. What is not encrypted yet can be read meanwhile.
func (s *Store) SealVariables(ctx context.Context) error {
	var pending int
	if err := s.reader.QueryRowContext(ctx, "SELECT count(*) FROM upgrades WHERE name = 'seal-variables'").Scan(&pending); err != nil || pending == 0 {
		return err
	}
	for _, c := range sealedColumns {
		for after, more := "", true; more; {
			err := s.write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
				after, more, err = s.sealRows(ctx, tx, c.table, c.column, after)
				return err
			})
			if err != nil {
				return fmt.Errorf("encrypt %s of %s: %w", c.column, c.table, err)
			}
		}
	}
	// Pages that are free, and the log of changes, have the clear text still.
	if _, err := s.writer.ExecContext(ctx, "VACUUM"); err != nil {
		return fmt.Errorf("take clear text out of the database: %w", err)
	}
	var busy, frames, done int
	if err := s.writer.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &done); err != nil || busy != 0 {
		return fmt.Errorf("take clear text out of the database's log: busy %d: %w", busy, err)
	}
	return s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM upgrades WHERE name = 'seal-variables'")
		return err
	})
}

// sealRows encrypts a column of the rows that come after an id.
func (s *Store) sealRows(ctx context.Context, tx *sql.Tx, table, column, after string) (last string, more bool, err error) {
	rows, err := readSecrets(ctx, tx, table, column, after, sealBatch)
	if err != nil {
		return "", false, err
	}
	for _, r := range rows {
		last = r.id
		if _, ok := decodeSealed(r.text); ok || r.text == "{}" {
			continue
		}
		text, err := s.sealText(r.text, column, r.id)
		if err != nil {
			return "", false, err
		}
		if err := r.write(ctx, tx, text); err != nil {
			return "", false, err
		}
	}
	return last, len(rows) == sealBatch, nil
}

// secretText is a column of a row.
type secretText struct{ table, column, id, text string }

func (t secretText) write(ctx context.Context, tx *sql.Tx, text string) error {
	_, err := tx.ExecContext(ctx, "UPDATE "+t.table+" SET "+t.column+" = $1 WHERE id = $2", text, t.id)
	return err
}

func readSecrets(ctx context.Context, tx *sql.Tx, table, column, after string, limit int) ([]secretText, error) {
	return collect(ctx, tx, func(row scanner) (secretText, error) {
		t := secretText{table: table, column: column}
		return t, row.Scan(&t.id, &t.text)
	}, "SELECT id, "+column+" FROM "+table+" WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
}

// Reseal replaces everything that is encrypted by what reseal makes of it, all or nothing:
// passwords of registries, and variables of sandboxes and snapshots. It returns how many
// there are and which keys they need now.
func (s *Store) Reseal(ctx context.Context, reseal func(s sandbox.Sealed, object string) (sandbox.Sealed, error)) (count int, keys map[string]bool, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		count, keys = 0, map[string]bool{}
		list, err := queryRegistries(ctx, tx, "SELECT "+registryColumns+" FROM registries")
		if err != nil {
			return err
		}
		for _, r := range list {
			if r.Password, err = reseal(r.Password, string(r.ID)); err != nil {
				return fmt.Errorf("registry %q (%s): %w", r.Name, r.ID, err)
			}
			if err := writeRegistry(ctx, tx, &r); err != nil {
				return err
			}
			count++
			keys[r.Password.KeyID] = true
		}
		for _, c := range sealedColumns {
			rows, err := readSecrets(ctx, tx, c.table, c.column, "", -1)
			if err != nil {
				return err
			}
			for _, r := range rows {
				sealed, ok := decodeSealed(r.text)
				if !ok {
					continue
				}
				if sealed, err = reseal(sealed, r.id+" "+c.column); err != nil {
					return fmt.Errorf("%s of %s: %w", c.column, r.id, err)
				}
				if err := r.write(ctx, tx, encodeSealed(sealed)); err != nil {
					return err
				}
				count++
				keys[sealed.KeyID] = true
			}
		}
		return nil
	})
	if err != nil {
		return 0, nil, fmt.Errorf("encrypt secrets anew: %w", err)
	}
	return count, keys, nil
}
