#!/bin/bash
# Turns into a program that has a directory as its root and a mount namespace of its own, as in
# a container with all privileges. A chroot would not do: in one nobody makes user namespaces.
#
#   unshare --mount test/release/container.sh DIR PROGRAM [ARGUMENT...]
set -euo pipefail
cd "$1"
mount --bind . .
cd "$PWD"
mkdir proc sys dev old
mount --rbind /proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
pivot_root . old
/old/bin/busybox umount -l /old
exec "${@:2}"
