#!/usr/bin/env bash
# readme: the session of OpenAI's client in README.md prints what stands below it.
. "$(dirname "$0")/../support/e2e.sh"
only_e2e
need_model smollm2
need_venv clients
"$python" - <<'PY'
import contextlib
import io
import re
import textwrap

from kvick_server import KvickServer, Tally


def the_session_prints_what_it_says():
    with open("README.md", encoding="utf-8") as file:
        shown = re.search(r"\n\n((?: {4}.*\n|\n)+)prints\n\n((?: {4}.*\n)+)", file.read())
    code, printed = (textwrap.dedent(shown[i]).strip() for i in (1, 2))
    assert "from openai import OpenAI" in code and ":8000" in code, code
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code.replace(":8000", f":{server.port}"), {})
    assert " ".join(out.getvalue().split()) == " ".join(printed.split()), out.getvalue()


tally = Tally()
server = KvickServer()
for test in (the_session_prints_what_it_says, server.ends_well):
    tally.attempt(test)
tally.end()
PY
