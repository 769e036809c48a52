package execution

import (
	"context"
	"fmt"
	"time"

	"github.com/modbox/modbox/internal/codescan"
	"github.com/modbox/modbox/internal/sandbox"
)

// review scans the code of a request that was recorded before its sandbox ran, if the policy of the
// workspace demands it. The request of the sandbox has its answer already: an event has the findings.
// Errors: CodeBlocked.
func (p *pump) review(ctx context.Context) error {
	req := p.x.request
	if req.reviewed {
		return nil
	}
	ctx, report := codescan.Collect(ctx)
	err := p.service.guest.Review(ctx, p.x.box, req.code(ctx))
	req.reviewed = err == nil
	result, notScanned, ok := report.Result()
	if ok && (len(result.Findings) > 0 || notScanned != "") {
		message, data := "the code of its command was not scanned", map[string]string{"execution": string(p.x.view().ID)}
		if notScanned == "" {
			message = fmt.Sprintf("the code of its command has %d findings", len(result.Findings))
			data["code_findings"] = result.Summary(eventFindings)
		} else {
			data["reason"] = sandbox.OneLine(notScanned)
		}
		if err != nil {
			message += ", and does not run"
		}
		p.service.sandboxes.Note(ctx, sandbox.Event{Sandbox: p.x.box.ID, Time: time.Now().UTC(), Type: sandbox.EventExec, Message: message, Data: data})
	}
	return err
}

// eventFindings bounds the findings of an event.
const eventFindings = 10
