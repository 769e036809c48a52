package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// Audit is the audit log.
type Audit struct{ db *database.DB }

// ChangeAudit adds records and intents to the audit log and removes intents, all in one
// transaction. It returns the state of the log afterwards.
func (s *Audit) ChangeAudit(ctx context.Context, change *audit.Change) (audit.Chain, error) {
	write := s.db.Note
	if change.Durable {
		write = s.db.Write
	}
	words := make([][]string, len(change.Records)) // before the transaction, for which all other writers wait
	for i, r := range change.Records {
		text, err := json.Marshal(r)
		if err != nil {
			return audit.Chain{}, fmt.Errorf("change audit log: %w", err)
		}
		words[i] = audit.Words(text)
	}
	var chain audit.Chain
	err := write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, i := range change.Begun {
			if _, err := tx.ExecContext(ctx, "INSERT INTO audit_intents (id, record) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET record = $2", i.ID, string(i.Record)); err != nil {
				return err
			}
		}
		for _, id := range change.Ended {
			if _, err := tx.ExecContext(ctx, "DELETE FROM audit_intents WHERE id = $1", id); err != nil {
				return err
			}
		}
		var err error
		chain, err = appendAudit(ctx, tx, change.Records, words)
		return err
	})
	if err != nil {
		return audit.Chain{}, fmt.Errorf("change audit log: %w", err)
	}
	return chain, nil
}

// appendAudit adds records, with the words of each, after the newest row of the log, and returns the state of the log with them.
func appendAudit(ctx context.Context, tx *sql.Tx, records []*audit.Record, words [][]string) (audit.Chain, error) {
	chain, err := auditChain(ctx, tx)
	if err != nil || len(records) == 0 {
		return chain, err
	}
	rows, err := audit.Seal(chain.Head, records)
	if err != nil {
		return chain, err
	}
	for i, r := range rows {
		if _, err := tx.ExecContext(ctx, "INSERT INTO audit_records (seq, record, hash) VALUES ($1, $2, $3)", r.Seq, string(r.Record), hex.EncodeToString(r.Hash[:])); err != nil {
			return chain, err
		}
		if _, err := changeAuditWords(ctx, tx, insertAuditWords, r.Seq, words[i]); err != nil {
			return chain, err
		}
		chain.Head = audit.Point{Seq: r.Seq, Hash: r.Hash}
		chain.Bytes += auditBytes(r.Record, len(words[i]))
	}
	return chain, putAuditChain(ctx, tx, &chain)
}

// wordBytes is about the space of a row of audit_words.
const wordBytes = 80

// auditBytes returns the space that a record takes with so many words in the index.
func auditBytes(record []byte, words int) int64 { return int64(len(record) + words*wordBytes) }

// auditWordsAtOnce is the number of words in a statement that adds or removes them. It is the same for all, so that
// there are two texts of statements: a connection keeps a bounded number of prepared statements.
const auditWordsAtOnce = 20

var insertAuditWords, deleteAuditWords = auditWordStatements()

// auditWordStatements returns the statements that add and remove words of a record, which may be repeated: the first argument is
// the number of the record.
func auditWordStatements() (add, remove string) {
	rows, words := make([]string, auditWordsAtOnce), make([]string, auditWordsAtOnce)
	for i := range auditWordsAtOnce {
		words[i] = "$" + strconv.Itoa(i+2)
		rows[i] = "(" + words[i] + ", $1)"
	}
	return "INSERT INTO audit_words (word, seq) VALUES " + strings.Join(rows, ", ") + " ON CONFLICT DO NOTHING",
		"DELETE FROM audit_words WHERE seq = $1 AND word IN (" + strings.Join(words, ", ") + ")"
}

// changeAuditWords runs a statement for the words of a record, and returns the number of words that it changed. The index has
// the order of the words, not of the records.
func changeAuditWords(ctx context.Context, tx *sql.Tx, statement string, seq int64, words []string) (changed int64, err error) {
	for some := range slices.Chunk(words, auditWordsAtOnce) {
		args := make([]any, 1+auditWordsAtOnce)
		args[0] = seq
		for i := range auditWordsAtOnce {
			args[i+1] = some[min(i, len(some)-1)]
		}
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return changed, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// AuditIntents returns at most limit of the recorded intents in the shards of the server.
func (s *Audit) AuditIntents(ctx context.Context, limit int) ([]audit.Intent, error) {
	rows, err := s.db.Reader().QueryContext(ctx, "SELECT id, record FROM audit_intents")
	if err != nil {
		return nil, fmt.Errorf("list audit intents: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var list []audit.Intent
	for len(list) < limit && rows.Next() {
		var i audit.Intent
		if err := rows.Scan(&i.ID, &i.Record); err != nil {
			return nil, fmt.Errorf("read audit intents: %w", err)
		}
		if s.db.Ranges().Has(sandbox.ID(i.ID)) {
			list = append(list, i)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list audit intents: %w", err)
	}
	return list, nil
}

// CutAudit removes the oldest rows of the audit log and returns their number, and whether there may be more to
// remove. It keeps the hash of the last removed row, from which the rest of the chain is verified.
func (s *Audit) CutAudit(ctx context.Context, cut audit.Cut) (n int, more bool, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		chain, err := auditChain(ctx, tx)
		if err != nil {
			return err
		}
		var removed []cutRow
		removed, more, err = moveAnchor(ctx, tx, cut, &chain)
		if n = len(removed); err != nil || n == 0 {
			return err
		}
		for _, r := range removed {
			indexed, err := changeAuditWords(ctx, tx, deleteAuditWords, r.seq, r.words)
			if err != nil {
				return err
			}
			chain.Bytes += (int64(len(r.words)) - indexed) * wordBytes // a record from before the index has no words in it
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM audit_records WHERE seq <= $1", chain.Anchor.Seq); err != nil {
			return err
		}
		return putAuditChain(ctx, tx, &chain)
	})
	if err != nil {
		return 0, false, fmt.Errorf("cut audit log: %w", err)
	}
	return n, more, nil
}

// cutRow is a row that is removed, with its words.
type cutRow struct {
	seq   int64
	words []string
}

// moveAnchor moves the anchor of chain past the rows that exceed the limits of the log and returns these rows. It reports
// whether a bound of the cut ended it.
func moveAnchor(ctx context.Context, tx *sql.Tx, cut audit.Cut, chain *audit.Chain) (removed []cutRow, more bool, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT seq, record, hash, time FROM audit_records ORDER BY seq LIMIT "+strconv.Itoa(cut.Limit))
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = rows.Close() }()
	words := 0
	for rows.Next() {
		var r cutRow
		var record []byte
		var hash, at string
		if err := rows.Scan(&r.seq, &record, &hash, &at); err != nil {
			return nil, false, err
		}
		if at >= auditTime(cut.Before) && (cut.MaxBytes == 0 || chain.Bytes <= cut.MaxBytes) {
			return removed, false, nil
		}
		chain.Anchor.Seq = r.seq
		chain.Anchor.Hash, _ = auditHash(hash) // a damaged hash must not prevent every later removal
		r.words = audit.Words(record)
		chain.Bytes -= auditBytes(record, len(r.words))
		removed = append(removed, r)
		if words += len(r.words); words >= cut.Words {
			return removed, true, nil
		}
	}
	return removed, len(removed) == cut.Limit, rows.Err()
}

// AuditChain returns the state of the audit log.
func (s *Audit) AuditChain(ctx context.Context) (audit.Chain, error) {
	return auditChain(ctx, s.db.Reader())
}

// AuditRows returns a page of the audit log, the newest first unless the filter
// says otherwise. Errors: Invalid, naming limit, cursor or search.
func (s *Audit) AuditRows(ctx context.Context, f audit.Filter) (page.Page[audit.Row], error) {
	var q database.Query
	for _, c := range []struct{ left, value string }{
		{"workspace_id = ", string(f.Workspace)}, {"user_id = ", string(f.User)}, {"action = ", f.Action}, {"outcome = ", f.Outcome},
	} {
		if c.value != "" {
			q.Where(c.left, c.value)
		}
	}
	if f.Object != "" {
		q.And(fmt.Sprintf("(object_id = %s OR object_name = %s)", q.Arg(f.Object), q.Arg(f.Object)))
	}
	if err := searched(&q, f.Search); err != nil {
		return page.Page[audit.Row]{}, err
	}
	if !f.Since.IsZero() {
		q.Where("time >= ", auditTime(f.Since))
	}
	if !f.Until.IsZero() {
		q.Where("time < ", auditTime(f.Until))
	}
	if f.AfterSeq > 0 {
		q.Where("seq > ", f.AfterSeq)
	}
	list := database.Listing[audit.Row]{
		Order: "seq desc", Columns: []string{"seq"}, Descending: !f.Ascending,
		Key:  func(r audit.Row) []any { return []any{r.Seq} },
		Read: s.queryAudit,
	}
	if f.Ascending {
		list.Order = "seq"
	}
	return list.Page(ctx, page.Request{Limit: f.Limit, Cursor: f.Cursor}, `SELECT seq, record, hash, coalesce((SELECT p.hash FROM audit_records p WHERE p.seq = r.seq - 1),
		(SELECT anchor_hash FROM audit_chain)) FROM audit_records r`, q)
}

// searched adds the conditions of a search.
func searched(q *database.Query, search string) error {
	if search == "" {
		return nil
	}
	words, err := audit.WantedWords(search)
	for _, w := range words {
		until := w.Word
		if w.Prefix {
			until += string(unicode.MaxRune)
		}
		q.And(fmt.Sprintf("seq IN (SELECT seq FROM audit_words WHERE word BETWEEN %s AND %s)", q.Arg(w.Word), q.Arg(until)))
	}
	return err
}

func (s *Audit) queryAudit(ctx context.Context, q string, args ...any) ([]audit.Row, error) {
	rows, err := s.db.Reader().QueryContext(ctx, q, args...)
	if err != nil {
		return nil, fmt.Errorf("list audit log: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var list []audit.Row
	for rows.Next() {
		var r audit.Row
		var hash, prev string
		if err := rows.Scan(&r.Seq, &r.Record, &hash, &prev); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		// A damaged hash is shown as empty, so that the other rows can still be read.
		r.Hash, _ = auditHash(hash)
		r.Prev, _ = auditHash(prev)
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list audit log: %w", err)
	}
	return list, nil
}

func auditChain(ctx context.Context, from database.Querier) (c audit.Chain, err error) {
	var anchor, head string
	err = from.QueryRowContext(ctx, "SELECT anchor_seq, anchor_hash, head_seq, head_hash, bytes FROM audit_chain").
		Scan(&c.Anchor.Seq, &anchor, &c.Head.Seq, &head, &c.Bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return audit.Chain{}, nil
	}
	if err == nil {
		c.Anchor.Hash, err = auditHash(anchor)
	}
	if err == nil {
		c.Head.Hash, err = auditHash(head)
	}
	if err != nil {
		return audit.Chain{}, fmt.Errorf("read state of audit log: %w", err)
	}
	return c, nil
}

func putAuditChain(ctx context.Context, tx *sql.Tx, c *audit.Chain) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO audit_chain (id, anchor_seq, anchor_hash, head_seq, head_hash, bytes) VALUES (1, $1, $2, $3, $4, $5)
		ON CONFLICT (id) DO UPDATE SET anchor_seq = $1, anchor_hash = $2, head_seq = $3, head_hash = $4, bytes = $5`,
		c.Anchor.Seq, hex.EncodeToString(c.Anchor.Hash[:]), c.Head.Seq, hex.EncodeToString(c.Head.Hash[:]), c.Bytes)
	return err
}

// auditTime is the format of a record's time. The texts sort as the times do.
func auditTime(t time.Time) string { return t.UTC().Format(audit.TimeFormat) }

// auditHash decodes a stored hash.
func auditHash(s string) (h audit.Hash, err error) {
	t, err := database.FromHex(s)
	return audit.Hash(t), err
}
