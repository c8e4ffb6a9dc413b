# SPDX-License-Identifier: MIT OR Apache-2.0
"""tiny.py SECONDS: functions so small that the way into them takes much of the time."""

import sys
import time


def tiny_step(x):
    return x


def outer_loop(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in map(tiny_step, range(10000)):
            pass


outer_loop(float(sys.argv[1]))
