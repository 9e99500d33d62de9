"""How the tests in Python count: each is a function that raises when something is wrong."""

import sys
import time
import traceback

_counts = {"passed": 0, "failed": 0}


def attempt(test, *arguments, name=None):
    """Runs one test and prints its line. True if it passed."""
    started = time.monotonic()
    try:
        test(*arguments)
    except Exception:
        _counts["failed"] += 1
        print(f"FAIL {name or test.__name__}", flush=True)
        traceback.print_exc(file=sys.stdout)
        return False
    _counts["passed"] += 1
    print(f"ok   {time.monotonic() - started:5.1f} s {name or test.__name__}", flush=True)
    return True


def finish():
    """Prints the closing line and ends the program."""
    print(f"{_counts['passed']} passed, {_counts['failed']} failed, 0 skipped", flush=True)
    sys.exit(_counts["failed"] > 0)
