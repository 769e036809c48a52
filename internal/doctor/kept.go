package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// postgres checks the database.
func postgres(ctx context.Context, o Options) Result {
	const name = "database"
	if o.Database == nil {
		return ok(name, "SQLite, in the state directory")
	}
	warnings, err := o.Database(ctx)
	switch {
	case err != nil:
		return fail(name, "PostgreSQL cannot be used: "+err.Error(), "look at the settings database.* and at PostgreSQL (docs/operate/postgresql.md)")
	case len(warnings) > 0:
		return warn(name, strings.Join(warnings, "; "), "change these settings of PostgreSQL")
	}
	return ok(name, "PostgreSQL answers")
}

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
	if o.Database != nil {
		return ok(name, "the server makes none of PostgreSQL: use pg_dump, and copy the state directory (docs/operate/postgresql.md)")
	}
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
