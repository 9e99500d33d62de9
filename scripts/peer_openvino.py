"""peer_openvino MODEL N_PREFILL N_DECODE N_THREADS N_SAMPLES: runs in OpenVINO's venv; prints one JSON object with the
medians of tokens per second. Prompts are random and differ, so that no prefix is found."""

import json
import random
import statistics
import sys

import numpy
import openvino
import openvino_genai

MAX_ID = 40000


def main():
    model = sys.argv[1]
    n_prefill, n_decode, n_threads, n_samples = (int(word) for word in sys.argv[2:])
    pipeline = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=n_threads)
    settings = openvino_genai.GenerationConfig()
    settings.max_new_tokens = n_decode + 1
    settings.ignore_eos = True
    prefill, decode = [], []
    for sample in range(-1, n_samples):
        dice = random.Random(sample)
        ids = numpy.array([[dice.randrange(1, MAX_ID) for _ in range(n_prefill)]], dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        metrics = pipeline.generate(inputs, settings).perf_metrics
        if sample >= 0:
            prefill.append(1e3 * n_prefill / metrics.get_ttft().mean)
            if n_decode:
                decode.append(1e3 / metrics.get_tpot().mean)
    print(json.dumps({"prefill": statistics.median(prefill), "decode": statistics.median(decode) if decode else None}))


main()
