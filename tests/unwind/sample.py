"""Run inside gdb: stop a program again and again and write down registers, stack bytes and gdb's own frames.

Taken from the environment: SAMPLES, how many; OUT, where to. The program has to get SIGPROF now and then. Behind each
stop some instructions are stepped through, each a sample of its own, so that the first and last instructions of functions
are met. The file is read by tests/symbolizer/unwind.rs: little-endian words of 8 bytes, see `write`.
"""

import os
import struct

import gdb

SAMPLES = int(os.environ["SAMPLES"])
STEPS = 4
RED_ZONE = 128
# Bytes of a stack that are taken at most, and frames that gdb is asked for.
MOST = 64 << 10
MOST_FRAMES = 1000
REGISTERS = "rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip".split()

out = open(os.environ["OUT"], "wb")


def word(*numbers):
    out.write(struct.pack("<%dQ" % len(numbers), *numbers))


def mappings(pid):
    """Start, end, whether it is executable, file offset and path of all mappings."""
    rows = []
    for line in open(f"/proc/{pid}/maps"):
        parts = line.split(None, 5)
        start, end = (int(number, 16) for number in parts[0].split("-"))
        rows.append((start, end, "x" in parts[1], int(parts[2], 16), parts[5].strip() if len(parts) > 5 else ""))
    return rows


def write_mappings(pid, rows):
    """1, then the number of executable mappings, each as start, end, offset, length of its path, the path."""
    rows = [row for row in rows if row[2]]
    word(1, len(rows))
    for start, end, _, offset, path in rows:
        name = path.encode()
        word(start, end, offset, len(name))
        out.write(name)
    vdso = [row for row in rows if row[4] == "[vdso]"]
    image = bytes(gdb.selected_inferior().read_memory(vdso[0][0], vdso[0][1] - vdso[0][0])) if vdso else b""
    word(len(image))
    out.write(image)


def frames():
    """Code addresses and stack pointers, leaf first, and whether that is the outermost frame."""
    found, frame = [], gdb.newest_frame()
    while frame is not None and len(found) < MOST_FRAMES:
        # Those of inlined functions and of calls that became jumps are gdb's inference, not on the stack.
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            found.append((frame.pc(), int(frame.read_register("rsp")) & (1 << 64) - 1))
        last, frame = frame, frame.older()
    return found, frame is None and last.unwind_stop_reason() == gdb.FRAME_UNWIND_OUTERMOST


def parts(stack_pointers, rows):
    """Copies of all stacks that the stack pointers lie in."""
    found = []
    for pointer in stack_pointers:
        if any(start <= pointer <= end for start, end, _ in found):
            continue
        for start, end, *_ in rows:
            if start <= pointer < end:
                first = max(start, pointer - RED_ZONE)
                # Where it was mapped since, or is the end of one mapping and the start of the next: what is there.
                size = min(end - first, MOST)
                found.append((first, first + size, bytes(gdb.selected_inferior().read_memory(first, size))))
    return found


def write(rows):
    """2, registers by DWARF number; number of copies, each as start, length, bytes; number of frames, whether the last is
    the outermost, the frames."""
    leaf = gdb.newest_frame()
    registers = [int(leaf.read_register(name)) & (1 << 64) - 1 for name in REGISTERS]
    found, is_outermost = frames()
    copies = parts([pointer for _, pointer in found], rows)
    word(2, *registers)
    word(len(copies))
    for start, end, content in copies:
        word(start, end - start)
        out.write(content)
    word(len(found), is_outermost)
    word(*(address for address, _ in found))


def main():
    for command in ("set pagination off", "set confirm off", "set debuginfod enabled off", "set width 0",
                    "set backtrace past-main on", "set backtrace past-entry on", "set backtrace limit unlimited",
                    "set print thread-events off", "set print inferior-events off", "set disable-randomization off",
                    "handle SIGPROF stop print nopass", "handle SIGUSR1 nostop noprint pass",
                    "handle SIGUSR2 nostop noprint pass"):
        gdb.execute(command, to_string=True)
    gdb.execute("run", to_string=True)
    taken, known = 0, None
    while taken < SAMPLES and gdb.selected_inferior().pid:
        rows = mappings(gdb.selected_inferior().pid)
        code = [row for row in rows if row[2]]
        if code != known:
            write_mappings(gdb.selected_inferior().pid, rows)
            known = code
        for step in range(STEPS):
            if step > 0:
                gdb.execute("stepi", to_string=True)
                if not gdb.selected_inferior().pid:
                    return
            write(rows)
            taken += 1
        gdb.execute("continue", to_string=True)


try:
    main()
finally:
    out.close()
    if gdb.selected_inferior().pid:
        gdb.execute("kill", to_string=True)
