package edge

import (
	"net/http"
	"strconv"
	"time"

	"github.com/modbox/modbox/internal/quota"
	"github.com/modbox/modbox/internal/sandbox"
)

// WaitForQuotaHeader, in requests of dialects without a field for it, is the number of seconds for
// which a create or resume may wait for the quota of its workspace.
const WaitForQuotaHeader = "Modbox-Wait-For-Quota"

// WaitForQuota returns what a request says in [WaitForQuotaHeader]; 0 without it. Errors: Invalid, naming the header.
func WaitForQuota(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(WaitForQuotaHeader)
	if text == "" {
		return 0, nil
	}
	const most = uint64(quota.WaitMax / time.Second)
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n > most {
		return 0, sandbox.InvalidField(WaitForQuotaHeader, "must be a number of seconds, 0 to %d", most)
	}
	return time.Duration(n) * time.Second, nil
}
