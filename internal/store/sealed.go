package store

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
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
	var tables []string
	for _, c := range sealedColumns {
		if !slices.Contains(tables, c.table) {
			tables = append(tables, c.table)
		}
		for after, more := "", true; more; {
			var err error
			if after, more, err = s.sealRows(ctx, c.table, c.column, after); err != nil {
				return fmt.Errorf("encrypt %s of %s: %w", c.column, c.table, err)
			}
		}
	}
	// Free pages and the write-ahead log still contain the clear text.
	if err := s.db.Vacuum(ctx, tables...); err != nil {
		return err
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM upgrades WHERE name = 'seal-variables'")
		return err
	})
}

// sealRows encrypts a column of the rows after an id.
func (s *Secrets) sealRows(ctx context.Context, table, column, after string) (last string, more bool, err error) {
	rows, err := readSecrets(ctx, s.db.Reader(), table, column, after, sealBatch)
	if err != nil {
		return "", false, err
	}
	sealed := make([]string, len(rows))
	for i, r := range rows {
		last = r.id
		if _, ok := decodeSealed(r.text); ok || r.text == "{}" || r.text == "" {
			continue
		}
		if sealed[i], err = s.sealText(r.text, column, r.id); err != nil {
			return "", false, err
		}
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i, r := range rows {
			if sealed[i] == "" {
				continue
			}
			if err := r.replace(ctx, tx, sealed[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return last, len(rows) == sealBatch, err
}

// secretText is the text of a secret column of a row.
type secretText struct{ table, column, id, text string }

// replace writes another text, unless the row has changed since t was read.
func (t secretText) replace(ctx context.Context, tx *sql.Tx, text string) error {
	_, err := tx.ExecContext(ctx, "UPDATE "+t.table+" SET "+t.column+" = $1 WHERE id = $2 AND "+t.column+" = $3", text, t.id, t.text)
	return err
}

func readSecrets(ctx context.Context, q database.Querier, table, column, after string, limit int) ([]secretText, error) {
	return database.Collect(ctx, q, func(row database.Scanner) (secretText, error) {
		t := secretText{table: table, column: column}
		return t, row.Scan(&t.id, &t.text)
	}, "SELECT id, "+column+" FROM "+table+" WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
}

// registryPasswords is the place of the passwords of registries; the other places are columns of sealedColumns.
const registryPasswords = "password of registry"

// place is the place of the secrets in a column of a table.
func place(table, column string) string { return column + " in " + table }

// StoredSecrets returns every encrypted value: passwords of registries, and variables of sandboxes and snapshots.
func (s *Secrets) StoredSecrets(ctx context.Context) ([]secret.Stored, error) {
	all, err := database.Collect(ctx, s.db.Reader(), func(row database.Scanner) (secret.Stored, error) {
		p := secret.Stored{Place: registryPasswords}
		err := row.Scan(&p.ID, &p.Sealed.KeyID, &p.Sealed.Data)
		p.Object = p.ID
		return p, err
	}, "SELECT id, key_id, password FROM registries")
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	for _, c := range sealedColumns {
		rows, err := readSecrets(ctx, s.db.Reader(), c.table, c.column, "", math.MaxInt32)
		if err != nil {
			return nil, fmt.Errorf("read secrets: %w", err)
		}
		for _, r := range rows {
			if sealed, ok := decodeSealed(r.text); ok {
				all = append(all, secret.Stored{Place: place(c.table, c.column), ID: r.id, Object: r.id + " " + c.column, Sealed: sealed})
			}
		}
	}
	return all, nil
}

// ReplaceSecrets replaces prev, which [Secrets.StoredSecrets] returned, by next, in one transaction. A value that
// has changed or ended since it was read stays as it is.
func (s *Secrets) ReplaceSecrets(ctx context.Context, prev, next []secret.Stored) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for i := range prev {
			if err := replaceSecret(ctx, tx, &prev[i], next[i].Sealed); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("encrypt secrets anew: %w", err)
	}
	return nil
}

func replaceSecret(ctx context.Context, tx *sql.Tx, prev *secret.Stored, next secret.Sealed) error {
	if prev.Place == registryPasswords {
		_, err := tx.ExecContext(ctx, "UPDATE registries SET key_id = $1, password = $2 WHERE id = $3 AND key_id = $4 AND password = $5",
			next.KeyID, next.Data, prev.ID, prev.Sealed.KeyID, prev.Sealed.Data)
		return err
	}
	for _, c := range sealedColumns {
		if prev.Place == place(c.table, c.column) {
			return secretText{c.table, c.column, prev.ID, encodeSealed(prev.Sealed)}.replace(ctx, tx, encodeSealed(next))
		}
	}
	return fmt.Errorf("the store has no place %q for secrets", prev.Place)
}
