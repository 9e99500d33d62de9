# kvick: every target in short. CMakeLists.txt says how things are built, scripts/build which flavours there are.
# One build folder per flavour below build/. Variables: BRIDGE=OFF builds without Rust, MODEL=NAME for `make demo`.
BRIDGE ?= ON
MODEL ?= smollm2
export BRIDGE

.DEFAULT_GOAL := build
.NOTPARALLEL:
.PHONY: build web demo e2e e2e-soak e2e-web test test-all test-long lint asan ubsan tsan mutants kernelcheck bench-peers bench-engine fuzz format clean help

build: ## the program, build/release/kvick; installs nothing
	@scripts/build release kvick

web: ## the dashboard's page, which the next build puts into the program (node 18 or later, npm)
	@scripts/build-web

demo: ## install what the build needs, build, fetch a model, ask it two questions
	@scripts/setup demo
	@scripts/build-web --if-possible
	@scripts/build release kvick
	@scripts/demo $(MODEL)

test: ## install what the tests need, build, run every test (10 minutes at most)
	@scripts/setup test
	@scripts/build release kvick tests
	@scripts/fetch-model smollm2 >build/smollm2.path || echo "make test: smollm2 is absent, its tests will be skipped" >&2
	@scripts/run-tests release

e2e: ## the program from outside, with real clients, schemathesis, lm-eval and langchain (pip, 1 GB, once)
	@scripts/setup test
	@scripts/build release kvick tests
	@for name in clients langchain lm-eval schemas; do scripts/venv $$name >build/$$name.venv || exit 1; done
	@scripts/fetch-model smollm2 >build/smollm2.path
	@KVICK_E2E=1 scripts/run-tests release e2e

e2e-soak: build ## 64 streams for ten minutes against the server; a quiet machine is needed
	@scripts/fetch-model smollm2 >build/smollm2.path
	@KVICK_SOAK=600 TEST_SECONDS=1200 scripts/run-tests release e2e/soak

e2e-web: ## metrics, rules and dashboards with a real Prometheus and a real browser
	@scripts/setup web
	@scripts/build-web
	@scripts/build release kvick tests
	@scripts/fetch-model smollm2 >build/smollm2.path
	@KVICK_E2E_WEB=1 scripts/run-tests release e2e/web

# A part that fails does not keep the others from being seen.
test-all: ## the long tests, sanitizers, mutants, kernelcheck, fuzz and lint; two hours on two cores
	@$(MAKE) --no-print-directory --keep-going test-long asan tsan mutants kernelcheck fuzz lint

test-long: ## every test at full length: both models, every combination
	@scripts/setup test
	@scripts/build release kvick tests
	@scripts/fetch-model smollm2 >build/smollm2.path
	@scripts/fetch-model gemma3-270m >build/gemma3-270m.path
	@KVICK_LONG=1 scripts/run-tests release

lint: build ## the rules of scripts/lint.d
	@scripts/lint

asan: ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer, in hard mode
	@scripts/build asan kvick tests
	@scripts/run-tests asan

ubsan: ## the tests under UndefinedBehaviorSanitizer alone: where memory lies as without sanitizers
	@scripts/build ubsan kvick tests
	@scripts/run-tests ubsan

# Not kernelcheck: kernels have no threads and no state.
tsan: ## the programs and two of the server's tests under ThreadSanitizer, without the bridge (which others need)
	@scripts/build tsan kvick tests
	@scripts/run-tests tsan unit- equiv- golden- sim- serve_gone serve_abuse

mutants: ## patches that break a law of the code, each of which must turn tests red (MUTANT="prefix salt" for some)
	@scripts/setup test
	@scripts/mutants $(MUTANT)

kernelcheck: ## every kernel this CPU can run against the scalar one
	@scripts/build release tests
	@scripts/run-tests release kernelcheck

bench-peers: build ## kvick beside llama.cpp, OpenVINO and ik_llama.cpp; BENCH="--quick" and the like are passed on
	@scripts/bench-peers $(BENCH)

bench-engine: build ## the engine's targets, measured on SmolLM2; a quiet machine is needed (ROWS="whale prefix" for some)
	@scripts/fetch-model smollm2 >/dev/null
	@scripts/bench-engine $(ROWS)

fuzz: ## every parser's fuzz target for FUZZ_SECONDS (20) each, with clang-16
	@scripts/build fuzz fuzz
	@scripts/run-fuzz

format: ## rewrite the sources with clang-format-16
	@scripts/lint.d/format --fix

clean: ## remove every build
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile
