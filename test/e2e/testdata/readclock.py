import ctypes
import os
import struct
import time

CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}[os.uname().machine]
# Loads the number of the system call; returns EPERM for this call, and allows all others.
program = b"".join(
    struct.pack("HBBI", *line)
    for line in [(0x20, 0, 0, 0), (0x15, 0, 1, CLOCK_GETTIME), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
)
lines = ctypes.create_string_buffer(program)


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]


libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
filter_ = Filter(4, ctypes.addressof(lines))
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(filter_), 0, 0):
    raise OSError(ctypes.get_errno(), "prctl")
try:
    time.clock_gettime(time.CLOCK_MONOTONIC)
    print("without")
except PermissionError:
    print("forbidden")
