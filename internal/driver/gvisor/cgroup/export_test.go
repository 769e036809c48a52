package cgroup

import "errors"

// OpenUnified opens a parent in a unified hierarchy even when no controller can be used there, as
// on a hybrid host.
func OpenUnified(mount, name string) (*Parent, error) {
	v, ok, err := openV2(Host{V2: mount}, "/", name)
	p := &Parent{h: v, ok: ok}
	return p, errors.Join(err, p.lock())
}

// ContainerAt is [ThisContainer] with another root of the control groups.
var ContainerAt = containerAt
