#!/usr/bin/env bash
# contract: schemathesis makes requests from /openapi.json, good ones and bad ones, and checks that no answer is a 5xx, has
# another form than the file says, or takes what the file forbids. In 50 s at most.
. "$(dirname "$0")/../support/e2e.sh"
only_e2e
need_model smollm2
need_venv schemas
"$python" - <<'PY'
import os
import re
import subprocess
import sys

from kvick_server import FOLDER, SLOW, KvickServer, Tally

# What is true of any server is checked; what a client may not know (the model's name, the context) may refuse good ones.
LEFT_OUT = "positive_data_acceptance,ignored_auth,use_after_free,ensure_resource_availability"


def no_answer_breaks_the_contract(server):
    done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run",
                           f"http://127.0.0.1:{server.port}/openapi.json", "-H", "Authorization: Bearer secret",
                           "--checks", "all", "--exclude-checks", LEFT_OUT, "--phases", "coverage,fuzzing", "-n", "30",
                           "--generation-deterministic", "--suppress-health-check", "all", "--no-shrink", "--no-color",
                           "--continue-on-failure", "--request-timeout", str(10 * SLOW), "-w", "2"],
                          cwd=FOLDER, capture_output=True, text=True, timeout=110 * SLOW, check=False)
    assert done.returncode == 0, done.stdout[:20000] + done.stderr[:2000]
    n_operations = int(re.search(r"(\d+) selected", done.stdout)[1])
    n_fuzzed = int(re.search(r"Fuzzing.*?(\d+) passed", done.stdout, re.DOTALL)[1])
    assert n_operations == n_fuzzed >= 18, done.stdout


tally = Tally()
server = KvickServer("--api-key", "secret", "--no-access-log", max_len=96)
tally.attempt(no_answer_breaks_the_contract, server)
tally.attempt(server.ends_well)
tally.end()
PY
