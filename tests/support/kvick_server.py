"""A `kvick serve` on a free port of 127.0.0.1, for the tests in Python."""

import os
import re
import signal
import subprocess

KVICK = os.environ["KVICK"]
SLOW = 1 if "release" in KVICK else 15


class KvickServer:
    def __init__(self, *arguments, model="smollm2", max_context=256):
        self.process = subprocess.Popen([KVICK, "serve", model, "--port", "0", "--max-model-len", str(max_context),
                                         *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"listening on \w+://[\d.]+:(\d+)", line)
            if found:
                self.port = int(found[1])
                return
        raise AssertionError(self.process.stderr.read())

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        try:
            return self.process.wait(timeout=40 * SLOW)
        finally:
            self.process.stdout.close()
            self.process.stderr.close()
