#!/usr/bin/env bash
# Requests and replies of the API as bytes, from data files (cases/*.txt), each request cut at every byte, against a
# real server with a tiny model.
. "$(dirname "$0")/../support/e2e.sh"
need_golden gguf/llama.gguf
python3 tests/wire/wire.py "$@"
