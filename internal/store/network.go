package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modbox/modbox/internal/sandbox"
)

// ChangeSandbox changes settings of a live sandbox and appends ev, in one transaction: change may
// change Network.Enabled, Published, TTL and TTLFrom. It returns the row as written.
//
// Errors: NotFound; Ended, also while the sandbox is being destroyed.
func (s *Store) ChangeSandbox(ctx context.Context, id sandbox.ID, change func(*sandbox.Sandbox), ev sandbox.Event) (sb sandbox.Sandbox, err error) {
	err = s.write(ctx, func(ctx context.Context, tx *sql.Tx) error {
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
			number(sb.Network.Enabled), ports, int64(sb.TTL), nanos(sb.TTLFrom), nanos(ev.Time), id)
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

// NoteUsage records the usage of sandboxes so far. It ignores unknown sandboxes and values
// that are older than the recorded values.
func (s *Store) NoteUsage(ctx context.Context, usage map[sandbox.ID]sandbox.Usage) error {
	if len(usage) == 0 {
		return nil
	}
	err := s.note(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for id, u := range usage {
			if _, err := tx.ExecContext(ctx, `UPDATE sandboxes SET usage_at = $1, usage_running = $2, usage_cpu = $3, usage_memory = $4,
					usage_sent = $5, usage_received = $6, usage_box_cpu = $7 WHERE id = $8 AND usage_at <= $1`,
				nanos(u.At), int64(u.Running), int64(u.CPU), u.MemoryByteSeconds, u.SentBytes, u.ReceivedBytes, int64(u.BoxCPU), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record usage: %w", err)
	}
	return nil
}

// Usage returns the recorded usage of a sandbox. Errors: NotFound.
func (s *Store) Usage(ctx context.Context, id sandbox.ID) (sandbox.Usage, error) {
	var u sandbox.Usage
	var at int64
	err := s.reader.QueryRowContext(ctx, `SELECT usage_at, usage_running, usage_cpu, usage_memory, usage_sent, usage_received, usage_box_cpu
		FROM sandboxes WHERE id = $1`, id).Scan(&at, &u.Running, &u.CPU, &u.MemoryByteSeconds, &u.SentBytes, &u.ReceivedBytes, &u.BoxCPU)
	if errors.Is(err, sql.ErrNoRows) {
		return sandbox.Usage{}, sandbox.Errorf(sandbox.NotFound, "there is no such sandbox")
	}
	if err != nil {
		return sandbox.Usage{}, fmt.Errorf("read usage of sandbox %s: %w", id, err)
	}
	u.At = fromNanos(at)
	return u, nil
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
