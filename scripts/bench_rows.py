"""bench_rows: what bench-peers measures: the models, and one row for each measurement. Targets are the entries
peers_<row>_<measure> of tests/bounds.json, so that a row has the targets that stand there."""

import dataclasses
import json
import os

import peer_tools
from peer_tools import ROOT, cache_dir, run

REFERENCE_PEAK_GOPS = 1464  # of the machine that absolute targets in tok/s were set on
SYNTH_SEED = "1"

# What a form of weights can reach of int8 peak at most: docs/PERFORMANCE.md.
CEILING_PLAIN, CEILING_WITH_MINS = 0.73, 0.67

# words: fetch NAME | quantize TYPE (of smollm2) | synth SHAPE TYPE [options]
MODELS = {
    "smollm2_q4_1": ("SmolLM2 135M Q4_1", CEILING_WITH_MINS, ["fetch", "smollm2"]),
    "smollm2_q4_0": ("SmolLM2 135M Q4_0", CEILING_PLAIN, ["quantize", "Q4_0"]),
    "smollm2_q8_0": ("SmolLM2 135M Q8_0", CEILING_PLAIN, ["quantize", "Q8_0"]),
    "smollm2_q4_k_m": ("SmolLM2 135M Q4_K_M", CEILING_WITH_MINS, ["synth", "smollm2-135m", "Q4_K_M"]),
    "smollm2_long": ("SmolLM2 135M Q4_1", CEILING_WITH_MINS, ["synth", "smollm2-135m", "Q4_1", "--context", "32768"]),
    "gemma3": ("Gemma 3 270M Q4_K_M", CEILING_WITH_MINS, ["fetch", "gemma3-270m"]),
    "1b_q4_0": ("Llama 1B Q4_0", CEILING_PLAIN, ["synth", "llama-3.2-1b", "Q4_0"]),
    "1b_q8_0": ("Llama 1B Q8_0", CEILING_PLAIN, ["synth", "llama-3.2-1b", "Q8_0"]),
    "1b_q4_k_m": ("Llama 1B Q4_K_M", CEILING_WITH_MINS, ["synth", "llama-3.2-1b", "Q4_K_M"]),
}


@dataclasses.dataclass(frozen=True)
class Row:
    key: str
    group: str
    model: str
    n_prefill: int = 0
    n_decode: int = 0  # 0: the prefill is measured, else the decode
    n_streams: int = 1
    peers: tuple = ("llama.cpp",)
    is_slow: bool = False  # not in --quick

    @property
    def what(self):
        if self.group in ("start", "threads"):
            return {"start": "start to first token", "threads": "prefill 512, 2 threads beside 1"}[self.group]
        if not self.n_decode:
            return f"prefill {self.n_prefill:,}"
        streams = f", {self.n_streams} streams" if self.n_streams > 1 else ""
        context = f" at {self.n_prefill:,}" if self.n_prefill > 16 else ""
        return f"decode{context}{streams}"

    @property
    def label(self):
        return f"{MODELS[self.model][0]}, {self.what}"


def make_rows():
    wide, cpp = ("llama.cpp", "openvino", "ik_llama.cpp", "vllm"), ("llama.cpp", "ik_llama.cpp")
    rows = [Row(f"prefill_{model}", "prefill", model, 512, peers=peers)
            for model, peers in (("smollm2_q4_1", wide), ("smollm2_q4_0", cpp), ("smollm2_q8_0", cpp),
                                 ("smollm2_q4_k_m", ("llama.cpp",)), ("gemma3", cpp), ("1b_q4_0", cpp),
                                 ("1b_q8_0", cpp), ("1b_q4_k_m", cpp))]
    rows += [Row("long_4096", "long", "smollm2_q4_1", 4096, is_slow=True),
             Row("long_16384", "long", "smollm2_long", 16384, peers=(), is_slow=True)]
    rows += [Row(f"decode_{model}", "decode", model, 1, 64, peers=peers)
             for model, peers in (("smollm2_q4_1", wide), ("gemma3", cpp))]
    for model in ("1b_q4_0", "1b_q8_0", "1b_q4_k_m"):
        rows += [Row(f"decode_{model}", "decode", model, 1, 48, peers=cpp),
                 Row(f"decode_{model}_4096", "decode", model, 4096, 32, peers=(), is_slow=True)]
    rows += [Row("streams_1b_q4_0_8", "streams", "1b_q4_0", 16, 32, 8),
             Row("streams_smollm2_8", "streams", "smollm2_q4_1", 256, 32, 8),
             Row("streams_smollm2_32", "streams", "smollm2_q4_1", 256, 32, 32, is_slow=True),
             Row("threads_smollm2", "threads", "smollm2_q4_1", 512, peers=()),
             Row("start_smollm2", "start", "smollm2_q4_1", peers=()),
             Row("start_gemma3", "start", "gemma3", peers=())]
    return rows


ROWS = make_rows()
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))

# How a measure is told, and from which peer it is a ratio.
MEASURES = {
    "x_llama": "x llama.cpp",
    "x_openvino": "x OpenVINO",
    "peak_share": "of int8 peak",
    "bandwidth_share": "of read bandwidth",
    "tok_s": f"tok/s, at {REFERENCE_PEAK_GOPS:,} GOPS",
    "x_one_thread": "x one thread",
    "s": "s",
}


def read_targets():
    """{row key: {measure: (value, is_max)}}; an entry that no row has is an error."""
    with open(os.path.join(ROOT, "tests", "bounds.json"), encoding="utf-8") as file:
        entries = json.load(file)["entries"]
    targets = {row.key: {} for row in ROWS}
    for name, entry in entries.items():
        if not name.startswith("peers_"):
            continue
        split = [(row.key, measure) for row in ROWS for measure in MEASURES if name == f"peers_{row.key}_{measure}"]
        if len(split) != 1:
            raise peer_tools.PeerError(f"tests/bounds.json: {name} is no row and measure of bench-peers")
        key, measure = split[0]
        targets[key][measure] = (entry["value"], entry.get("kind", "max") == "max")
    return targets


# ---- model files ----


def fetch(name):
    return run([os.path.join("scripts", "fetch-model"), name], f"fetch-model {name}").strip().splitlines()[-1]


def model_path(model, kvick):
    """The file, in the cache; made or fetched if it is not there yet."""
    words = MODELS[model][2]
    if words[0] == "fetch":
        return fetch(words[1])
    os.makedirs(cache_dir("bench"), exist_ok=True)
    path = cache_dir("bench", f"{model}.gguf")
    if os.path.exists(path):
        return path
    peer_tools.say(f"making {path}")
    if words[0] == "quantize":
        run([kvick, "quantize", fetch("smollm2"), path, "--type", words[1]], "kvick quantize")
    else:
        run([kvick, "synth", path, "--shape", words[1], "--type", words[2], "--seed", SYNTH_SEED, *words[3:]],
            "kvick synth")
    return path
