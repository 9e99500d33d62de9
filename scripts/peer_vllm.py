"""peer_vllm N_PREFILL N_DECODE N_THREADS N_SAMPLES: runs in vLLM's venv; prints one JSON object with the medians of
tokens per second for SmolLM2-135M's shape in bf16 with random weights: only sizes and types matter for speed."""

import json
import os
import random
import statistics
import sys
import tempfile
import time

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
          "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
          "max_position_embeddings": 8192, "rope_theta": 100000.0, "rms_norm_eps": 1e-5, "hidden_act": "silu",
          "tie_word_embeddings": True, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}


def main():
    n_prefill, n_decode, n_threads, n_samples = (int(word) for word in sys.argv[1:])
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["OMP_NUM_THREADS"] = str(n_threads)
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    import vllm  # reads the environment

    prefill, decode = [], []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        model = vllm.LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16",
                         enable_prefix_caching=False, max_model_len=n_prefill + n_decode + 1)
        for sample in range(-1, n_samples):
            dice = random.Random(sample)
            prompt = {"prompt_token_ids": [dice.randrange(1, 40000) for _ in range(n_prefill)]}
            took_s = []
            for n_new in (1, n_decode + 1):
                settings = vllm.SamplingParams(max_tokens=n_new, ignore_eos=True, temperature=0, detokenize=False)
                start_s = time.monotonic()
                model.generate([prompt], settings, use_tqdm=False)
                took_s.append(time.monotonic() - start_s)
            if sample >= 0:
                prefill.append(n_prefill / took_s[0])
                decode.append(n_decode / max(1e-9, took_s[1] - took_s[0]))
    print(json.dumps({"prefill": statistics.median(prefill), "decode": statistics.median(decode)}))


main()
