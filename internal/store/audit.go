package store

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
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

// ChangeAudit adds rows and intents to the audit log and removes intents, all in one
// transaction. It returns the state of the log afterwards. Errors: Conflict, with nothing changed, if the
// change has rows and the head of the log is not [audit.Change.Head].
func (s *Audit) ChangeAudit(ctx context.Context, change *audit.Change) (audit.Chain, error) {
	write := s.db.Note
	if change.Durable {
		write = s.db.Write
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
		chain, err = appendAudit(ctx, tx, change)
		return err
	})
	if err != nil {
		return audit.Chain{}, fmt.Errorf("change audit log: %w", err)
	}
	return chain, nil
}

// appendAudit adds the rows of a change and returns the state of the log with them.
func appendAudit(ctx context.Context, tx *sql.Tx, change *audit.Change) (audit.Chain, error) {
	chain, err := auditChain(ctx, tx)
	if err != nil || len(change.Rows) == 0 {
		return chain, err
	}
	if chain.Head != change.Head {
		return chain, sandbox.Errorf(sandbox.Conflict, "the audit log has a record after %d, where the new records should be", change.Head.Seq)
	}
	for _, r := range change.Rows {
		if _, err := tx.ExecContext(ctx, "INSERT INTO audit_records (seq, record, hash) VALUES ($1, $2, $3)", r.Seq, string(r.Record), hex.EncodeToString(r.Hash[:])); err != nil {
			return chain, err
		}
		words := audit.Words(r.Record)
		if err := addAuditWords(ctx, tx, r.Seq, words); err != nil {
			return chain, err
		}
		chain.Head = audit.Point{Seq: r.Seq, Hash: r.Hash}
		chain.Bytes += auditBytes(r.Record, len(words))
	}
	return chain, putAuditChain(ctx, tx, &chain)
}

// wordBytes is about the space of a row of audit_words.
const wordBytes = 80

// auditBytes returns the space that a record takes with so many words in the index.
func auditBytes(record []byte, words int) int64 { return int64(len(record) + words*wordBytes) }

// addAuditWords adds the words of a record, in one statement: the database has one writer, for which all others wait.
func addAuditWords(ctx context.Context, tx *sql.Tx, seq int64, words []string) error {
	if len(words) == 0 {
		return nil
	}
	var q database.Query
	number := q.Arg(seq)
	rows := make([]string, len(words))
	for i, word := range words {
		rows[i] = "(" + q.Arg(word) + ", " + number + ")"
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO audit_words (word, seq) VALUES "+strings.Join(rows, ", "), q.Args...)
	return err
}

// AuditIntents returns at most limit of the recorded intents.
func (s *Audit) AuditIntents(ctx context.Context, limit int) ([]audit.Intent, error) {
	rows, err := s.db.Reader().QueryContext(ctx, "SELECT id, record FROM audit_intents LIMIT $1", limit)
	if err != nil {
		return nil, fmt.Errorf("list audit intents: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var list []audit.Intent
	for rows.Next() {
		var i audit.Intent
		if err := rows.Scan(&i.ID, &i.Record); err != nil {
			return nil, fmt.Errorf("read audit intents: %w", err)
		}
		list = append(list, i)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list audit intents: %w", err)
	}
	return list, nil
}

// CutAudit removes the oldest rows of the audit log and returns their number. It keeps the
// hash of the last removed row, from which the rest of the chain is verified.
func (s *Audit) CutAudit(ctx context.Context, cut audit.Cut) (int, error) {
	n := 0
	err := s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		chain, err := auditChain(ctx, tx)
		if err != nil {
			return err
		}
		removed, words, err := moveAnchor(ctx, tx, cut, &chain)
		if n = len(removed); err != nil || n == 0 {
			return err
		}
		indexed, err := removeAuditWords(ctx, tx, removed)
		if err != nil {
			return err
		}
		chain.Bytes += (words - indexed) * wordBytes // records from before the index have no words in it
		if _, err := tx.ExecContext(ctx, "DELETE FROM audit_records WHERE seq <= $1", chain.Anchor.Seq); err != nil {
			return err
		}
		return putAuditChain(ctx, tx, &chain)
	})
	if err != nil {
		return 0, fmt.Errorf("cut audit log: %w", err)
	}
	return n, nil
}

// removeAuditWords removes the words of rows and returns their number. The index has the order of the words, not of the rows.
func removeAuditWords(ctx context.Context, tx *sql.Tx, rows []audit.Row) (int64, error) {
	var removed int64
	for _, r := range rows {
		words := audit.Words(r.Record)
		if len(words) == 0 {
			continue
		}
		var q database.Query
		number := q.Arg(r.Seq)
		list := make([]string, len(words))
		for i, word := range words {
			list[i] = q.Arg(word)
		}
		result, err := tx.ExecContext(ctx, "DELETE FROM audit_words WHERE seq = "+number+" AND word IN ("+strings.Join(list, ", ")+")", q.Args...)
		if err != nil {
			return removed, err
		}
		n, err := result.RowsAffected()
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// moveAnchor moves the anchor of chain past the rows that exceed the limits of the log and
// returns these rows, without their hashes, and the number of words that it counted as removed with them.
func moveAnchor(ctx context.Context, tx *sql.Tx, cut audit.Cut, chain *audit.Chain) ([]audit.Row, int64, error) {
	rows, err := tx.QueryContext(ctx, "SELECT seq, record, hash, time FROM audit_records ORDER BY seq LIMIT "+strconv.Itoa(cut.Limit))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	var removed []audit.Row
	var words int64
	for rows.Next() {
		var seq int64
		var record []byte
		var hash, at string
		if err := rows.Scan(&seq, &record, &hash, &at); err != nil {
			return nil, 0, err
		}
		if at >= auditTime(cut.Before) && (cut.MaxBytes == 0 || chain.Bytes <= cut.MaxBytes) {
			break
		}
		chain.Anchor.Seq = seq
		chain.Anchor.Hash, _ = auditHash(hash) // a damaged hash must not prevent every later removal
		n := len(audit.Words(record))
		chain.Bytes -= auditBytes(record, n)
		words += int64(n)
		removed = append(removed, audit.Row{Seq: seq, Record: record})
	}
	return removed, words, rows.Err()
}

// AuditChain returns the state of the audit log.
func (s *Audit) AuditChain(ctx context.Context) (audit.Chain, error) {
	return auditChain(ctx, s.db.Reader())
}

// AuditRows returns a page of the audit log, the newest first unless the filter
// says otherwise. Errors: Invalid, naming limit, cursor or search.
func (s *Audit) AuditRows(ctx context.Context, f audit.Filter) (page.Page[audit.Row], error) {
	var q database.Query
	for left, v := range map[string]string{
		"workspace_id = ": string(f.Workspace), "user_id = ": string(f.User), "action = ": f.Action, "outcome = ": f.Outcome,
	} {
		if v != "" {
			q.Where(left, v)
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
