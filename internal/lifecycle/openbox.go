package lifecycle

import (
	"context"
	"fmt"

	"github.com/modbox/modbox/internal/box"
	"github.com/modbox/modbox/internal/environment"
	"github.com/modbox/modbox/internal/image/spec"
	"github.com/modbox/modbox/internal/sandbox"
	"gvisor.dev/gvisor/pkg/cleanup"
)

// OpenBox makes and starts a box for sb, which is never recorded, from an image's root filesystem,
// and returns it when its agent answers. With plainTmp the files of /tmp are part of the box's
// layer. After an error the box is destroyed.
func (s *Service) OpenBox(ctx context.Context, sb *sandbox.Sandbox, img *spec.Image, rootfs string, plainTmp bool) (*box.Box, error) {
	b := s.newBox(sb.ID)
	s.boxes.reserve(b) // so that the sweep does not take it for an orphan
	undo := cleanup.Make(func() { s.CloseBox(b.Box) })
	defer undo.Clean()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	spec := s.spec(sb, rootfs)
	spec.PlainTmp = plainTmp
	if _, err := s.driver.Create(ctx, spec); err != nil {
		return nil, fmt.Errorf("make work box: %w", err)
	}
	if err := s.driver.Start(ctx, b.ID); err != nil {
		return nil, fmt.Errorf("start work box %s: %w", b.ID, err)
	}
	if sb.Network.Enabled {
		if err := s.networks.Plug(ctx, b.Box); err != nil {
			return nil, err
		}
	}
	cfg := s.environments.Agent(sb, img)
	cfg.Main = nil
	if err := environment.Configure(ctx, b.Box, cfg); err != nil {
		return nil, box.AgentError(err)
	}
	undo.Release()
	return b.Box, nil
}

// RestoreHidden restores a saved state of sb in a box that no caller can find, without a network.
// After an error no part of the box remains.
func (s *Service) RestoreHidden(ctx context.Context, sb *sandbox.Sandbox, rootfs, path string) (*box.Box, error) {
	saver, err := s.saved.Checkpointer()
	if err != nil {
		return nil, err
	}
	b := s.newBox(sandbox.NewID())
	s.boxes.reserve(b) // so that the sweep does not take it for an orphan
	spec := s.spec(sb, rootfs)
	spec.ID = b.ID
	if _, err := saver.Restore(ctx, spec, path); err != nil {
		b.Cancel()
		_ = b.Agent.Close() // does not fail
		s.boxes.remove(b)
		return nil, err
	}
	return b.Box, nil
}

// CloseBox destroys a box of OpenBox or RestoreHidden. The sweep destroys what cannot be destroyed now.
func (s *Service) CloseBox(b *box.Box) {
	b.Link.Disconnect(true)
	b.Cancel()
	_ = b.Agent.Close() // does not fail
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), destroyTimeout)
	defer cancel()
	if err := s.driver.Destroy(ctx, b.ID); err != nil {
		s.log.Error("work box not removed, trying again soon", "box", b.ID, "error", err)
	}
	s.boxes.remove(&entry{Box: b})
}
