package base

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// WaitForQuotaFlag adds --wait-for-quota, for commands that can wait for the quota.
func WaitForQuotaFlag(fs *pflag.FlagSet, wait *time.Duration) {
	fs.DurationVar(wait, "wait-for-quota", 0, "wait until the workspace's quota has capacity, up to 10m (default: do not wait)")
}

// WholeSeconds returns the seconds of d rounded up, so that a short time does not become 0.
func WholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Pairs splits words like KEY=VALUE. For a word without "=", lookup, unless nil, returns the value.
//
// Errors: a word without a key, or without "=" and lookup.
func Pairs(words []string, lookup func(string) string) (map[string]string, error) {
	m := map[string]string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if key == "" || !ok && lookup == nil {
			return nil, fmt.Errorf("%q is not KEY=VALUE", w)
		}
		if !ok {
			value = lookup(key)
		}
		m[key] = value
	}
	return m, nil
}
