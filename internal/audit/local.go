package audit

import (
	"context"
	"log/slog"
)

// RecordLocally runs do, which changes the database without the server, and records it as r with
// the field Via "local". It does not run do when it cannot write the record.
//
// Errors: do's, and the store's.
func RecordLocally(ctx context.Context, store Store, r Record, do func(context.Context) error) error {
	log := Open(store, Config{}, slog.New(slog.DiscardHandler))
	defer log.Close()
	r.Via = "local"
	return log.Do(ctx, r, do)
}
