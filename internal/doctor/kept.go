package doctor

import (
	"context"
	"time"

	"github.com/dustin/go-humanize"
)

// quarantine checks whether files are in quarantine.
func quarantine(ctx context.Context, o Options) Result {
	const name = "quarantine"
	found, err := o.Quarantine(ctx)
	switch {
	case err != nil:
		return warn(name, "it cannot be read: "+err.Error(), "")
	case found == "":
		return ok(name, "the database knows all saved states")
	}
	return warn(name, found, "see them with modbox quarantine ls; put the database back that knows them and start, or remove them with modbox quarantine rm (docs/durability.md)")
}

// backups checks whether the last backup is recent.
func backups(_ context.Context, o Options) Result {
	const name = "backups"
	if o.LastBackup == nil {
		return ok(name, "the server makes none by itself (backup.every)")
	}
	const fix = "look for \"backup was not made\" in the log of the server, or whether it runs"
	last, err := o.LastBackup()
	switch {
	case err != nil:
		return warn(name, "they cannot be read: "+err.Error(), "")
	case last.IsZero():
		return warn(name, "there is none yet, and one is to be made every "+o.BackupEvery.String(), fix)
	case time.Since(last) > 2*o.BackupEvery:
		return warn(name, "the last one was made "+humanize.Time(last)+", and one is to be made every "+o.BackupEvery.String(), fix)
	}
	return ok(name, "the last one was made "+humanize.Time(last))
}
