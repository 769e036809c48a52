package audit

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/page"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// QueryTime bounds a query, VerifyTime a verification.
	QueryTime, VerifyTime = 20 * time.Second, 15 * time.Minute
	// verifyPage is the number of rows read at once, each a few kilobytes at most.
	verifyPage = 500
)

// Rows returns a page of the log, newest first unless the filter says otherwise. It includes the
// records of all requests answered before. Errors: Invalid, naming limit, cursor or search; Timeout when
// the filter makes it read too much.
func (l *Log) Rows(ctx context.Context, f Filter) (page.Page[Row], error) {
	timed, cancel := context.WithTimeout(ctx, QueryTime)
	defer cancel()
	release, err := l.slots.acquire(timed, f.Workspace)
	if err == nil {
		defer release()
		err = l.flush(timed)
	}
	if err == nil {
		var rows page.Page[Row]
		if rows, err = l.store.AuditRows(timed, f); err == nil {
			return rows, nil
		}
	}
	if timed.Err() != nil && ctx.Err() == nil {
		err = sandbox.Wrap(sandbox.Timeout, err, "the audit log could not be searched in time; ask for less with since and until, or for longer words")
	}
	return page.Page[Row]{}, err
}

// Report is the result of a verification.
type Report struct {
	// Anchor is the last record that was cut off, Head the newest record.
	Anchor, Head Point
	// Records is the number of verified records, all of the log unless Problem is set.
	Records int64
	Problem string
}

// verifications bounds the attempts of a verification during which other servers remove old records.
const verifications = 3

// Verify reads the whole log, a page at a time, and checks its chain, until ctx ends. Meanwhile
// this server cuts nothing, and queries are answered. If another server has cut records, Verify begins again. Errors: Timeout after
// [VerifyTime], including the wait for other verifications; Conflict if others go on cutting.
func (l *Log) Verify(ctx context.Context) (Report, error) {
	timed, cancel := context.WithTimeout(ctx, VerifyTime)
	defer cancel()
	report, err := l.verify(timed)
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		return Report{}, sandbox.Wrap(sandbox.Timeout, err, "the audit log could not be verified in time; export it and verify the file")
	}
	return report, err
}

func (l *Log) verify(ctx context.Context) (Report, error) {
	select {
	case l.verifying <- struct{}{}:
		defer func() { <-l.verifying }()
	case <-ctx.Done():
		return Report{}, ctx.Err()
	}
	if err := l.flush(ctx); err != nil {
		return Report{}, fmt.Errorf("write audit log: %w", err)
	}
	l.whole.RLock()
	defer l.whole.RUnlock()
	for range verifications {
		report, err := l.check(ctx)
		if err != nil || report.Problem == "" {
			return report, err
		}
		if chain, err := l.store.AuditChain(ctx); err != nil || chain.Anchor == report.Anchor {
			return report, err
		}
	}
	return Report{}, sandbox.Errorf(sandbox.Conflict, "another server removes old records of the audit log at this moment; try again")
}

// check is verify without a second attempt.
func (l *Log) check(ctx context.Context) (Report, error) {
	chain, err := l.store.AuditChain(ctx)
	if err != nil {
		return Report{}, err
	}
	report := Report{Anchor: chain.Anchor, Head: chain.Head}
	v := From(chain.Anchor)
	last := int64(0)
	for f := (Filter{Limit: verifyPage, Ascending: true}); ; {
		rows, err := l.store.AuditRows(ctx, f)
		if err != nil {
			return Report{}, err
		}
		for _, r := range rows.Items {
			if r.Seq > chain.Head.Seq && v.At().Seq == chain.Head.Seq {
				break // added meanwhile
			}
			if err := v.Check(r); err != nil {
				report.Problem = err.Error()
				return report, nil
			}
			last = r.Seq
			report.Records++
		}
		if f.Cursor = rows.Next; f.Cursor == "" || last >= chain.Head.Seq {
			break
		}
	}
	if v.At() != chain.Head {
		report.Problem = fmt.Sprintf("the newest record is %d (%s), and should be %d (%s): records are missing at the end",
			v.At().Seq, hex.EncodeToString(v.at.Hash[:]), chain.Head.Seq, hex.EncodeToString(chain.Head.Hash[:]))
	}
	return report, nil
}
