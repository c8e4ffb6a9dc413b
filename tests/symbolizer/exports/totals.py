"""Self and total by function of weighted stacks, as JSON: what the readers of exports print."""

import json


class Totals:
    def __init__(self):
        self.total, self.own, self.cumulative = 0, {}, {}

    def add(self, stack, weight):
        """A stack of names, leaf first. Recursion counts once."""
        self.total += weight
        self.own[stack[0]] = self.own.get(stack[0], 0) + weight
        for name in set(stack):
            self.cumulative[name] = self.cumulative.get(name, 0) + weight

    def print(self):
        print(json.dumps({"total": self.total, "self": self.own, "cumulative": self.cumulative}))
