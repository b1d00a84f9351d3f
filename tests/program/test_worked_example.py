"""The worked example (models/tuning.md): its commands run as they stand, with a small model, and the model that comes out is better.

Relies on: harness.py, tokens.py (skipped where the package could not be fetched), models/tuning.md. Relied on by: run.py."""
import json
import os
import random
import re

from harness import BUILD, ROOT, SHARDC, build, check, long, must, quick_cc, read_safetensors, scratch
from tokens import ENV, there, write_tokenizer

CONFIG = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=260, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
ANSWER, OTHER = "A block.", "No idea."


def write(folder, name, rows):
    with open(os.path.join(folder, name), "w") as f:
        f.write("".join(json.dumps(x) + "\n" for x in rows))


def beginnings(folder):
    """What the page takes as given: model/, conversations, answers that were compared, texts."""
    r = random.Random(6)
    os.makedirs(os.path.join(folder, "build"))
    os.symlink(os.path.join(BUILD, "shardc"), os.path.join(folder, "build", "shardc"))
    write_tokenizer(os.path.join(folder, "model"))
    with open(os.path.join(folder, "model", "config.json"), "w") as f:
        json.dump(CONFIG, f)
    ask = lambda: "What is %s arena?" % r.choice(("an", "the", "this", "an", "our"))
    talk = lambda: {"messages": [{"role": "user", "content": ask()}, {"role": "assistant", "content": ANSWER}]}
    write(folder, "train.jsonl", [talk() for _ in range(160)])
    write(folder, "val.jsonl", [talk() for _ in range(40)])
    write(folder, "pairs.jsonl", [{"prompt": ask(), "chosen": ANSWER, "rejected": OTHER} for _ in range(16)])
    write(folder, "corpus.jsonl", [{"text": "An arena is a block. " * 20} for _ in range(40)])


def begin(folder):
    """Weights of model/: of a model that answers, but otherwise than the conversations do."""
    rows = os.path.join(folder, "begin.safetensors")
    write(folder, "begin.jsonl", [{"prompt": "What is %s %s?" % (a, b), "completion": c} for a in ("an", "the", "this", "our")
                                   for b, c in (("arena", OTHER), ("unit", "A clock."), ("event", "Black ink."), ("plan", "A book of locks."))])
    must([SHARDC, "data", os.path.join(folder, "begin.jsonl"), "--chat", "--tokenizer", os.path.join(folder, "model"), "--seq", "256", "-o", rows], env=ENV)
    must([build(os.path.join(folder, "tuned.lua"), seq=256, batch=4, data="chat"), "--data", rows, "--steps", "250", "--warmup", "10", "--total", "250", "--lr", "3e-3", "--export",
          os.path.join(folder, "model") + "/"])


@long
def test_from_a_folder_of_weights_to_a_tuned_model():
    if not there():
        return "build/tokenizers is not there"
    folder = scratch("worked")
    beginnings(folder)
    page = open(os.path.join(ROOT, "models", "tuning.md")).read()
    commands = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    check(len(commands) >= 8 and "build/shardc import model" in commands[0], "the page has lost its commands")
    env = {**ENV, "CC": quick_cc()}
    said = must(["sh", "-ec", commands[0]], cwd=folder, env=env)
    begin(folder)
    for block in commands[1:]:
        said += must(["sh", "-ec", block], cwd=folder, env=env)
    before, after = (float(x) for x in re.findall(r"^step 0  val_loss (\S+)", said, re.M))
    check(after < before / 10, "val_loss %g, then %g" % (before, after))
    check(said.count("\n" + OTHER + "\n") == said.count("\n" + ANSWER + "\n") == 1 and "fits cpu" in said, "the answer after training: " + said[-2000:])
    best = re.findall(r"margin (\S+)  accuracy 1", said)
    check(best and float(best[-1]) > 0.5, "the preferred answer's margin: %s" % best[-3:])
    check({"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} <= set(os.listdir(os.path.join(folder, "tuned"))), "what is in tuned/")
    names = [set(read_safetensors(os.path.join(folder, name, "model.safetensors"))) for name in ("model", "tuned", "preferred", "continued")]
    check(names[0] == names[1] == names[2] == names[3], "names of tensors")
    check(os.path.getsize(os.path.join(folder, "run.html")) > 10000, "the report")
    return "val_loss %.3g to %.3g, margin %s" % (before, after, best[-1])
