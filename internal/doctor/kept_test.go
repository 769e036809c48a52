package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestQuarantine(t *testing.T) {
	for name, tc := range map[string]struct {
		found string
		err   error
		want  Status
	}{
		"nothing": {want: OK}, "something": {found: "2 saved states", want: Warn}, "error": {err: errors.New("no"), want: Warn},
	} {
		r := quarantine(t.Context(), Options{Quarantine: func(context.Context) (string, error) { return tc.found, tc.err }})
		if r.Status != tc.want || !strings.Contains(r.Detail, tc.found) || tc.found != "" && !strings.Contains(r.Fix, "modbox quarantine rm") {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}

func TestAgeOfTheLastBackup(t *testing.T) {
	if r := backups(t.Context(), Options{}); r.Status != OK {
		t.Errorf("no schedule: %+v", r)
	}
	for name, tc := range map[string]struct {
		last time.Time
		err  error
		want Status
	}{
		"recent": {last: time.Now().Add(-time.Hour), want: OK}, "old": {last: time.Now().Add(-49 * time.Hour), want: Warn},
		"none": {want: Warn}, "error": {err: errors.New("no"), want: Warn},
	} {
		r := backups(t.Context(), Options{BackupEvery: 24 * time.Hour, LastBackup: func() (time.Time, error) { return tc.last, tc.err }})
		if r.Status != tc.want {
			t.Errorf("%s: %+v, want %s", name, r, tc.want)
		}
	}
}
