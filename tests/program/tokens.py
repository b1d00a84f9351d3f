"""A tokenizer of Hugging Face's kind that a test can compute with: a token a byte, and those that are special.

Relies on: build/tokenizers (make setup). Relied on by: test_text.py, test_worked_example.py."""
import json
import os

from harness import BUILD

PACKAGES = next((p for p in (os.path.join(BUILD, "tokenizers"), os.path.join(os.path.dirname(BUILD), "tokenizers")) if os.path.isdir(p)), "") # test_diagnostics builds below BUILD
ENV = {"SHARDC_PYTHON": "/usr/bin/python3", "PYTHONPATH": PACKAGES}
SPECIAL = ["<|im_end|>", "<|im_start|>", "<|pad|>"]
END, START, PAD = 256, 257, 258
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def there():
    return bool(PACKAGES)


def byte_letters():
    """GPT-2's letter for each byte: printable ones as they are, the others from U+0100 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, more = {}, 0
    for b in range(256):
        letters[b] = chr(b) if b in plain else chr(256 + more)
        more += b not in plain
    return letters


def write_tokenizer(folder, template=CHATML, special=SPECIAL, **config):
    os.makedirs(folder, exist_ok=True)
    added = [{"id": 256 + i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, t in enumerate(special)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
                 "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                           "ignore_merges": False, "vocab": {c: b for b, c in byte_letters().items()}, "merges": []}}
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"eos_token": special[0], "pad_token": {"content": special[2]}, **({"chat_template": template} if template else {}), **config}, f)
    return folder


def ids(text, special=SPECIAL):
    """The tokens of a text."""
    found = []
    while text:
        at, token = min(((text.find(t), i) for i, t in enumerate(special) if t in text), default=(len(text), None))
        found += text[:at].encode()
        if token is None:
            break
        found.append(256 + token)
        text = text[at + len(special[token]):]
    return found
