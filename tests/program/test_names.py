"""PyTorch's names: every piece of Lua that the table offers compiles, those of a forward compute what PyTorch does, every name is
answered, and every option exists. That the page is the table's is test_generated.py's.

Relies on: harness.py, pytorch_names.py, tests/golden/names.py and names.json. Relied on by: run.py."""
import importlib.util
import json
import math
import os
import re
import struct
from concurrent.futures import ThreadPoolExecutor

import pytorch_names
from harness import ROOT, SHARDC, build, check, command, must, read_log, scratch

MODEL = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.embed, model.head = nn.Embedding(32, 16), nn.Linear(16, 32)
model.layers = nn.list { nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16) }
model.w, model.b, model.kernel = nn.parameter({ 16, 16 }), nn.parameter({ 16 }), nn.parameter({ 16, 48 })
model.mean, model.var = nn.buffer({ 16 }), nn.buffer({ 16 })
%s
function model:forward(tokens, targets)
  local x = self.embed(tokens)
  for _, layer in ipairs(self.layers) do x = layer(x) end
  local logits, w, b, kernel, mean, var = self.head(x), self.w, self.b, self.kernel, self.mean, self.var
  local y, ids = x + w:slice(0, 0, 8), nn.minimum(tokens, 15)
  local q = x:view(2, 8, 4, 4)
  local k, v, mask, other, image = q * 2, q * 3, nn.lt(x, y), nn.gt(x, 0), nn.reshape(nn.concat({ x, x:slice(1, 0, 4) }, 1), 2, 3, 8, 8)
%s
  return logits
end
return nn.training {
  model = model, optimizer = optim.SGD {},
  batch = { tokens = nn.input("int32", { 2, 8 }), targets = nn.input("int32", { 2, 8 }) },
  loss = function(m, b) return nn.cross_entropy(m(b.tokens, b.targets), b.targets) end,
  %s
}
"""


def entries():
    return [(of, e) for of, _, es in pytorch_names.sections() for e in es]


def code(e):
    return e["ours"] or e["instead"]


def statement(e):
    """Lua that runs a piece: an expression is given a name."""
    s = code(e)
    assigns = re.match(r"(local|for|function) |[\w.]+ = ", s)
    return "do %s%s end" % ("" if assigns else "local result = ", s)


def given(e):
    """The name of a piece's result: the last that it gives."""
    return re.findall(r"(?:^|; )(?:local )?(\w+(?:, \w+)*) = ", statement(e)[len("do "):])[-1].split(", ")[-1]


def placed(e):
    """A piece of a file. What it makes becomes part of the model: modules that are part of nothing are refused."""
    if not re.search(r"nn\.(module|list|sequential|parameter|buffer|[A-Z])", code(e)):
        return statement(e)
    return "%s model.piece = %s end" % (statement(e)[:-4], given(e))


def test_every_piece_of_lua_compiles():
    """One model for all pieces of forward, which is traced; one a piece for what else there is, since policies exclude each other."""
    folder, found = scratch("names"), entries()
    pieces = [e for _, e in found if code(e)]
    forward = "\n".join(statement(e) for e in pieces if e["at"] == "forward")
    texts = [("forward", MODEL % ("", forward, ""))]
    for e in pieces:
        check(e["at"] in ("forward", "model", "training"), "line %d: at = %s" % (e["line"], e["at"]))
        if e["at"] != "forward":
            texts.append(("line %d" % e["line"], MODEL % ((placed(e), "", "") if e["at"] == "model" else ("", "", code(e)))))

    def compiles(i):
        path = os.path.join(folder, "m%d.lua" % i)
        open(path, "w").write(texts[i][1])
        rc, _, err = command([SHARDC, "predict", path, "--world", "2"])
        at = re.search(r"m\d+\.lua:(\d+)", err)
        return [] if rc == 0 else ["%s of pytorch.lua: %s%s" % (texts[i][0], err, texts[i][1].splitlines()[int(at.group(1)) - 1] if at else "")]
    with ThreadPoolExecutor(2) as pool:
        wrong = sum(pool.map(compiles, range(len(texts))), [])
    check(not wrong, "\n".join(wrong))
    for e in pieces:
        check(e["ours"] is None or e["instead"] is None, "line %d: ours and instead" % e["line"])
    return "%d pieces of Lua in %d models" % (len(pieces), len(texts))


PLACES = {"nn": 'nn["%s"]', "optim": 'optim["%s"]', "nn.init": 'nn.init["%s"]', "a tensor": 'nn.parameter({ 2 })["%s"]', "a module": 'nn.Linear(2, 2)["%s"]',
          "dtype": 'nn.input("%s", { 2 })', "key": 'nn.input("fp32", { 2 }, { ["%s"] = 1 })', "": '_ENV["%s"]'}


def test_every_name_is_answered():
    """Where the section says that people write it. A name that is there is its own answer."""
    folder, asked = scratch("names"), [(of, e, name) for of, e in entries() for name in e["names"]]

    def answered(i):
        of, e, name = asked[i]
        path = os.path.join(folder, "a%d.lua" % i)
        open(path, "w").write('local nn, optim = require "nn", require "optim"\nlocal it = %s\n' % (PLACES[of] % name))
        rc, _, err = command([SHARDC, "predict", path])
        if rc == 1 and "describes no training" in err:  # it is there
            return [] if name in (e["ours"] or "") else ["line %d: %s is there, but the table says otherwise" % (e["line"], name)]
        says = code(e) or e["option"] or e["note"]
        return [] if rc == 1 and "a%d.lua:2: " % i in err and says in err else ["line %d: %s: exit %d: %s" % (e["line"], name, rc, err)]
    with ThreadPoolExecutor(2) as pool:
        wrong = sum(pool.map(answered, range(len(asked))), [])
    check(not wrong and len(asked) > 800, "%d names\n%s" % (len(asked), "\n".join(wrong)))
    return "%d names" % len(asked)


def test_names_once_and_options_exist():
    """A section has a name once, and what the table calls an option is in the program's -h."""
    text = must([build("gpt2.lua", layers=1, dim=16, heads=2, vocab=256, batch=2, seq=16), "-h"])
    for _, title, es in pytorch_names.sections():
        names = [n for e in es for n in e["names"]]
        check(len(names) == len(set(names)), "%s: twice: %s" % (title, sorted(n for n in names if names.count(n) > 1)))
        for e in es:
            check(not e["option"] or e["option"] + "=" in text or e["option"] + "\n" in text or e["option"] + " " in text, "no option %s" % e["option"])
            check(code(e) or e["option"] or e["note"], "line %d says nothing" % e["line"])


NUMBERS = """local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.head = nn.Linear(16, 16)
model.mean, model.var = nn.buffer({ 16 }), nn.buffer({ 16 }, { init = nn.init.ones() })
function model:forward(batch)
  local function whole(x) return nn.squeeze(nn.slice(x, 0, 0, 1), 0) end
  local x, y, q, k, v, image, logits, ids, targets = batch.x, batch.y, batch.q, batch.k, batch.v, batch.image, batch.logits, batch.ids, batch.targets
  local w, b, kernel, weights, mean, var = whole(batch.w), whole(batch.b), whole(batch.kernel), whole(batch.weights), self.mean, self.var
  local mask, other = nn.lt(x, y), nn.gt(x, 0.4)
  local function log(name, result)
    local flat, shape = nn.reshape(nn.cast(result, "fp32"), -1), table.concat(result.shape, ",")
    nn.log_metric(name .. " " .. shape, nn.sum(flat * nn.slice(weights, 0, 0, flat:size(0))))
  end
%s
  return self.head(batch.x)
end
return nn.training { model = model, optimizer = optim.SGD { lr = 0 }, loss = function(m, b) return nn.mean(m(b)) end,
  batch = { %s } }
"""
AT_ONCE = 56  # names that a program logs are at most 62


def golden():
    spec = importlib.util.spec_from_file_location("golden_names", os.path.join(ROOT, "tests", "golden", "names.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def logged(e):
    return "%s log(%r, %s) end" % (statement(e)[:-4], e["names"][0], given(e))


def test_numbers_are_pytorchs():
    """Each piece of a forward that has a row in tests/golden/names.py, on positive numbers and on numbers of both signs: the shape and a
    weighted sum of the elements. Where PyTorch's sum is not finite, nothing is compared."""
    names, folder = golden(), scratch("numbers")
    first = {}
    for _, e in entries():
        if e["at"] == "forward" and code(e) and e["names"][0] in names.EXPRESSIONS:
            first.setdefault(e["names"][0], e)
    missing = set(names.EXPRESSIONS) - set(first)
    check(not missing, "the table has no %s" % sorted(missing))
    rows = {name: shape if shape[0] == 2 else (2, *shape) for name, shape in names.SHAPES.items()}  # of two samples, which hold the same
    batch = ", ".join('%s = nn.input("%s", { %s })' % (n, "int32" if n in ("ids", "targets") else "fp32", ", ".join(map(str, s))) for n, s in rows.items())
    pieces, wrong, n = list(first.values()), [], 0
    want = json.load(open(names.FILE))["numbers"]
    for i in range(0, len(pieces), AT_ONCE):
        path, binary, log = (os.path.join(folder, "m%d%s" % (i, end)) for end in (".lua", "/m", ".jsonl"))
        open(path, "w").write(NUMBERS % ("\n".join(map(logged, pieces[i:i + AT_ONCE])), batch))
        must([SHARDC, "build", path, "-o", binary])
        for domain in range(len(names.DOMAINS)):
            record = b""
            for name, numbers in names.inputs(domain).items():
                numbers = numbers * (math.prod(rows[name]) // len(numbers))
                record += struct.pack("<%d%s" % (len(numbers), "i" if isinstance(numbers[0], int) else "f"), *numbers)
            file = os.path.join(folder, "record")
            open(file, "wb").write(record)
            with open(file, "rb") as f:
                rc, _, err = command([binary, "--data", "-", "--steps", "1", "--log", log, "--allow-nan"], stdin_file=f)
            check(rc == 0, err)
            for key, ours in read_log(log)[0].items():
                name, shape = key.split(" ") if " " in key else (None, None)
                theirs = want.get("%s %d" % (name, domain))
                if not theirs or theirs[1] is None:
                    continue
                n += 1
                size = math.prod(theirs[0])
                if list(filter(None, shape.split(","))) != [str(s) for s in theirs[0]]:
                    wrong.append("%s: [%s] instead of %s" % (key, shape, theirs[0]))
                if ours is None or abs(ours - theirs[1]) > 2e-5 * max(1, abs(theirs[1]), size ** 0.5):
                    wrong.append("%s, domain %d: %s instead of %s: %s" % (key, domain, ours, theirs[1], code(first[name])))
    check(not wrong and n > 350, "%d numbers\n%s" % (n, "\n".join(wrong)))
    return "%d numbers of %d pieces" % (n, len(pieces))
