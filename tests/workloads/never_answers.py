#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""never_answers.py FOLDER FILE STOP: mount FOLDER as a file system that has FILE's content as `program`, and that answers
no question at all once STOP exists. Speaks the kernel's FUSE protocol, include/uapi/linux/fuse.h. Ends when killed."""

import ctypes
import os
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 36, 42
ROOT, PROGRAM = 1, 2
FOR_LONG = 3600

folder, file, stop = sys.argv[1:]
content = open(file, "rb").read()
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if libc.mount(b"never_answers", folder.encode(), b"fuse", 0, options) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")


def attributes(node):
    size, mode = (len(content), 0o100755) if node == PROGRAM else (0, 0o40755)
    return struct.pack("<6Q10I", node, size, -(-size // 512), 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, node, body):
    """The error and the content of the answer."""
    if opcode == INIT:
        return 0, struct.pack("<4I2H2I2H2I6I", 7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 32, 0, 0, 0, *[0] * 6)
    if opcode == LOOKUP and node == ROOT and body == b"program\0":
        return 0, struct.pack("<4Q2I", PROGRAM, 0, FOR_LONG, FOR_LONG, 0, 0) + attributes(PROGRAM)
    if opcode == LOOKUP:
        return -2, b""
    if opcode == GETATTR:
        return 0, struct.pack("<Q2I", FOR_LONG, 0, 0) + attributes(node)
    if opcode == OPEN:
        return 0, struct.pack("<Q2I", 0, 2, 0)  # what was read stays cached
    if opcode == READ:
        offset, size = struct.unpack_from("<QI", body, 8)
        return 0, content[offset:offset + size]
    if opcode in (RELEASE, FLUSH):
        return 0, b""
    return -38, b""  # ENOSYS


while True:
    request = os.read(device, 1 << 18)
    opcode, unique, node = struct.unpack_from("<IQQ", request, 4)
    if opcode in (FORGET, BATCH_FORGET, INTERRUPT) or os.path.exists(stop):
        continue
    error, data = answer(opcode, node, request[40:])
    os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
