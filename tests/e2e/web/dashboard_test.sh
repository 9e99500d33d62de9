#!/usr/bin/env bash
# The dashboard in a real browser (Debian's chromium): it comes alive, agrees with /metrics, its experiments do what they
# say, it can be used by keyboard, and it is pictured in both colours at three widths, into build/dashboard/.
. "$(dirname "$0")/../../support/e2e.sh"
only_e2e_web chromium node
need_model smollm2
python3 - <<'PY'
import re
import shutil
import subprocess
import sys

from kvick_server import CHAT, SLOW, KvickServer, chat

with KvickServer("--demo", "--admin-listen", "0", "--no-access-log", max_len=4096) as server:
    port = int(re.search(r"administration on port (\d+)", "".join(server.printed))[1])
    for i in range(4):
        server.ask("POST", CHAT, chat(f"Count to {i + 3}.", max_tokens=12), headers={"x-request-id": f"light-{i}"})
    done = subprocess.run(["node", "web/e2e.mjs", f"http://127.0.0.1:{port}/dashboard", shutil.which("chromium"),
                           "build/dashboard"], timeout=400 * SLOW, check=False)
sys.exit(done.returncode)
PY
