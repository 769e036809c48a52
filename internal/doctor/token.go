package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/modbox/modbox/internal/sandbox"
)

// firstTokenAge is the age from which a first token without an end is a warning.
const firstTokenAge = 30 * 24 * time.Hour

// FirstToken is the token that a server makes at its first start, for the installation's owner.
type FirstToken struct {
	Made    time.Time
	Used    time.Time // zero for never
	Expires time.Time // zero for never
	// Administrators is how many other users are administrators and enabled.
	Administrators int
}

// firstToken checks whether the first token is still valid although there are better ways to sign
// in.
func firstToken(ctx context.Context, o Options) Result {
	const name = "first token"
	t, err := o.FirstToken(ctx)
	switch {
	case sandbox.CodeOf(err) == sandbox.Conflict: // the error says how to reach the server's database
		return warn(name, "it cannot be read: "+err.Error(), "run doctor with the settings of the server")
	case err != nil:
		return warn(name, "it cannot be read: "+err.Error(), "run doctor as the user of the server, or as root")
	case t == nil:
		return ok(name, "there is none that works")
	case !t.Expires.IsZero():
		return ok(name, "it expires "+humanize.Time(t.Expires))
	}
	used := "and has not been used"
	if !t.Used.IsZero() {
		used = "and was last used " + humanize.Time(t.Used)
	}
	detail := fmt.Sprintf("it may do everything, has no end, was made %s, %s", humanize.Time(t.Made), used)
	const fix = "when you sign in by name, or with narrower tokens: modbox token remove-first; else give it an end: modbox token rotate-first --expires-in 720h (docs/auth.md)"
	switch {
	case t.Administrators > 0:
		return warn(name, fmt.Sprintf("%s; there are other administrators (%d)", detail, t.Administrators), fix)
	case time.Since(t.Made) > firstTokenAge:
		return warn(name, detail, fix)
	}
	return ok(name, detail)
}
