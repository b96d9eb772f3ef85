"""One piece of work in this process alone, its time and its memory told as the last line of output.

python -m tests.benchmarks.campaign.measured MODULE:FUNCTION PLACE
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path

from tests.benchmarks.campaign.places import Place

KIB = 1024


def main() -> None:
    work, place = sys.argv[1:]
    module, _, function = work.partition(":")
    called = getattr(importlib.import_module(module), function)
    began = time.perf_counter()
    said = called(Place(*json.loads(place)))
    seconds = time.perf_counter() - began
    # Counted from the program's start. The first figure may be that of whoever started it, where that was larger.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB
    print(json.dumps({"seconds": seconds, "ru_maxrss": most, "vm_hwm": _vm_hwm(), "said": said}))


def _vm_hwm() -> float:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / KIB


if __name__ == "__main__":
    main()
