package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/modbox/modbox/internal/secret"
	"github.com/modbox/modbox/internal/store/database"
)

// sealBatch is the number of rows that SealVariables encrypts in one transaction.
const sealBatch = 500

// Keys encrypts secrets that the server must read again. Package secret implements it.
type Keys interface {
	// Seal encrypts a secret of an object: it can be read for that object only.
	Seal(plain, object string) (secret.Sealed, error)
	// Unseal decrypts a secret that Seal encrypted for the object. Errors: Unavailable if the
	// key is missing.
	Unseal(s secret.Sealed, object string) (string, error)
}

// sealer encrypts secret text in rows.
type sealer struct{ keys Keys } // nil without

// sealedPrefix begins text that is encrypted. Text of a server before 00023 is a JSON object,
// a hash in hexadecimal, or "fork of" a sandbox.
const sealedPrefix = "sealed:"

// sealedColumns are the columns whose text [sealer.sealText] made.
var sealedColumns = []struct{ table, column string }{
	{"sandboxes", "env"}, {"sandboxes", "request_hash"}, {"snapshots", "env"}, {"webhooks", "secret"}, {"webhooks", "old_secret"},
}

// sealText returns the encrypted form of a row's secret text: [sealedPrefix], the id of a
// key, a colon, and the ciphertext in base64.
func (s sealer) sealText(plain, column, id string) (string, error) {
	if s.keys == nil {
		return "", errors.New("the store has no keys to encrypt with")
	}
	sealed, err := s.keys.Seal(plain, id+" "+column)
	return encodeSealed(sealed), err
}

func encodeSealed(s secret.Sealed) string {
	return sealedPrefix + s.KeyID + ":" + base64.RawStdEncoding.EncodeToString(s.Data)
}

// decodeSealed reverses encodeSealed; ok is false for a text that is not encrypted.
func decodeSealed(text string) (s secret.Sealed, ok bool) {
	rest, ok := strings.CutPrefix(text, sealedPrefix)
	if !ok {
		return secret.Sealed{}, false
	}
	key, data, _ := strings.Cut(rest, ":")
	raw, err := base64.RawStdEncoding.DecodeString(data)
	return secret.Sealed{KeyID: key, Data: raw}, err == nil
}

// unsealText reverses sealText; it returns text that is not encrypted unchanged. Errors:
// Unavailable if the key is missing.
func (s sealer) unsealText(text, column, id string) (string, error) {
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

// sealEnv returns the stored form of variables.
func (s sealer) sealEnv(env map[string]string, id string) (string, error) {
	text, err := marshalMap(env)
	if err != nil || len(env) == 0 {
		return text, err
	}
	return s.sealText(text, "env", id)
}

// unsealEnv reverses sealEnv.
func (s sealer) unsealEnv(text, id string) (map[string]string, error) {
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

// Secrets are the encrypted values of all rows.
type Secrets struct {
	db *database.DB
	sealer
}

// SealVariables encrypts the variables that servers before migration 00023 wrote in clear,
// and removes the clear text from the database's files. It does nothing if that is done, and
// continues after an interruption. Reads work meanwhile.
func (s *Secrets) SealVariables(ctx context.Context) error {
	var pending int
	if err := s.db.Reader().QueryRowContext(ctx, "SELECT count(*) FROM upgrades WHERE name = 'seal-variables'").Scan(&pending); err != nil || pending == 0 {
		return err
	}
	for _, c := range sealedColumns {
		for after, more := "", true; more; {
			err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
				after, more, err = s.sealRows(ctx, tx, c.table, c.column, after)
				return err
			})
			if err != nil {
				return fmt.Errorf("encrypt %s of %s: %w", c.column, c.table, err)
			}
		}
	}
	// Free pages and the write-ahead log still contain the clear text.
	if err := s.db.Vacuum(ctx); err != nil {
		return err
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM upgrades WHERE name = 'seal-variables'")
		return err
	})
}

// sealRows encrypts a column of the rows after an id.
func (s *Secrets) sealRows(ctx context.Context, tx *sql.Tx, table, column, after string) (last string, more bool, err error) {
	rows, err := readSecrets(ctx, tx, table, column, after, sealBatch)
	if err != nil {
		return "", false, err
	}
	for _, r := range rows {
		last = r.id
		if _, ok := decodeSealed(r.text); ok || r.text == "{}" || r.text == "" {
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

// secretText is the text of a secret column of a row.
type secretText struct{ table, column, id, text string }

func (t secretText) write(ctx context.Context, tx *sql.Tx, text string) error {
	_, err := tx.ExecContext(ctx, "UPDATE "+t.table+" SET "+t.column+" = $1 WHERE id = $2", text, t.id)
	return err
}

func readSecrets(ctx context.Context, tx *sql.Tx, table, column, after string, limit int) ([]secretText, error) {
	return database.Collect(ctx, tx, func(row database.Scanner) (secretText, error) {
		t := secretText{table: table, column: column}
		return t, row.Scan(&t.id, &t.text)
	}, "SELECT id, "+column+" FROM "+table+" WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
}

// Reseal replaces every encrypted value by the result of reseal, in one transaction:
// passwords of registries, and variables of sandboxes and snapshots. It returns the number
// of values and the keys that they need now.
func (s *Secrets) Reseal(ctx context.Context, reseal func(s secret.Sealed, object string) (secret.Sealed, error)) (count int, keys map[string]bool, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
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
