#!/usr/bin/env bash
# lint: each rule of scripts/lint.d finds the fault that is planted for it in a copy of the project, and no rule is
# without one. A plant is undone before the next.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar -cf - --exclude=./build --exclude=./.git --exclude=target --exclude=__pycache__ . | tar -xf - -C "$copy"
cd "$copy" || exit 1
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git init -q -b main . && git add -A && git commit -q -m start || exit 1

n_passed=0 n_failed=0
planted=" "

# expect RULE WORDS: the rule fails and a finding holds the words; then everything is as before.
expect() {
    local rule=$1 words=$2 output
    planted+="$rule "
    if output=$("scripts/lint.d/$rule" 2>&1); then
        echo "FAIL $rule: did not see the plant ($words)"
        n_failed=$((n_failed + 1))
    elif ! grep -qF -- "$words" <<<"$output"; then
        printf 'FAIL %s: no finding holds "%s":\n%s\n' "$rule" "$words" "$output"
        n_failed=$((n_failed + 1))
    else
        n_passed=$((n_passed + 1))
    fi
    git reset -q --hard main && git clean -q -fdx
}

# accept RULE WORDS: no finding of the rule holds the words.
accept() {
    if "scripts/lint.d/$1" 2>&1 | grep -F -- "$2"; then
        echo "FAIL $1: should accept this"
        n_failed=$((n_failed + 1))
    else
        n_passed=$((n_passed + 1))
    fi
    git reset -q --hard main && git clean -q -fdx
}

# An archive as make leaves it, of one object whose source is given.
plant_object() {
    mkdir -p "$(dirname "$1")" build/release
    printf '%s\n' "$2" >"$1"
    cc -c "$1" -o "build/release/$(basename "$1").o"
    ar rcs build/release/libkvick_core.a "build/release/$(basename "$1").o"
}

mkdir -p src/sched src/kvcache
printf '#include "kvcache/planted.h"\n#include "engine/planted.h"\n#include <stdio.h>\n' >src/sched/planted.c
echo >src/kvcache/planted.h
expect floors 'src/sched/planted.c:2: engine/planted.h'
mkdir -p src/engine src/sched && echo >src/engine/planted.h
echo '#include "engine/planted.h"' >src/sched/planted.c
expect floors 'src/sched/planted.c:1: engine/planted.h: sched may not include it'
echo '#include "base/log.h"' >src/kernels/planted.c
expect floors 'src/kernels/planted.c:1: base/log.h: kernels must do without it'
echo '#include <jansson.h>' >src/base/planted.c
expect floors 'src/base/planted.c:1: jansson.h'
echo '#  include <curl/curl.h>' >src/base/planted.c
expect floors 'src/base/planted.c:1: curl/curl.h'
mkdir src/nowhere && echo >src/nowhere/planted.c
expect floors 'src/nowhere/planted.c:1: folder nowhere has no floor'
echo 'weights | 2 | engine | - | -' >>src/FLOORS
expect floors 'may not stand on engine'
mkdir -p src/sched src/kvcache
printf '#include "kvcache/planted.h"\n#include <sys/types.h>\n#include "base/status.h"\n' >src/sched/planted.c
echo >src/kvcache/planted.h
accept floors planted

plant_object src/base/planted.c 'int stray; int planted_ok; static int hidden; int *planted(void) { return &hidden; }'
expect prefix 'src/base/planted.c:1: exports stray'
plant_object src/kernels/x86/planted_avx2.c 'int planted_avx2_more;'
expect prefix 'src/kernels/x86/planted_avx2.c:1: exports planted_avx2_more'
plant_object src/kernels/planted_q.c 'int planted_q8_0, planted_q_other;'
accept prefix planted
plant_object src/kernels/planted_q.c 'int planted_quick;'
expect prefix 'src/kernels/planted_q.c:1: exports planted_quick'
plant_object src/kernels/x86/planted_avx2.c 'int planted_avx2;'
accept prefix planted
plant_object src/base/planted.c 'int planted;'
mkdir -p src/weights && echo >src/weights/planted.c
expect prefix 'src/weights/planted.c:1: src/base/planted.c has the same stem'

echo 'struct planted { size_t n_bytes; };' >src/base/planted.h
expect headers 'base/planted.h:1:'
printf '#include <stddef.h>\nstruct planted {\n    size_t n_bytes;\n};\n' >src/base/planted.h
expect headers 'base/planted.h:2:' # no guard: the second time is one too many

printf 'int  planted( void ) ;\n' >src/base/planted.c
expect format 'src/base/planted.c:1'

for call in strcpy strcat sprintf vsprintf strtok gets alloca rand; do
    printf '\nvoid planted(void) { %s(); }\n' $call >src/base/planted.c
    expect banned "src/base/planted.c:2: $call()"
done
for call in atoi atol strtol malloc calloc realloc free strdup exit abort assert; do
    mkdir -p src/weights
    printf '/* %s() */\nvoid planted(void) { %s (); }\n' $call $call >src/weights/planted.c
    expect banned "src/weights/planted.c:2: $call()"
done
mkdir -p src/weights
printf 'static_assert(1, "malloc()"); // free()\nvoid planted(void) { mem_free(0); ops->free(); assert_thread(1); }\n' >src/weights/planted.c
accept banned planted

mkdir -p docs
echo 'See src/base/planted.c for more.' >docs/planted.md
expect docs 'docs/planted.md:1: src/base/planted.c'
mkdir -p docs && echo '[a](planted-nowhere.md)' >docs/planted.md
expect docs 'docs/planted.md:1: planted-nowhere.md'
mkdir -p docs && echo 'Type `make planted`.' >docs/planted.md
expect docs 'docs/planted.md:1: make planted'
mkdir -p docs && printf '```\nbuild/release/kvick plant x\n```\n' >docs/planted.md
expect docs 'docs/planted.md:2: kvick plant'
mkdir -p docs && echo 'Type `kvick run smollm2 --planted`.' >docs/planted.md
expect docs 'docs/planted.md:1: --planted'
mkdir -p docs && echo '`make test` and `kvick run MODEL --max-tokens 3` in src/base/{arena,str}.h, [x](planted.md), src/*/' >docs/planted.md
accept docs planted

mkdir -p src/api && printf '#include "api/json_read.h"\nbool b = json_read_flag(json, "planted", &b, NULL);\n' >src/api/planted.c
expect api "src/api/planted.c:2: field 'planted' is not in src/api/openapi.json"
sed -i 's/"cache_prompt"/"planted"/' src/api/openapi.json
expect api "field 'planted' is read by no source"
echo planted >>docs/API.md
expect api 'docs/API.md: it does not say'

# Put together here, because this file is checked as well.
host=pypi; host+=.org
echo "see $host/simple" >docs-planted.txt
expect hosts 'docs-planted.txt:1'
place=/root; place+=/kvick/build
echo "cd $place" >docs-planted.txt
expect hosts 'docs-planted.txt:1'

sed -i '0,/"value": /s//"value": 9/' tests/bounds.json
expect bounds 'is loosened in the working tree'
sed -i '0,/"unit": "[^"]*"/s//"unit": ""/' tests/bounds.json
expect bounds 'unit is missing or empty'
echo '{' >tests/bounds.json
expect bounds 'tests/bounds.json'
git checkout -q -b loose && sed -i '0,/"value": /s//"value": 9/' tests/bounds.json && git commit -q -a -m loosen
expect bounds 'is loosened in commit'
first=$(sed -n 's/^    "\([a-z0-9_]*\)": {/\1/p' tests/bounds.json | head -n 1)
mkdir -p docs/decisions && echo "$first may be larger, because" >docs/decisions/planted.md
sed -i '0,/"value": /s//"value": 9/' tests/bounds.json
accept bounds loosened

{ echo 'void planted(void) {'; yes '    x++;' | head -n 130; echo '}'; } >src/base/planted.c
expect length 'src/base/planted.c:1: planted has 132 lines'
yes '/* */' | head -n 601 >src/base/planted.c
expect length 'src/base/planted.c:601'

sed -i 's/kvick_kv_waste_ratio/kvick_kv_wasted_ratio/' docs/BAD-DASHBOARD.md
expect metrics 'kvick_kv_wasted_ratio: no such family'
sed -i 's/rate(kvick_busy_seconds_total/rate(kvick_busy_seconds/' deploy/kvick-alerts.yml
expect metrics 'deploy/kvick-alerts.yml'
sed -i '0,/kvick_steps_total/s//kvick_step_total/' deploy/grafana-dashboard.json
expect metrics 'kvick_step_total: no such family'
sed -i 's/KvickKvWaste/KvickKvWasted/' docs/BAD-DASHBOARD.md
expect metrics 'KvickKvWasted: no such alert'
sed -i 's/"Prefix hits"/"Prefix hit"/' docs/BAD-DASHBOARD.md
expect metrics '"Prefix hit": no such panel'

sed -i 's/[.]hash = hash_sha256/.hash = planted/' src/engine/engine.c
expect mutants 'constant-hash.patch:1: it does not apply'

for rule in scripts/lint.d/*; do
    if [[ $planted != *" ${rule##*/} "* ]]; then
        echo "FAIL ${rule##*/}: nothing is planted for this rule here"
        n_failed=$((n_failed + 1))
    fi
done
echo "$n_passed passed, $n_failed failed, 0 skipped"
[ $n_failed -eq 0 ]
