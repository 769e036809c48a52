// Package lateimage gives EROFS images that are mounted after the start of a guest the identity that
// gVisor needs to find their files again when it restores a checkpoint. Its RPC "Mount" gives them none.
//
// It adds a type of file system to the guest's mount system call, which works on such a mount only. It
// uses nothing but exported parts of gVisor.
package lateimage

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/cleanup"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/checkpoint"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/erofs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"github.com/modbox/modbox/cmd/modbox-sandbox/internal/systemcall"
)

// Type is the type of file system. Package agent knows it also. Mounting it at the mount point of an
// EROFS image replaces that mount by an equal one, which has the identity of an image that was mounted
// there before the start of the guest.
const Type = "modbox-image"

// Register changes the mount system call. It must be called before gVisor's boot runs.
func Register() error {
	return systemcall.Wrap(map[uintptr]systemcall.Wrapper{unix.SYS_MOUNT: wrap})
}

// wrap returns the mount system call with the type.
func wrap(mount kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, sysno uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		// Only the agent of a box whose root it makes has this capability, until then.
		if args[2].Pointer() == 0 || !t.HasRootCapability(linux.CAP_SYS_ADMIN) {
			return mount(t, sysno, args)
		}
		kind, err := t.CopyInString(args[2].Pointer(), len(Type)+1)
		if err != nil || kind != Type {
			return mount(t, sysno, args)
		}
		path, err := t.CopyInString(args[1].Pointer(), hostarch.PageSize)
		if err != nil {
			return 0, nil, err
		}
		return 0, nil, identify(t, path)
	}
}

// identify replaces the mount at a path.
func identify(t *kernel.Task, path string) error {
	root := t.FSContext().RootDirectory()
	defer root.DecRef(t)
	at := vfs.PathOperation{Root: root, Start: root, Path: fspath.Parse(path)}
	fd, err := imageAt(t, &at)
	if err != nil {
		return err
	}
	undo := cleanup.Make(func() { _ = unix.Close(fd) })
	defer undo.Clean()
	fs := t.Kernel().VFS()
	if err := fs.UmountAt(t, t.Credentials(), &at, &vfs.UmountOptions{}); err != nil {
		return err
	}
	opts := vfs.MountOptions{
		ReadOnly: true,
		GetFilesystemOptions: vfs.GetFilesystemOptions{
			InternalMount: true,
			Data:          fmt.Sprintf("ifd=%d", fd),
			// As in gVisor's boot.
			InternalData: erofs.InternalFilesystemOptions{
				UniqueID: checkpoint.ResourceID{ContainerName: t.Kernel().ContainerName(t.ContainerID()), Path: path},
			},
		},
	}
	if _, err := fs.MountAt(t, t.Credentials(), "none", &at, erofs.Name, &opts); err != nil {
		return err
	}
	undo.Release()
	return nil
}

// imageAt returns another descriptor of the image that is mounted at a path.
func imageAt(t *kernel.Task, at *vfs.PathOperation) (int, error) {
	vd, err := t.Kernel().VFS().GetDentryAt(t, t.Credentials(), at, &vfs.GetDentryOptions{})
	if err != nil {
		return -1, err
	}
	defer vd.DecRef(t)
	fs := vd.Mount().Filesystem()
	if fs.FilesystemType().Name() != erofs.Name || vd.Dentry() != vd.Mount().Root() {
		return -1, linuxerr.EINVAL
	}
	var fd int
	options := fs.Impl().MountOptions()
	if _, err := fmt.Sscanf(strings.TrimSpace(options), "ifd=%d", &fd); err != nil {
		return -1, linuxerr.EINVAL
	}
	return unix.Dup(fd)
}
