#!/usr/bin/env bash
# Requests and replies of the API as bytes, from data files (cases/*.txt), each request cut at every byte, against a
# real server with a tiny model.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

model=${KVICK_GOLDEN:-../shared/golden}/gguf/llama.gguf
[ -f "$model" ] || { echo "no golden data in ${model%/gguf/*}"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
KVICK=${KVICK:-build/release/kvick} python3 tests/wire/wire.py "$model" "$work" "$@"
