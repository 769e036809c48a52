package agentuity

import (
	"strings"

	"github.com/modbox/modbox/internal/sandbox"
)

// The prefixes of ids.
const (
	prefixSandbox    = "sbx_"
	prefixExecution  = "exec_"
	prefixJob        = "job_"
	prefixCheckpoint = "ckpt_"
	prefixSnapshot   = "snp_"
	prefixRuntime    = "srt_"
	prefixEvent      = "evt_"
	prefixOrg        = "org_"
)

// external returns the dialect's form of one of our IDs, which are UUIDs.
func external[T ~string](prefix string, id T) string {
	return prefix + strings.ReplaceAll(string(id), "-", "")
}

// internal returns our form of the dialect's ID; ok is false when it is invalid.
func internal[T ~string](prefix, s string) (id T, ok bool) {
	hex, found := strings.CutPrefix(s, prefix)
	canonical, ok := sandbox.ParseHex(hex)
	if !found || !ok {
		return "", false
	}
	return T(canonical), true
}

func sandboxID(id sandbox.ID) string { return external(prefixSandbox, id) }

// executionID returns the ID of an execution or, depending on its kind, a job.
func executionID(e *sandbox.Execution) string {
	if e.Kind == sandbox.Job {
		return external(prefixJob, e.ID)
	}
	return external(prefixExecution, e.ID)
}
