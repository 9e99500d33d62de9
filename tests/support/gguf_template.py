"""A chat template for a GGUF file that has none."""

import struct

TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def with_template(source, target, template=TEMPLATE):
    """The GGUF file source with one more key, its chat template."""
    data = open(source, "rb").read()
    magic, version, n_tensors, n_keys = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF" and version == 3
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def text_end(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def value_end(at, kind):
        if kind == 8:
            return text_end(at)
        if kind != 9:
            return at + sizes[kind]
        item, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n):
            at = value_end(at, item)
        return at

    at, alignment = 24, 32
    for _ in range(n_keys):
        begin = at
        at = text_end(at)
        name = data[begin + 8:at]
        kind = struct.unpack_from("<I", data, at)[0]
        if name == b"general.alignment":
            alignment = struct.unpack_from("<I", data, at + 4)[0]
        assert name != b"tokenizer.chat_template"
        at = value_end(at + 4, kind)
    keys_end = at
    for _ in range(n_tensors):
        at = text_end(at)
        n_dims = struct.unpack_from("<I", data, at)[0]
        at += 4 + 8 * n_dims + 4 + 8
    tensors_at = -(-at // alignment) * alignment
    key, value = b"tokenizer.chat_template", template.encode()
    head = struct.pack("<4sIQQ", magic, version, n_tensors, n_keys + 1) + data[24:keys_end] + \
        struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value + data[keys_end:at]
    with open(target, "wb") as out:
        out.write(head + b"\0" * (-len(head) % alignment) + data[tensors_at:])
