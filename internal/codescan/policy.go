package codescan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modbox/modbox/internal/account"
	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/fairsem"
	"github.com/modbox/modbox/internal/sandbox"
)

const (
	// scansMax bounds the scans under way for policies, in all workspaces together. Each holds its code and the
	// output of a scanner.
	scansMax = 32
	// waitMax bounds the time that a scan waits for its turn, and retryAfter is the delay suggested after that.
	waitMax, retryAfter = 30 * time.Second, 5 * time.Second
	// namedMax bounds the findings that an error names.
	namedMax = 3
)

// Policy is the policy of a workspace.
type Policy struct {
	Mode account.CodeScan
	// Rules are the rules that count; none means all. Code that cannot be parsed counts in any case.
	Rules account.ScanRules
}

// Policies has the policies of workspaces. It is safe for concurrent use.
type Policies interface {
	// CodeScan returns the policy of a workspace. Errors: NotFound.
	CodeScan(ctx context.Context, ws sandbox.WorkspaceID) (Policy, error)
}

// Service enforces policies. It is safe for concurrent use. A nil *Service enforces none.
type Service struct {
	policies Policies
	places   *fairsem.Semaphore
}

// New returns a service for policies.
func New(policies Policies) *Service {
	return &Service{policies: policies, places: fairsem.New(scansMax)}
}

// Report collects the findings of the scans of a request. It is safe for concurrent use.
type Report struct {
	mu         sync.Mutex
	scanned    bool   // guarded by mu
	result     Result // guarded by mu
	notScanned string // guarded by mu
}

type reportKey struct{}

// Collect returns a context for calls that run code, and the report of their scans.
func Collect(ctx context.Context) (context.Context, *Report) {
	r := &Report{}
	return context.WithValue(ctx, reportKey{}, r), r
}

// Result returns the findings; notScanned says why code was not scanned, and is "" if it was. ok is
// false if no policy demanded a scan, or the request contains no code.
func (r *Report) Result() (result Result, notScanned string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.result, r.notScanned, r.scanned
}

func (r *Report) note(result *Result, notScanned string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scanned, r.notScanned = true, notScanned
	for _, f := range result.Findings {
		r.result.add(f)
	}
	r.result.Truncated = r.result.Truncated || result.Truncated
}

// Review scans code of a workspace that is about to run in a sandbox, by commands that run runs there,
// if the workspace's policy demands it. The findings go to the report and the audit record of the
// context. An error means that the code must not run. Errors: CodeBlocked if the policy is to block code with
// findings, and there are some or the code cannot be scanned; Unavailable if the scan did not get its turn; NotFound; the errors of
// reaching the sandbox, and of finding the language of code; the context's.
func (s *Service) Review(ctx context.Context, ws sandbox.WorkspaceID, codes []Code, run Run) error {
	if s == nil || len(codes) == 0 || ctx.Value(exemptKey{}) != nil {
		return nil
	}
	policy, err := s.policies.CodeScan(ctx, ws)
	if err != nil {
		return fmt.Errorf("read the policy of workspace %s: %w", ws, err)
	}
	if policy.Mode == account.CodeScanOff {
		return nil
	}
	for i := range codes {
		if codes[i].find == nil {
			continue
		}
		if codes[i].Language, err = codes[i].find(ctx); err != nil {
			return err
		}
	}
	result, err := s.scan(ctx, ws, codes, run)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	result.keep(policy.Rules)
	blocked := policy.verdict(&result, err)
	note(ctx, &result, err, blocked != nil)
	return blocked
}

// scan scans code as soon as the workspace gets its turn.
func (s *Service) scan(ctx context.Context, ws sandbox.WorkspaceID, codes []Code, run Run) (Result, error) {
	var all Result
	turn, cancel := context.WithTimeout(ctx, waitMax)
	defer cancel()
	release, err := s.places.Acquire(turn, ws, nil)
	if err != nil {
		e := sandbox.Wrap(sandbox.Unavailable, err, "too many scans of code are under way; try again")
		e.RetryAfter = retryAfter
		return all, e
	}
	defer release()
	for i := range codes {
		if size := codes[i].size(); size > CodeMax {
			return all, sandbox.Wrap(sandbox.TooLarge, errScanner, "the code has %d bytes, and at most %d can be scanned", size, CodeMax)
		}
		result, err := Scan(ctx, run, codes[i].Language, codes[i].text(), nil)
		if err != nil {
			return all, err
		}
		for _, f := range result.Findings {
			all.add(f)
		}
		all.Truncated = all.Truncated || result.Truncated
	}
	return all, nil
}

// keep drops findings of rules that do not count, unless there are too many to know all.
func (r *Result) keep(rules []string) {
	if len(rules) == 0 {
		return
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Rule != "syntax" && !slices.Contains(rules, f.Rule) })
}

// verdict returns the error with which code does not run; nil if it runs. scanErr says why it was not scanned.
func (p Policy) verdict(r *Result, scanErr error) error {
	const policy = "the workspace's policy (code_scan: block) does not let this code run, and nothing ran: "
	switch {
	case p.Mode != account.CodeScanBlock:
		return nil
	case scanErr != nil && sandbox.CodeOf(scanErr) == sandbox.Unavailable && !errors.Is(scanErr, errScanner):
		return scanErr
	case scanErr != nil:
		return sandbox.Wrap(sandbox.CodeBlocked, scanErr, policy+"it could not be scanned: %s", reasonOf(scanErr))
	case r.Truncated && len(r.Findings) == 0:
		return sandbox.Errorf(sandbox.CodeBlocked, policy+"it has more than %d findings", FindingsMax)
	case len(r.Findings) > 0:
		return sandbox.Errorf(sandbox.CodeBlocked, policy+"%s; change the code, or ask an administrator of the workspace", r.Summary(namedMax))
	}
	return nil
}

// reasonOf returns the public message of an error.
func reasonOf(err error) string {
	var coded *sandbox.Error
	if errors.As(err, &coded) {
		return coded.Message
	}
	return "the scan did not end"
}

// Summary names at most some of the findings.
func (r *Result) Summary(most int) string {
	var parts []string
	for _, f := range r.Findings[:min(len(r.Findings), most)] {
		parts = append(parts, fmt.Sprintf("line %d: %s: %s", f.Line, f.Rule, f.Reason))
	}
	if more := len(r.Findings) - most; r.Truncated {
		parts = append(parts, "and more")
	} else if more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// note adds what a scan found to the audit record and the report of the context.
func note(ctx context.Context, r *Result, scanErr error, blocked bool) {
	outcome, notScanned := "no findings", ""
	switch {
	case scanErr != nil:
		notScanned = reasonOf(scanErr)
		outcome = "not scanned: " + notScanned
	case len(r.Findings) > 0 || r.Truncated:
		outcome = fmt.Sprintf("%d findings", len(r.Findings))
	}
	if blocked {
		outcome = "blocked, " + outcome
	}
	entry := audit.FromContext(ctx)
	entry.Detail("code_scan", outcome)
	entry.Detail("code_findings", r.Summary(FindingsMax))
	if report, ok := ctx.Value(reportKey{}).(*Report); ok {
		report.note(r, notScanned)
	}
}
