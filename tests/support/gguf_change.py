"""GGUF files with something changed: a chat template more, another number of tokens."""

import struct

TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def text_end(data, at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def item_ends(data, at, kind, n):
    ends = []
    for _ in range(n):
        at = text_end(data, at) if kind == 8 else at + SIZES[kind]
        ends.append(at)
    return ends


def rewrite(source, target, change):
    """change: from {name: value's bytes, the type in front} of the keys, in their order, to what is written."""
    data = open(source, "rb").read()
    magic, version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF" and version == 3
    keys, at, alignment = {}, 24, 32
    for _ in range(n_keys):
        begin, at = at, text_end(data, at)
        name, begin = data[begin + 8:at].decode(), at
        kind, at = struct.unpack_from("<I", data, at)[0], at + 4
        if kind == 9:
            item, n = struct.unpack_from("<IQ", data, at)
            at = [at + 12, *item_ends(data, at + 12, item, n)][-1]
        else:
            at = item_ends(data, at, kind, 1)[0]
        keys[name] = data[begin:at]
        if name == "general.alignment":
            alignment = struct.unpack_from("<I", data, begin + 4)[0]
    tensors_begin = at
    for _ in range(n_tensors):
        at = text_end(data, at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4 + 8
    change(keys)
    head = struct.pack("<4sIQQ", magic, version, n_tensors, len(keys)) + b"".join(
        struct.pack("<Q", len(name)) + name.encode() + value for name, value in keys.items()) + data[tensors_begin:at]
    with open(target, "wb") as out:
        out.write(head + b"\0" * (-len(head) % alignment) + data[-(-at // alignment) * alignment:])


def with_template(source, target, template=TEMPLATE):
    def change(keys):
        assert "tokenizer.chat_template" not in keys
        keys["tokenizer.chat_template"] = struct.pack("<IQ", 8, len(template)) + template.encode()
    rewrite(source, target, change)


def with_tokens(source, target, n_more):
    """So many tokens more, or fewer, than there are, and no merges; returns how many there were."""
    def change(keys):
        keys["tokenizer.ggml.merges"] = struct.pack("<IIQ", 9, 8, 0)
        for name in ("tokens", "scores", "token_type"):
            value = keys.get("tokenizer.ggml." + name)
            if value:
                item, counts[name] = struct.unpack_from("<IQ", value, 4)
                ends = [16, *item_ends(value, 16, item, counts[name])]
                items = value[16:ends[min(-1, n_more - 1)]] + value[ends[-2]:] * max(n_more, 0)
                keys["tokenizer.ggml." + name] = struct.pack("<IIQ", 9, item, counts[name] + n_more) + items
    counts = {}
    rewrite(source, target, change)
    return counts["tokens"]
