package store

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
)

// The statements for the words, which are of one length, serve records with any number of words.
func TestStatementsForAnyNumberOfWords(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "modbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Write(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		for n := range 101 {
			words := make([]string, n)
			for i := range words {
				words[i] = fmt.Sprint("w", i)
			}
			for _, statement := range []string{insertAuditWords, deleteAuditWords} {
				if changed, err := changeAuditWords(ctx, tx, statement, 1, words); err != nil || changed != int64(n) {
					t.Errorf("%.6s: %d words were changed, %v, want %d", statement, changed, err, n)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
