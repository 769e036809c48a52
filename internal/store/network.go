package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
	"github.com/modbox/modbox/internal/store/database"
)

// ChangeSandbox changes settings of a live sandbox and appends ev, in one transaction: change may
// change Network.Enabled, Published, TTL and TTLFrom. It returns the row as written.
//
// Errors: NotFound; Ended, also while the sandbox is being destroyed.
func (s *Sandboxes) ChangeSandbox(ctx context.Context, id sandbox.ID, change func(*sandbox.Sandbox), ev sandbox.Event) (sb sandbox.Sandbox, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if sb, err = s.sandboxByID(ctx, tx, id); err != nil {
			return err
		}
		change(&sb)
		setPorts(&sb, sb.Published)
		sb.UpdatedAt = ev.Time
		ports, err := marshalPorts(sb.Published)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, "UPDATE sandboxes SET network_enabled = $1, ports = $2, ttl = $3, ttl_from = $4, updated_at = $5 WHERE id = $6 AND "+isNamed,
			database.Number(sb.Network.Enabled), ports, int64(sb.TTL), database.Nanos(sb.TTLFrom), database.Nanos(ev.Time), id)
		if err != nil {
			return err
		}
		if count, err := res.RowsAffected(); err != nil || count == 0 {
			return sandbox.Wrap(sandbox.Ended, err, "the sandbox has ended")
		}
		return insertEvent(ctx, tx, id, ev)
	})
	if err != nil {
		return sandbox.Sandbox{}, fmt.Errorf("change sandbox %s: %w", id, err)
	}
	return sb, nil
}

// marshalPorts encodes published ports as a JSON array; nil gives an empty array.
func marshalPorts(ports []sandbox.PublishedPort) (string, error) {
	if len(ports) == 0 {
		return "[]", nil
	}
	b, err := json.Marshal(ports)
	return string(b), err
}

// unmarshalPorts reverses marshalPorts, into sb.
func unmarshalPorts(s string, sb *sandbox.Sandbox) error {
	if s == "[]" {
		return nil
	}
	var ports []sandbox.PublishedPort
	if err := json.Unmarshal([]byte(s), &ports); err != nil {
		return errors.New("damaged JSON") // without the text: labels are secrets
	}
	setPorts(sb, ports)
	return nil
}

// setPorts replaces the published ports of sb.
func setPorts(sb *sandbox.Sandbox, ports []sandbox.PublishedPort) {
	sb.Published, sb.Network.Ports = ports, nil
	for _, p := range ports {
		sb.Network.Ports = append(sb.Network.Ports, p.Port)
	}
}
