"""A real program whose interpreter and libraries have no frame pointers: it runs until it is stopped, and gets SIGPROF."""

import json
import re
import signal
import zlib

signal.setitimer(signal.ITIMER_PROF, 0.003, 0.003)


def deep(depth):
    if depth:
        return deep(depth - 1)
    text = json.dumps({str(key): [key] * 5 for key in range(50)})
    return json.loads(text), re.findall(r"\d+", text), sorted(text, key=ord), zlib.compress(text.encode())


while True:
    for depth in range(20):
        deep(depth)
