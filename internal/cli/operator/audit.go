package operator

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/modbox/modbox/client"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/cli/base"
)

const (
	// auditPage is the number of records in a request.
	auditPage = 1000
	// auditLineMax bounds a line of an exported log.
	auditLineMax = 1 << 20
)

// auditFlags are the filters of a list of audit records.
type auditFlags struct {
	client.AuditOptions
	since, until string
	all          bool
}

func (f *auditFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.since, "since", "", "from then on: a time (RFC 3339), or how long ago (24h)")
	cmd.Flags().StringVar(&f.until, "until", "", "before then: a time (RFC 3339), or how long ago (24h)")
	cmd.Flags().StringVar(&f.User, "user", "", "records of the user with this id")
	cmd.Flags().StringVar(&f.Object, "object", "", "records of the object with this id or name")
	cmd.Flags().StringVar(&f.Action, "action", "", "records of this action, e.g. exec, create-sandbox, login")
	cmd.Flags().StringVar(&f.Outcome, "outcome", "", "records with this outcome: ok, started, cancelled, interrupted, failed, or the code of an error")
	cmd.Flags().StringVar(&f.Search, "search", "", "records with all of these words in their action, outcome, address, object, command, details or outputs")
	cmd.Flags().BoolVar(&f.all, "all", false, "in all workspaces and in none; for administrators")
}

// auditList returns a list of records.
type auditList func(client.AuditOptions) *client.List[client.AuditEntry]

// list returns the list that the flags select.
func (f *auditFlags) list(c *client.Client) (auditList, error) {
	var err error
	if f.Since, err = moment("since", f.since); err != nil {
		return nil, err
	}
	if f.Until, err = moment("until", f.until); err != nil {
		return nil, err
	}
	if f.all {
		return c.Audit.ListInstallation, nil
	}
	return c.Audit.List, nil
}

// moment reads a time, or a duration before now.
func moment(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, base.UsageError("--%s: %q is neither a time such as 2006-01-02T15:04:05Z nor a duration such as 24h", flag, s)
	}
	return t, nil
}

// NewAuditCommand returns the command "modbox audit".
func NewAuditCommand(env *base.Env) *cobra.Command {
	var flags auditFlags
	var limit int
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who did what, the newest first",
		Long: `Show who did what, the newest first. Owners and admins of a workspace see its records,
administrators of the server all records, with --all.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := flags.list(c)
			if err != nil {
				return err
			}
			entries, _, err := base.First(cmd.Context(), list(flags.AuditOptions), limit)
			if err != nil {
				return err
			}
			return printAudit(env, entries)
		},
	}
	flags.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "records to show; 0 shows all")
	cmd.AddCommand(newAuditExportCommand(env), newAuditVerifyCommand(env))
	return cmd
}

func printAudit(env *base.Env, entries []client.AuditEntry) error {
	if env.JSON {
		return env.PrintJSON(entries)
	}
	var rows [][]string
	for _, e := range entries {
		r := e.Record
		did := strings.Join(r.Command, " ")
		if did == "" {
			did = r.Details["path"]
		}
		rows = append(rows, []string{
			strconv.FormatInt(r.Seq, 10), r.Time.Local().Format(time.DateTime), cmp.Or(r.UserID, r.Via, "-"), r.Address,
			r.Action, r.Outcome, strings.TrimSpace(r.ObjectKind + " " + cmp.Or(r.ObjectName, r.ObjectID)), shortened(did),
		})
	}
	return env.PrintTable([]string{"SEQ", "TIME", "USER", "ADDRESS", "ACTION", "OUTCOME", "OBJECT", "WHAT"}, rows)
}

// shortened returns a text cut to fit a line of a table.
func shortened(s string) string {
	const most = 60
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

func newAuditExportCommand(env *base.Env) *cobra.Command {
	var flags auditFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print records as JSON lines, the oldest first",
		Long: `Print records as JSON lines, the oldest first. With --all, and nothing else than
--since or --until, they are a part of the chain without gaps, which
"modbox audit verify --file" checks.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := env.Client()
			if err != nil {
				return err
			}
			list, err := flags.list(c)
			if err != nil {
				return err
			}
			return flags.export(cmd.Context(), list, json.NewEncoder(env.Stdout))
		},
	}
	flags.add(cmd)
	return cmd
}

// export writes the records, oldest first. If times are the only filter, it writes all from the
// first to the last match: times need not be in the order of the chain.
func (f *auditFlags) export(ctx context.Context, list auditList, out *json.Encoder) error {
	o := f.AuditOptions
	o.Ascending = true
	var until time.Time
	if f.all && f.AuditOptions == (client.AuditOptions{Since: f.Since, Until: f.Until}) {
		first, err := list(client.AuditOptions{Since: f.Since, Ascending: true}).Page(ctx, client.PageOptions{Limit: 1})
		if err != nil || len(first.Items) == 0 {
			return err
		}
		until = f.Until
		o.Since, o.Until, o.AfterSeq = time.Time{}, time.Time{}, first.Items[0].Seq-1
	}
	records := list(o)
	records.PageSize = auditPage
	for e, err := range records.All(ctx) {
		if err != nil {
			return err
		}
		if !until.IsZero() && !e.Record.Time.Before(until) {
			return nil
		}
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

func newAuditVerifyCommand(env *base.Env) *cobra.Command {
	var file, head string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the audit log is unchanged",
		Long: `Check that no record of the audit log was changed, removed, added or moved: the
server's whole log, or a part of it that "modbox audit export --all" wrote. Prints
the newest record's number and hash, the head. Kept elsewhere, it can be given
with --head later, which tells whether the whole log was made anew since.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := parseHead(head)
			if err != nil {
				return err
			}
			report, err := verifyAudit(cmd.Context(), env, file, want)
			if err != nil {
				return err
			}
			if env.JSON {
				err = env.PrintJSON(report)
			} else if report.OK {
				_, err = fmt.Fprintf(env.Stdout, "%d records are unchanged; head %d:%s\n", report.Records, report.HeadSeq, report.HeadHash)
			}
			if err == nil && !report.OK {
				err = fmt.Errorf("the audit log is not what it was: %s", report.Problem)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "check what export wrote, without a server; - is standard input")
	cmd.Flags().StringVar(&head, "head", "", "a head of before, NUMBER:HASH, that must be in the log as it was")
	return cmd
}

// parseHead parses a head in the format of verify; nil for "".
func parseHead(s string) (*audit.Point, error) {
	if s == "" {
		return nil, nil
	}
	number, text, _ := strings.Cut(s, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	hash, hashErr := parseAuditHash(text)
	if err != nil || hashErr != nil || seq < 1 {
		return nil, base.UsageError("--head: %q is not a head such as 12:5f1c…, with all 64 digits of the hash", s)
	}
	return &audit.Point{Seq: seq, Hash: hash}, nil
}

func parseAuditHash(s string) (h audit.Hash, err error) {
	if n, err := hex.Decode(h[:min(len(h), len(s)/2)], []byte(s)); err != nil || n != len(h) || len(s) != 2*len(h) {
		return h, errors.New("not a hash")
	}
	return h, nil
}

// verifyAudit verifies the server's log, or the file if one is given, and checks that it contains
// the head.
func verifyAudit(ctx context.Context, env *base.Env, file string, head *audit.Point) (*client.AuditReport, error) {
	if file != "" {
		in := env.Stdin
		if file != "-" {
			f, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			in = f
		}
		return verifyLines(in, head)
	}
	c, err := env.Client()
	if err != nil {
		return nil, err
	}
	report, err := c.Audit.Verify(ctx)
	if err != nil || !report.OK || head == nil {
		return report, err
	}
	page, err := c.Audit.ListInstallation(client.AuditOptions{Ascending: true, AfterSeq: head.Seq - 1}).Page(ctx, client.PageOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	found := map[int64]string{report.AnchorSeq: report.AnchorHash}
	for _, e := range page.Items {
		found[e.Seq] = e.Hash
	}
	judgeHead(report, head, found[head.Seq])
	return report, nil
}

// judgeHead sets the problem of a report if the log has another hash at the head.
func judgeHead(report *client.AuditReport, head *audit.Point, found string) {
	switch {
	case found == "":
		report.OK, report.Problem = false, fmt.Sprintf("record %d is not in it", head.Seq)
	case found != hex.EncodeToString(head.Hash[:]):
		report.OK, report.Problem = false, fmt.Sprintf("record %d has the hash %s: the log was made anew", head.Seq, found)
	}
}

// verifyLines verifies the output of export.
func verifyLines(in io.Reader, head *audit.Point) (*client.AuditReport, error) {
	report := &client.AuditReport{OK: true}
	v := audit.FromFirst()
	found := ""
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, auditLineMax)
	for lines.Scan() {
		var e client.AuditEntry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			report.OK, report.Problem = false, fmt.Sprintf("line %d is no record: %v", report.Records+1, err)
			return report, nil
		}
		row := audit.Row{Seq: e.Seq, Record: e.Raw}
		row.Prev, _ = parseAuditHash(e.Prev) // an invalid hash also differs from the right hash
		row.Hash, _ = parseAuditHash(e.Hash)
		if report.Records == 0 {
			report.AnchorSeq, report.AnchorHash = e.Seq-1, e.Prev
		}
		if err := v.Check(row); err != nil {
			report.OK, report.Problem = false, err.Error()
			return report, nil
		}
		report.Records++
		if head != nil && e.Seq == head.Seq {
			found = e.Hash
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the exported log: %w", err)
	}
	at := v.At()
	report.HeadSeq, report.HeadHash = at.Seq, hex.EncodeToString(at.Hash[:])
	if head != nil {
		judgeHead(report, head, found)
	}
	return report, nil
}
