package lifecycle

import (
	"context"
	"maps"
	"slices"

	"github.com/modbox/modbox/internal/audit"
	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/sandbox"
)

// UpdateEnv sets and, where the value is nil, deletes environment variables of a sandbox, for later
// commands, and returns all that are set. It resumes a paused sandbox. It does not change variables
// of the image and automatic variables (MODBOX_SANDBOX_ID, …): setting such a name hides the
// variable, deleting it shows it again. Errors: Invalid, naming the field; the errors of every call
// into a sandbox.
func (s *Service) UpdateEnv(ctx context.Context, c sandbox.Caller, ref string, changes map[string]*string) (map[string]string, error) {
	used, err := s.guest.Use(ctx, c, ref)
	if err != nil {
		return nil, err
	}
	b := s.boxes.byID(used.ID)
	if b == nil { // it has ended since
		sb := used.Sandbox()
		return nil, box.StateError(&sb)
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		audit.FromContext(ctx).Detail("variable", name)
	}
	b.envMu.Lock()
	defer b.envMu.Unlock()
	sb := b.Sandbox()
	env := make(map[string]string, len(sb.Env)+len(changes))
	maps.Copy(env, sb.Env)
	for name, value := range changes {
		if value == nil {
			delete(env, name)
		} else {
			env[name] = *value
		}
	}
	if err := sandbox.CheckEnv(env); err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return env, nil
	}
	img, _, err := s.images.Resolve(ctx, sb.ImageDigest)
	if err != nil {
		return nil, err
	}
	sb.Env = env
	if err := b.Explain(ctx, b.Agent.Configure(ctx, s.agentConfig(&sb, &img))); err != nil {
		return nil, err
	}
	return maps.Clone(env), s.recordEnv(ctx, b, env)
}

func (s *Service) recordEnv(ctx context.Context, b *entry, env map[string]string) error {
	b.Lock()
	defer b.Unlock()
	if err := s.store.SetEnv(ctx, b.ID, env); err != nil {
		return err
	}
	sb := b.Sandbox()
	sb.Env = env
	b.Set(sb)
	return nil
}
