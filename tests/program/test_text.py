"""`shardc data` with a tokenizer, of texts and conversations, and sampling that takes and prints text.

Relies on: harness.py, tokens.py (skipped where the package could not be fetched). Relied on by: run.py, test_diagnostics.py."""
import json
import math
import os
import random
import struct

from harness import SHARDC, build, check, command, losses, must, read_log, read_safetensors, scratch, steps, write_safetensors
from tokens import CHATML, END, ENV, PAD, ids, there, write_tokenizer

SKIPPED = "build/tokenizers is not there"


def put(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text if isinstance(text, str) else "".join(json.dumps(x) + "\n" for x in text))
    return path


def turn(role, content):
    return {"role": role, "content": content}


def rows(path):
    """[{tokens, targets, documents}] of a file of rows."""
    found, out = read_safetensors(path), {}
    for name, (dtype, shape, blob) in found.items():
        check(dtype == "I32", name)
        n = len(blob) // 4 // shape[0]
        values = struct.unpack("<%di" % (len(blob) // 4), blob)
        out[name] = [list(values[i * n:(i + 1) * n]) for i in range(shape[0])]
    return [dict(zip(out, row)) for row in zip(*out.values())]


def chat(folder, lines, *args, template=CHATML):
    """(rows, what was printed, and noted)."""
    tokenizer, out = write_tokenizer(os.path.join(folder, "tok"), template), os.path.join(folder, "chat.safetensors")
    rc, said, err = command([SHARDC, "data", put(os.path.join(folder, "chat.jsonl"), lines), "--tokenizer", tokenizer, "-o", out, *args], env=ENV)
    check(rc == 0, "exit %d: %s" % (rc, err))
    return rows(out), said, err


def pieces(*parts):
    """(tokens, targets) of pieces of text, of which those in a list are to be predicted."""
    tokens = [(t, isinstance(p, list)) for p in parts for t in ids(p[0] if isinstance(p, list) else p)]
    return [t for t, _ in tokens[:-1]], [t if wanted else -100 for t, wanted in tokens[1:]]


def alone(row):
    """A row of one conversation without what fills it up."""
    n = row["documents"].count(1)
    check(row["documents"] == [1] * n + [0] * (len(row["tokens"]) - n) and set(row["tokens"][n:]) <= {PAD} and set(row["targets"][n:]) <= {-100}, "what fills a row up")
    return row["tokens"][:n], row["targets"][:n]


def test_targets_are_the_answers():
    """Each form of a line gives the template's text, and targets where the assistant speaks, the end of its turn included."""
    if not there():
        return SKIPPED
    folder = scratch("chat")
    question, answer = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n", "4, \u00fc\u20ac\U0001f600<|im_end|>"
    said = [turn("user", "What is 2+2?"), turn("assistant", "4, \u00fc\u20ac\U0001f600")]
    system = "<|im_start|>system\nBe  brief.\n<|im_end|>\n"
    cases = [
        ({"messages": said}, (question, [answer], "\n")),
        ({"conversations": [{"from": "human", "value": said[0]["content"]}, {"from": "gpt", "value": said[1]["content"]}], "id": 3}, (question, [answer], "\n")),
        ({"prompt": "What is 2+2?", "completion": said[1]["content"]}, (question, [answer], "\n")),
        ({"question": "What is 2+2?", "answer": said[1]["content"]}, (question, [answer], "\n")),
        ({"instruction": "What is", "input": "2+2?", "output": said[1]["content"]}, (question.replace("is 2", "is\n\n2"), [answer], "\n")),
        ({"prompt": said[:1], "completion": said[1:]}, (question, [answer], "\n")),
        ({"prompt": said + said[:1], "completion": said[1]["content"]}, (question + answer + "\n" + question, [answer], "\n")),
        ({"messages": [turn("system", "Be  brief.\n")] + 2 * said}, (system + question, [answer], "\n" + question, [answer], "\n")),
        ({"messages": [said[0], {**said[1], "weight": 0}] + said}, (question + answer + "\n" + question, [answer], "\n")),
        ({"messages": [said[0], {**said[1], "train": False}] + said + [turn("user", "So?")]}, (question + answer + "\n" + question, [answer], "\n<|im_start|>user\nSo?<|im_end|>\n")),
        ({"messages": [turn("assistant", "I begin.")]}, ("<|im_start|>assistant\n", ["I begin.<|im_end|>"], "\n")),
    ]
    got, printed, err = chat(folder, [line for line, _ in cases], "--chat", "--no-pack", "--seq", "256")
    check(not err and len(got) == len(cases), "%d rows; %s" % (len(got), err))
    for row, (line, parts) in zip(got, cases):
        check(alone(row) == pieces(*parts), "%s: %s" % (line, alone(row)))
    marked = CHATML.replace("m.content + '<|im_end|>\\n' }}", "'' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}{{ m.content + '<|im_end|>\\n' }}{% endif %}")
    twice = marked.replace("{{ m.content + '<|im_end|>' }}{% endgeneration", "{{ m.content }}{% endgeneration %}{% generation %}{{ '<|im_end|>\\n' }}{% endgeneration").replace("{{ '\\n' }}", "")
    pair, _, _ = chat(folder, [{"messages": said + said}], "--chat", "--no-pack", "--seq", "256", template=twice)
    check(twice != marked and alone(pair[0]) == pieces(question, [answer + "\n"], question, [answer + "\n"]), "a template that marks two places of an answer: %s" % (alone(pair[0]),))
    check(marked != CHATML and chat(folder, [line for line, _ in cases], "--chat", "--no-pack", "--seq", "256", template=marked)[0] == got, "a template that marks answers")
    thinking = CHATML.replace("m.content", "(('<think>\\n\\n</think>\\n\\n' if m.role == 'assistant' and loop.last else '') + m.content)")
    got, _, _ = chat(folder, [{"messages": said + said}], "--chat", "--no-pack", "--seq", "256", template=thinking)
    check(alone(got[0]) == pieces(question, [answer], "\n" + question, ["<think>\n\n</think>\n\n" + answer], "\n"), "a template that writes the last answer otherwise: %s" % (alone(got[0]),))
    headers = "{{ '' if not messages else '' }}{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant:' }}{% endif %}"
    got, _, _ = chat(folder, [{"messages": said + said}], "--chat", "--no-pack", "--seq", "256", template=headers)
    q = "<|im_start|>user:What is 2+2?<|im_end|><|im_start|>assistant:"
    check(alone(got[0]) == pieces(q, [answer], q, [answer]), "special tokens that follow each other")
    for template, args in (None, ()), (CHATML, ("--chat-template", "none")):
        got, _, _ = chat(folder, [{"prompt": "2+2=", "completion": "4"}], "--chat", "--no-pack", "--seq", "16", *args, template=template)
        check(alone(got[0]) == pieces("2+2=", ["4<|im_end|>"]), "without a template: %s" % (got,))
    own = put(os.path.join(folder, "own.jinja"), "{% for m in messages %}{{ m.role[0] + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}a{% endif %}")
    got, _, _ = chat(folder, [{"prompt": "Q", "completion": "A"}], "--chat", "--no-pack", "--seq", "16", "--chat-template", own)
    check(alone(got[0]) == pieces("uQ<|im_end|>a", ["A<|im_end|>"]), "a template of one's own: %s" % (got,))
    return "%d forms" % len(cases)


def test_rows_are_packed():
    """Every conversation is in one row, whole, as a document of its own; rows are nearly full; what does not fit is said."""
    if not there():
        return SKIPPED
    folder, r = scratch("packed"), random.Random(4)
    lines = [{"prompt": "%03d" % i, "completion": "".join(r.choice("abc") for _ in range(r.randrange(1, 60)))} for i in range(200)]
    want = sorted(pieces(x["prompt"], [x["completion"] + "<|im_end|>"]) for x in lines)
    got, said, err = chat(folder, lines, "--chat", "--seq", "64", template=None)
    found = []
    for row in got:
        check(row["documents"] == sorted(row["documents"], key=lambda d: (d == 0, d)) and all(len(row[k]) == 64 for k in row), "a row's documents")
        for d in range(1, max(row["documents"]) + 1):
            at = [i for i, x in enumerate(row["documents"]) if x == d]
            found.append(([row["tokens"][i] for i in at], [row["targets"][i] for i in at]))
    check(sorted(found) == want and not err, "%d documents" % len(found))
    total = sum(len(t) for t, _ in want)
    check(len(got) <= total / 64 / 0.95, "%d rows for %d tokens" % (len(got), total))
    check("%d rows of 64 tokens from 200 conversations, %s of %s tokens are targets" % (len(got), format(sum(x != -100 for _, t in want for x in t), ","), format(total, ",")) in " ".join(said.split()), said)
    again, _, _ = chat(folder, lines, "--chat", "--seq", "64", template=None)
    check(again == got, "the same lines make other rows")
    cut, _, err = chat(folder, lines, "--chat", "--seq", "32", template=None)
    long = sum(len(t) > 32 for t, _ in want)
    check("%d of 200 conversations are longer than a row and are cut off" % long in err and all(len(row["tokens"]) == 32 for row in cut), err)
    left, _, err = chat(folder, lines, "--chat", "--seq", "32", "--drop-long", template=None)
    check("%d conversations are longer than a row and are left out" % long in err, err)
    check(sum(max(row["documents"]) for row in left) == 200 - long, "what is left out")
    _, said, err = chat(folder, lines[:3] + [{"messages": [turn("user", "no answer")]}], "--chat", "--seq", "256")
    check("1 conversations have no token to predict and are left out" in err and "from 4 conversations" in said, err)


def test_pairs_of_answers():
    if not there():
        return SKIPPED
    folder = scratch("pairs")
    begin = [turn("user", "Q")]
    lines = [{"prompt": "Q", "chosen": "good", "rejected": "bad"}, {"prompt": begin, "chosen": [turn("assistant", "good")], "rejected": [turn("assistant", "bad")]},
             {"chosen": begin + [turn("assistant", "good")], "rejected": begin + [turn("assistant", "bad")]}, {"prompt": begin, "chosen": begin + [turn("assistant", "good")], "rejected": "bad"}]
    got, said, err = chat(folder, lines, "--pairs", "--seq", "64")
    q = "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    want = [x for a in ("good", "bad") for x in [pieces(q, [a + "<|im_end|>"], "\n")]]
    flat = {k: sum(([*w[i], *[fill] * (64 - len(w[i]))] for w in want), []) for i, (k, fill) in enumerate((("ids", PAD), ("targets", -100)))}
    check(not err and got == [flat] * 4, "%s %s" % (got, err))
    check("4 rows of 64 tokens from 4 pairs of answers" in " ".join(said.split()), said)
    got, _, _ = chat(folder, lines[:1], "--pairs", "--seq", "8", template=None)
    check(got[0]["ids"][:4] == ids("Qgoo") and got[0]["targets"][8:12] == ids("bad") + [END], "%s" % got)


def family(folder):
    """A folder with a small Llama of byte tokens, and the model's Lua; its weights are those that its own program begins with."""
    os.makedirs(os.path.join(folder, "model"), exist_ok=True)
    write_tokenizer(os.path.join(folder, "model"))
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=260, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    put(os.path.join(folder, "model", "config.json"), json.dumps(config))
    must([SHARDC, "import", "model", "-o", "m.lua"], cwd=folder)
    must([build(os.path.join(folder, "m.lua"), seq=16), "--steps", "0", "--export", os.path.join(folder, "model") + "/"])
    return os.path.join(folder, "m.lua"), os.path.join(folder, "model")


def test_attention_stays_inside_a_conversation():
    """The loss of packed rows is that of the same conversations in rows of their own, on one rank and on two."""
    if not there():
        return SKIPPED
    folder, r = scratch("inside"), random.Random(3)
    lua, weights = family(folder)
    lines = [{"prompt": "".join(r.choice("abcdef") for _ in range(n)), "completion": "".join(r.choice("xyz") for _ in range(30 - n))} for n in (3, 14, 8, 20)]
    found, files = [], {}
    for name, args in ("packed", ()), ("apart", ("--no-pack",)):
        got, _, _ = chat(folder, lines, "--chat", "--seq", "64", "--chat-template", "none", *args)
        files[name] = os.path.join(folder, name + ".safetensors")
        os.rename(os.path.join(folder, "chat.safetensors"), files[name])
        check(len(got) == (2 if name == "packed" else 4), "%d rows" % len(got))
    for name, world, batch in ("packed", 1, 2), ("packed", 2, 1), ("apart", 1, 4), ("apart", 2, 2), ("apart", 4, 1):
        log = os.path.join(folder, "log.jsonl")
        must([build(lua, world=world, batch=batch, seq=64, data="chat"), "--data", files[name], "--weights", weights, "--steps", "1", "--quiet", "--log", log])
        found.append(losses(read_log(log))[0])
    check(max(found) - min(found) < 1e-6 * found[0], "losses %s" % found)
    return "losses within %.1e" % (max(found) / min(found) - 1)


def test_preferences_beside_the_model_without_adapters():
    """DPO begins at log 2, whatever the weights, and prefers what it is told to; recomputing changes no bit."""
    if not there():
        return SKIPPED
    folder = scratch("prefer")
    lua, weights = family(folder)
    chat(folder, [{"prompt": "Q%d" % i, "chosen": "good", "rejected": "bad"} for i in range(4)], "--pairs", "--seq", "64")
    runs = []
    for world, batch, recompute in (1, 4, "none"), (2, 2, "none"), (2, 2, "full"):
        log = os.path.join(folder, "log.jsonl")
        must([build(lua, world=world, batch=batch, seq=64, data="pairs", lora=4, recompute=recompute), "--data", os.path.join(folder, "chat.safetensors"), "--weights", weights,
              "--steps", "8", "--warmup", "1", "--lr", "2e-2", "--quiet", "--log", log])
        runs.append(steps(read_log(log)))
        check(abs(runs[-1][0]["loss"] - math.log(2)) < 1e-6 and runs[-1][0]["margin"] == 0, "the first step: %s" % runs[-1][0])
        check(runs[-1][-1]["loss"] < 0.6 and runs[-1][-1]["accuracy"] == 1, "the last step: %s" % runs[-1][-1])
    check(max(abs(a["loss"] - b["loss"]) for a, b in zip(*runs[:2])) < 1e-5, "one rank and two")
    check([x["loss"] for x in runs[1]] == [x["loss"] for x in runs[2]], "with recomputation")


def test_texts_of_a_tokenizer():
    if not there():
        return SKIPPED
    folder = scratch("texts")
    tokenizer = write_tokenizer(os.path.join(folder, "tok"))
    lines = put(os.path.join(folder, "x.jsonl"), [{"text": "one"}, {"text": ""}, {"text": "zwei \u00fc"}])
    text, out = put(os.path.join(folder, "a.txt"), "a text\nof lines\n"), os.path.join(folder, "x.bin")
    said = must([SHARDC, "data", lines, text, "--tokenizer", tokenizer, "-o", out], env=ENV)
    blob = open(out, "rb").read()
    want = ids("one<|im_end|><|im_end|>zwei \u00fc<|im_end|>a text\nof lines\n<|im_end|>")
    check(struct.unpack("<3i", blob[:12]) == (20240520, 1, len(want)) and list(struct.unpack("<%dH" % len(want), blob[1024:])) == want, "tokens")
    check("%d tokens from 2 files, 4 texts, of %s" % (len(want), tokenizer) in " ".join(said.split()), said)
    path = os.path.join(tokenizer, "tokenizer.json")
    many = json.load(open(path))
    many["added_tokens"] += [{**many["added_tokens"][0], "id": 259 + i, "content": "<%d>" % i} for i in range(66000)]
    json.dump(many, open(path, "w"))
    must([SHARDC, "data", put(os.path.join(folder, "y.jsonl"), [{"body": "x<65999>"}]), "--key", "body", "--tokenizer", path, "-o", out], env=ENV)
    blob = open(out, "rb").read()
    check(struct.unpack("<3i", blob[:12]) == (20240801, 7, 3) and struct.unpack("<3I", blob[1024:]) == (ord("x"), 259 + 65999, END), "a large vocabulary is uint32")
    os.remove(os.path.join(tokenizer, "tokenizer_config.json"))
    rc, _, err = command([SHARDC, "data", lines, "--tokenizer", path, "-o", out], env=ENV)
    check(rc == 0 and "no token stands between texts: nothing beside the tokenizer names an end of text" in err, err)


def test_what_data_refuses():
    if not there():
        return SKIPPED
    folder = scratch("refused")
    tokenizer, out = write_tokenizer(os.path.join(folder, "tok")), os.path.join(folder, "out.safetensors")
    file = os.path.join(folder, "x.jsonl")

    def refused(want, lines, *args, env=ENV, code=1):
        rc, said, err = command([SHARDC, "data", put(file, lines), "-o", out, *args], env=env)
        check(rc == code and want in err and not os.path.exists(out), "wanted %s: exit %d, %s%s" % (want, rc, said, err))
    chat_of = ("--chat", "--tokenizer", tokenizer)
    good = [{"prompt": "Q", "completion": "A"}]
    refused("x.jsonl:2: Expecting ':' delimiter: column 10 (char 9). JSON lines", '{"prompt": "Q", "completion": "A"}\n{"prompt"\n', *chat_of)
    refused("x.jsonl:3: it is no JSON object", '{"prompt": "Q", "completion": "A"}\n\n[1]\n', *chat_of)
    refused('x.jsonl:2: it has neither "messages" nor a prompt and its answer', good + [{"text": "a"}], *chat_of)
    refused('but "chosen", "rejected"; --pairs in place of --chat reads answers', [{"chosen": "a", "rejected": "b"}], *chat_of)
    refused('x.jsonl:1: "messages" must be a list of messages', [{"messages": "hi"}], *chat_of)
    refused('x.jsonl:1: a message of "messages" has no "role"', [{"messages": [{"content": "hi"}]}], *chat_of)
    refused("holds U+FDD0 or U+FDD1", [{"messages": [turn("user", "\ufdd0")]}], *chat_of)
    refused("no rows to write: no conversation has a token to predict", [{"messages": [turn("user", "hi")]}], *chat_of)
    refused("no rows to write: the files hold no lines", "\n", *chat_of)
    refused('x.jsonl:1: it has no "chosen" and "rejected", but "prompt", "completion"', good, "--pairs", "--tokenizer", tokenizer)
    refused('without a "prompt", "chosen" and "rejected" must be lists', [{"chosen": "a", "rejected": "b"}], "--pairs", "--tokenizer", tokenizer)
    refused('x.jsonl:1: it has no text as "text", but "prompt", "completion"; --key NAME', good, "--tokenizer", tokenizer)
    refused("there is no such file; give the tokenizer.json of a Hugging Face model", good, "--chat", "--tokenizer", os.path.join(folder, "none"))
    refused("it is no tokenizer.json of Hugging Face", good, "--chat", "--tokenizer", file)
    template = lambda text: ("--chat-template", put(os.path.join(folder, "t.jinja"), text))
    refused("the chat template cannot be read", good, *chat_of, *template("{% for %}"))
    refused("x.jsonl:1: the chat template refuses the conversation: roles must alternate", good, *chat_of, *template("{{ raise_exception('roles must alternate') }}"))
    refused("where the chat template puts its text cannot be told", [{"messages": 2 * [turn("user", "Q"), turn("assistant", "AA")]}], *chat_of,
            *template("{{ messages | map(attribute='content') | join | length }}{% for m in messages %}{{ m.content | upper }}{% endfor %}"))
    refused("writes it in another way when it is not the last one", [{"messages": 2 * [turn("user", "Q"), turn("assistant", "")]}], *chat_of, *template("{{ messages | length }}"))
    refused("marks 1 places by {% generation %}, and the conversation has 2 answers", [{"messages": [turn("user", "Q"), {**turn("assistant", "A"), "weight": 0}, turn("user", "Q"), turn("assistant", "A")]}], *chat_of,
            *template("{% generation %}x{% endgeneration %}"))
    refused("t.jinja: ", good, *chat_of, "--chat-template", os.path.join(folder, "none", "t.jinja"))
    bare = write_tokenizer(os.path.join(folder, "bare"), None)
    refused("the tokenizer has no chat template; give --chat-template FILE", [{"messages": [turn("user", "Q"), turn("assistant", "A")]}], "--chat", "--tokenizer", bare)
    several = write_tokenizer(os.path.join(folder, "several"), [{"name": "tool_use", "template": "x"}])
    refused("has the chat templates 'tool_use' and no default", good, "--chat", "--tokenizer", several)
    refused("the Python package tokenizers is missing", good, *chat_of, env={**ENV, "PYTHONPATH": ""})
    refused("cannot start no-python, in which the tokenizer works: No such file or directory; set SHARDC_PYTHON", good, *chat_of, env={"SHARDC_PYTHON": "no-python"})
    refused("the Python in which the tokenizer works has ended", good, *chat_of, env={"SHARDC_PYTHON": "/bin/true"})
    refused("the Python in which the tokenizer works has ended", good, "--tokenizer", tokenizer, env={"SHARDC_PYTHON": "/bin/true"})
    fails = {"SHARDC_PYTHON": script(folder, "fails", "head -c 44 /dev/zero; exit 1")}  # after it has said what the tokenizer is
    for of in (*chat_of,), ("--tokenizer", tokenizer):
        refused("the Python in which the tokenizer works has failed; what it printed says why", good, *of, env=fails)
    refused("--chat needs --tokenizer PATH", good, "--chat", code=2)
    refused("--pairs needs --tokenizer PATH", good, "--pairs", code=2)
    refused("--chat and --pairs: lines are one or the other", good, "--pairs", *chat_of, code=2)
    refused("--no-pack belongs to --chat and --pairs", good, "--no-pack", code=2)
    refused("--separator: texts are ended by the tokenizer's own end of text", good, "--tokenizer", tokenizer, "--separator", "3", code=2)
    refused("--as bytes: a tokenizer reads text", good, "--tokenizer", tokenizer, "--as", "bytes", code=2)
    other = put(os.path.join(folder, "mine.safetensors"), "not rows of shardc data, but something of mine that must stay as it is, of more than 64 bytes")
    rc, _, err = command([SHARDC, "data", put(file, good), "-o", other, *chat_of], env=ENV)
    check(rc == 1 and "holds no rows of shardc data: it stays as it is" in err and open(other).read().startswith("not rows"), err)


def script(folder, name, text):
    """The path of a Python that is none."""
    path = put(os.path.join(folder, name), "#!/bin/sh\n%s\n" % text)
    os.chmod(path, 0o755)
    return path


def test_sampling_takes_and_prints_text():
    """A model that always predicts the next letter of its prompt's alphabet: weights make it so, so that the sample's text is known."""
    if not there():
        return SKIPPED
    folder = scratch("sampled")
    tokenizer = write_tokenizer(os.path.join(folder, "tok"))
    lua = put(os.path.join(folder, "next.lua"), """
local nn, optim = require "nn", require "optim"
local model = nn.module "Next"
model.table = nn.Embedding(260, 260)
function model:forward(tokens) return self.table(tokens) end
nn.fully_shard(model)
return nn.training {
  model = model,
  batch = { tokens = nn.input("int32", { 1, 64 }, { from = "tokens" }), targets = nn.input("int32", { 1, 64 }, { from = "tokens", shift = 1 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens), b.targets) end,
  sample = { inputs = { tokens = nn.input("int32", { 1, 64 }, { from = "tokens" }) }, logits = function(m, b) return m(b.tokens) end },
  optimizer = optim.SGD { lr = 0 },
}
""")
    follow = {b: b + 1 for b in range(256)}
    for text in ("\u00fc\u20ac\U0001f600!", "z\u00fc"):  # each byte of a character is followed by its next one
        follow.update(dict(zip(text.encode(), text.encode()[1:])))
    follow[ord("!")] = END
    follow[ord("\n")] = ord("a")
    table = [[0.0] * 260 for _ in range(260)]
    for a, b in follow.items():
        table[a][b] = 1.0
    weights = os.path.join(folder, "w.safetensors")
    write_safetensors(weights, {"table.weight": ("F32", [260, 260], b"".join(struct.pack("<260f", *row) for row in table))})
    binary = build(lua, world=2)
    sample = lambda *args, n=30: must([binary, "--weights", weights, "--quiet", "--temperature", "0", "--sample", str(n), *args], env=ENV)
    got = sample("--tokenizer", tokenizer, "--prompt", "fg")
    check(got.startswith("fghijklmnopqrstuvwxyz\u00fc\u20ac\U0001f600!\n"), repr(got))
    check(sample("--tokenizer", tokenizer, "--prompt", "fg", n=4) == "fghijk\n", "as many tokens as are asked for")
    check(sample("--tokenizer", tokenizer, "--prompt", "say it", "--chat", n=3) == "abc\n", "the answer alone")
    check(sample("--tokenizer", tokenizer, "--prompt", "ignored", "--chat", "--chat-template", put(os.path.join(folder, "t.jinja"), "x"), n=2) == "yz\n", "a template of one's own")
    refusals = [(("--tokenizer", folder), "there is no such file"), (("--tokenizer", tokenizer, "--prompt", "<|im_start|>", "--sample-format", "ids"), "--sample-format: --tokenizer prints text"),
                (("--chat",), "--chat needs --tokenizer")]
    small = build("mlp.lua", vocab=100)
    for args, want in refusals:
        rc, _, err = command([binary, "--weights", weights, "--sample", "3", *args], env=ENV)
        check(rc in (1, 2) and want in err, "%s: %s" % (args, err))
    rc, _, err = command([small, "--sample", "3", "--tokenizer", tokenizer, "--prompt", "z"], env=ENV)
    check(rc == 1 and "'z' has token 122, and the model's vocabulary ends at 99: it is another model's tokenizer" in err, err)
    for n, show, want in (3, "cat >/dev/null; exit 1", "has failed; what it printed says why"), (100000, "exit 1", "cannot print the sample: the Python in which the tokenizer works has ended"):
        dies = {**ENV, "SHARDC_PYTHON": script(folder, "dies", 'if [ "$3" = show ]; then %s; fi; exec /usr/bin/python3 "$@"' % show)}
        rc, _, err = command([binary, "--weights", weights, "--sample", str(n), "--tokenizer", tokenizer, "--prompt", "Z"], env=dies)
        check(rc == 1 and want in err, err)
    bare = write_tokenizer(os.path.join(folder, "bare"), None)
    rc, _, err = command([binary, "--weights", weights, "--sample", "3", "--tokenizer", bare, "--prompt", "z", "--chat"], env=ENV)
    check(rc == 1 and "the tokenizer has no chat template: leave --chat out" in err, err)
    rc, _, err = command([binary, "--weights", weights, "--sample", "3", "--tokenizer", bare], env={"SHARDC_PYTHON": "/bin/false"})
    check(rc == 1 and "the Python in which the tokenizer works has ended" in err, err)
