# SPDX-License-Identifier: MIT OR Apache-2.0
"""busy.py SECONDS: an interpreter at work."""

import sys
import time


def step(x: int) -> int:
    return (x * 6364136223846793005 + 1442695040888963407) % 2**64


end = time.monotonic() + float(sys.argv[1])
x = 1
while time.monotonic() < end:
    for _ in range(1000):
        x = step(x)
