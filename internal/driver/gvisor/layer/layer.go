// Package layer decides where the writes of a guest are stored, and has the files behind writable
// layers on disk.
package layer

import (
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/modbox/modbox/internal/driver"
	"github.com/modbox/modbox/internal/sandbox"
)

// Layout determines where a guest's writes are stored, and how large each place may be.
//
// A file in gVisor's memory is charged to the box, and the kernel can neither drop nor swap it. If
// such files could fill the memory limit, writing a file would kill the box. So each of them is
// bounded, and all bounds together leave memory for processes:
//
//	              small disk   large disk
//	root          1/4          on disk
//	/tmp          1/8          on disk
//	/dev/shm      1/8          1/8
//	/dev          1/16         1/16
type Layout struct {
	OnDisk   bool  `json:"on_disk"`
	TmpBytes int64 `json:"tmp_bytes"`
	ShmBytes int64 `json:"shm_bytes"`
	// PlainTmp: /tmp is not a file system of its own.
	PlainTmp bool `json:"plain_tmp,omitempty"`
}

// Of returns the layout of a new box.
func Of(s driver.Spec) Layout {
	r := s.Resources
	l := Layout{TmpBytes: r.MemoryBytes / 8, ShmBytes: r.MemoryBytes / 8, PlainTmp: s.PlainTmp}
	if r.DiskBytes > r.MemoryBytes/4 {
		// Builds and installers unpack into /tmp, so it is on disk also. It has its own limit
		// because it is a file system of its own.
		l.OnDisk, l.TmpBytes = true, r.DiskBytes/2
	}
	return l
}

// DefaultTmpfs is the limit of memory file systems without an explicit limit: /dev, and file
// systems that a guest mounts in a namespace of its own.
func DefaultTmpfs(r sandbox.Resources) int64 { return r.MemoryBytes / 16 }

// Mounts adds /tmp to spec, whose mounts have one image beside the root, and returns the mount
// configurations for gVisor of the root and of each mount backed by a file: images and layers, in
// the order of spec. With upper, which is not "", the root is not writable, and the writable layer is
// mounted there, after the images, whose number is images without the root.
func (l Layout) Mounts(spec *specs.Spec, r sandbox.Resources, dir Dir, images int, upper string) specutils.GoferMountConfFlags {
	image := specutils.GoferMountConf{Lower: specutils.Erofs, Upper: specutils.NoOverlay}
	root := image
	if upper == "" {
		root.Upper, root.Size = specutils.MemoryOverlay, strconv.FormatInt(r.DiskBytes, 10)
		if l.OnDisk {
			root.Upper = specutils.AnonOverlay
		}
	}
	confs := specutils.GoferMountConfFlags{root}
	for range images {
		confs = append(confs, image)
	}
	writable := func(m specs.Mount) {
		if l.OnDisk {
			// gVisor accepts a mount with a file behind it only when its type is bind; the source is
			// not used.
			m.Type, m.Source = "bind", string(dir)
			confs = append(confs, specutils.GoferMountConf{Lower: specutils.NoneLower, Upper: specutils.AnonOverlay})
		}
		spec.Mounts = append(spec.Mounts, m)
	}
	if upper != "" {
		writable(specs.Mount{Destination: upper, Type: "tmpfs", Source: "tmpfs", Options: []string{"size=" + strconv.FormatInt(r.DiskBytes, 10)}})
	}
	if !l.PlainTmp {
		writable(specs.Mount{
			Destination: "/tmp", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "nodev", "mode=1777", "size=" + strconv.FormatInt(l.TmpBytes, 10)},
		})
	}
	return confs
}
