"""Random models in Lua, small enough for a step in milliseconds, and what is to be tried with them: norms, attention, gated and
plain MLPs, chains of pointwise ops, reductions, softmax over odd axes, views, shared and frozen modules, dtypes, optimizers. A
model has an option `v`: which of three memory policies is taken, none of which may change a bit.

Relies on: harness.py (lua). Relied on by: policies.py, which puts tests/program on the path."""
import random

from harness import lua

VARIANTS = 3
TOKENS = 48  # the data's tokens are below


class Block:
    """One module: its fields, its forward's lines."""

    def __init__(self, gen, dim):
        self.g, self.r, self.d, self.n = gen, gen.r, dim, 0
        self.fields, self.lines, self.about = [], [], []

    def name(self, stem):
        self.n += 1
        return "%s%d" % (stem, self.n)

    def let(self, expression, stem="y"):
        name = self.name(stem)
        self.lines.append("local %s = %s" % (name, expression))
        return name

    def field(self, stem, expression):
        name = self.name(stem)
        self.fields.append("m.%s = %s" % (name, expression))
        return "self." + name

    def vector(self, width, around=1.0):
        return self.field("gain", "nn.parameter({ %d }, { init = nn.init.normal(%g, 0.2) })" % (width, around))

    # ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────
    def linear(self, x, inputs, outputs):
        r, way, std = self.r, self.r.choice(["linear"] * 6 + ["addmm", "matmul"]), inputs ** -0.5
        if way == "linear":
            options = {"bias": False} if r.random() < 0.5 else {}
            made = self.field("lin", "nn.Linear(%d, %d%s)" % (inputs, outputs, ", " + lua(options) if options else ""))
            return "%s(%s)" % (made, x)
        weight = self.field("w", "nn.parameter({ %d, %d }, { init = nn.init.normal(0, %g) })" % (inputs, outputs, std))
        if way == "matmul":
            return "nn.matmul(%s, %s)" % (x, weight)
        return "nn.addmm(%s, %s, %s)" % (self.vector(outputs, 0), x, weight)

    def norm(self, x, width, kinds=("layer", "layer", "nobias", "rms", "rms", "bare", "bare_rms", "manual", "none")):
        kind = self.r.choice(kinds)
        if kind == "layer":
            return "%s(%s)" % (self.field("norm", "nn.LayerNorm(%d)" % width), x)
        if kind == "nobias":
            return "%s(%s)" % (self.field("norm", "nn.LayerNorm(%d, { bias = false, eps = 1e-4 })" % width), x)
        if kind == "rms":
            return "%s(%s)" % (self.field("norm", "nn.RMSNorm(%d)" % width), x)
        if kind == "bare":
            return "nn.layer_norm(%s)" % x
        if kind == "bare_rms":
            return "nn.rms_norm(%s)" % x
        if kind == "manual":
            return "(%s * nn.rsqrt(nn.mean(%s * %s, -1, true) + 1e-3) * %s)" % (x, x, x, self.vector(width))
        return x

    def activation(self, x):
        return self.r.choice(["nn.silu(%s)", "nn.gelu(%s)", 'nn.gelu(%s, "tanh")', "nn.relu(%s)", "nn.sigmoid(%s)", "nn.tanh(%s)", 'nn.gelu(%s, "tanh")', "nn.silu(%s)"]) % x

    def pointwise(self, terminals, depth, width):
        """A random expression over tensors of one shape."""
        r = self.r
        if depth == 0 or r.random() < 0.1:
            return r.choice(terminals)

        def sub():
            return self.pointwise(terminals, depth - 1, width)
        unary = ["nn.tanh(%s)", "nn.sigmoid(%s)", "nn.silu(%s)", "nn.gelu(%s)", 'nn.gelu(%s, "tanh")', "nn.exp(nn.tanh(%s))", "nn.log(1.5 + nn.abs(%s))", "nn.neg(%s)",
                 "nn.clamp(%s, -1.5, 1.25)", "nn.relu(%s)", "(%s * 0.75 - 0.125)", "(1 - %s)", "nn.maximum(%s, -0.5)", "nn.clamp(%s, nil, 2)", "nn.pow(nn.abs(%s) + 0.5, 1.5)",
                 "(0.5 / (nn.abs(%s) + 1.25))"]
        k = r.random()
        if k < 0.45:
            chosen = r.choice(unary)
            return chosen % sub()
        if k < 0.55:
            a = self.let(sub(), "t")
            return r.choice(["nn.sqrt(0.25 + %s * %s)", "nn.rsqrt(1 + %s * %s)", "(%s * %s * 0.5)", "(%s - nn.detach(%s) * 0.5)"]) % (a, a)
        if k < 0.63:
            a = self.let(sub(), "t")
            return r.choice(["(%s + %s)", "(%s * %s)", "(%s - %s)", "nn.maximum(%s, %s)"]) % (a, r.choice([self.vector(width), self.vector(1), self.vector(width, 0)]))
        if k < 0.71:
            a, b = self.let(sub(), "t"), self.let(sub(), "t")
            return "nn.where(nn.%s(%s, %s), %s, %s * 0.5)" % (r.choice(["lt", "ge", "gt", "le"]), a, b, sub(), b)
        return r.choice(["(%s + %s)", "(%s - %s)", "(%s * nn.tanh(%s))", "(%s / (1.5 + nn.abs(%s)))", "nn.maximum(%s, %s)", "nn.minimum(%s, %s)", "(%s * nn.sigmoid(%s))"]) % (sub(), sub())

    # ── kinds of blocks: each takes the name of a normed x [B,S,D], and returns an expression of its shape ───────────
    def attention(self, x):
        r, g = self.r, self.g
        b, s, d = g.b, g.s, self.d
        heads = r.choice([1, 2, 3, 4, 6])
        kv = r.choice([k for k in (1, 2, 3, 6, heads) if heads % k == 0])
        width = r.choice([16, 16, 24, 32, 32, 40, 48, 64, 64, 80, 96, 112, 128, 128, 160, 192, 256, 8, 12, 20, 36, 72])
        if heads * width > 384:
            heads = kv = r.choice([1, 2]) if width <= 192 else 1
        causal = r.random() < 0.6
        length, source = s, x
        if not causal and r.random() < 0.25 and s > 2:
            length = r.randint(1, s)
            source = self.let("%s:slice(1, 0, %d)" % (x, length), "kv")
        joined = source == x and r.random() < 0.35
        if joined:
            qkv = self.let(self.linear(x, d, (heads + 2 * kv) * width), "qkv")
            if r.random() < 0.5:
                qkv = self.let("%s:reshape(%d, %d, %d, %d)" % (qkv, b, s, heads + 2 * kv, width), "qkv")
                self.lines.append("local q, k, v = %s:split({ %d, %d, %d }, 2)" % (qkv, heads, kv, kv))
            else:
                for name, start, n in ("q", 0, heads), ("k", heads, kv), ("v", heads + kv, kv):
                    self.lines.append("local %s = %s:slice(-1, %d, %d):reshape(%d, %d, %d, %d)" % (name, qkv, start * width, (start + n) * width, b, s, n, width))
        else:
            for name, of, t, n in ("q", x, s, heads), ("k", source, length, kv), ("v", source, length, kv):
                self.lines.append("local %s = %s:reshape(%d, %d, %d, %d)" % (name, self.linear(of, d, n * width), b, t, n, width))
        self.about.append("attention h%d kv%d d%d%s%s" % (heads, kv, width, " causal" if causal else "", "" if length == s else " T%d" % length))
        q, k, v = "q", "k", "v"
        if r.random() < 0.2:
            q, k = self.let(self.norm(q, width, ("rms", "layer", "bare_rms")), "q"), self.let(self.norm(k, width, ("rms", "layer", "bare_rms")), "k")
        if width % 2 == 0 and r.random() < 0.4:
            options = r.choice(["", ", { theta = 500 }", ", { theta = 10000, scaling = { factor = 8, low = 1, high = 4, original = 16 } }"])
            q, k = self.let("nn.rope(%s%s)" % (q, options), "q"), self.let("nn.rope(%s%s)" % (k, options), "k")
            self.about.append("rope")
        if heads == kv and r.random() < 0.25:
            return self.linear(self.manual_attention(q, k, v, heads, width, length, causal), heads * width, d)
        more = ["q = %s, k = %s, v = %s" % (q, k, v), "causal = %s" % lua(causal)]
        if r.random() < 0.15:
            more.append("scale = %g" % r.choice([0.1, 0.25]))
        if g.dropout and r.random() < 0.5:
            more.append("dropout = %g" % g.dropout)
            self.about.append("dropout")
        if length == s and r.random() < 0.2:
            more.append("documents = documents")
            self.about.append("documents")
        return self.linear("nn.attention { %s }:reshape(%d, %d, %d)" % (", ".join(more), b, s, heads * width), heads * width, d)

    def manual_attention(self, q, k, v, heads, width, length, causal):
        b, s = self.g.b, self.g.s
        self.about.append("by hand")
        p = self.let("nn.matmul(%s:permute(0, 2, 1, 3), %s:permute(0, 2, 3, 1)) * %g" % (q, k, width ** -0.5), "p")
        if causal:
            p = self.let("nn.where(nn.ge(nn.arange(%d):unsqueeze(1), nn.arange(%d):unsqueeze(0)), %s, -1e4)" % (s, length, p), "p")
        p = self.let("nn.softmax(%s)" % p, "p")
        if self.g.dropout:
            p = self.let("nn.dropout(%s, %g)" % (p, self.g.dropout), "p")
        return self.let("nn.matmul(%s, %s:permute(0, 2, 1, 3)):permute(0, 2, 1, 3):reshape(%d, %d, %d)" % (p, v, b, s, heads * width), "o")

    def mlp(self, x):
        r, d = self.r, self.d
        hidden = r.choice([r.randint(9, 150), 64, 128, 256, 8 * r.randint(2, 20)])
        self.about.append("mlp %d" % hidden)
        h = self.let(self.activation(self.linear(x, d, hidden)), "h")
        if self.g.dropout and r.random() < 0.3:
            h = self.let("nn.dropout(%s, %g)" % (h, self.g.dropout), "h")
        if r.random() < 0.15:
            h = self.let(self.norm(h, hidden), "h")
        return self.linear(h, hidden, d)

    def gated(self, x):
        r, d = self.r, self.d
        hidden = r.choice([r.randint(9, 150), 64, 128, 256, 8 * r.randint(2, 20)])
        self.about.append("gated %d" % hidden)
        if r.random() < 0.3:
            both = self.let(self.linear(x, d, 2 * hidden), "both")
            self.lines.append("local gate, up = %s:chunk(2, -1)" % both)
        else:
            self.lines.append("local gate = %s" % self.linear(x, d, hidden))
            self.lines.append("local up = %s" % self.linear(x, d, hidden))
        act = r.choice(["nn.silu(gate)"] * 4 + [self.activation("gate")] * 3 + ["nn.sigmoid(gate) * gate"])
        h = self.let(r.choice(["%s * up" % act, "up * (%s)" % act, "%s * (up + 0.5)" % act]), "h")
        return self.linear(h, hidden, d)

    def wide(self, x):
        """What k_matmul_hopper.cu takes."""
        r, d, hidden = self.r, self.d, 256 * self.r.choice([17, 18, 19])
        options = "" if r.random() < 0.5 else ", { bias = false }"
        down = self.field("lin", "nn.Linear(%d, %d, { bias = false })" % (hidden, d))
        up = self.field("lin", "nn.Linear(%d, %d%s)" % (d, hidden, options))
        if r.random() < 0.4:
            self.about.append("wide gelu %d" % hidden)
            return '%s(nn.gelu(%s(%s), "tanh"))' % (down, up, x)
        self.about.append("wide gate %d" % hidden)
        gate = self.field("lin", "nn.Linear(%d, %d%s)" % (d, hidden, options))
        return "%s(nn.silu(%s(%s)) * %s(%s))" % (down, gate, x, up, x)

    def narrow_attention(self, x):
        b, s, heads, width = self.g.b, self.g.s, self.r.choice([4, 8]), self.r.choice([4, 8])
        self.about.append("attention h%d d%d" % (heads, width))
        for name in "q", "k", "v":
            self.lines.append("local %s = %s:reshape(%d, %d, %d, %d)" % (name, self.linear(x, self.d, heads * width), b, s, heads, width))
        if self.r.random() < 0.4:
            o = self.manual_attention("q", "k", "v", heads, width, s, self.r.random() < 0.5)
        else:
            o = "nn.attention { q = q, k = k, v = v, causal = %s }:reshape(%d, %d, %d)" % (lua(self.r.random() < 0.5), b, s, heads * width)
        return self.linear(o, heads * width, self.d)

    def chain(self, x):
        self.about.append("chain")
        terminals = [x, x, self.let(self.linear(x, self.d, self.d), "a")]
        if self.r.random() < 0.5:
            terminals.append(self.let("%s * %s" % (x, self.vector(self.d)), "a"))
        return "(%s) * 0.5" % self.pointwise(terminals, self.r.randint(2, 5), self.d)

    def tokens_mixed(self, x):
        b, s, d = self.g.b, self.g.s, self.d
        self.about.append("mixing")
        way = self.r.choice(["linear", "matrix", "pool", "shift", "window"])
        if way == "linear":
            return "nn.transpose(%s, 1, 2)" % self.activation(self.linear("%s:transpose(1, 2)" % x, s, s))
        if way == "matrix":
            w = self.field("mix", "nn.parameter({ %d, %d }, { init = nn.init.normal(0, %g) })" % (s, s, s ** -0.5))
            w = "nn.softmax(%s, %d)" % (w, self.r.choice([0, 1])) if self.r.random() < 0.5 else w
            return "nn.matmul(nn.expand(nn.unsqueeze(%s, 0), %d, %d, %d), %s)" % (w, b, s, s, x)
        if way == "pool":
            k = self.r.randint(1, 9)
            scores = self.let(self.linear(x, d, k), "scores")
            pooled = self.let("nn.matmul(nn.softmax(%s, 1):transpose(1, 2), %s)" % (scores, x), "pooled")
            return "nn.matmul(nn.softmax(%s, -1), %s)" % (scores, self.linear(pooled, d, d))
        if way == "shift":
            n = self.r.randint(1, max(1, s // 2))
            late = self.let("nn.concat({ %s:slice(1, %d), %s:slice(1, 0, %d) }, 1)" % (x, s - n, x, s - n) if n < s else x, "late")
            return self.activation(self.linear("nn.concat({ %s, %s }, -1)" % (x, late), 2 * d, d))
        zeros = self.let("%s:slice(1, 0, 1) * 0" % x, "zero")
        before = self.let("nn.concat({ %s, %s:slice(1, 0, -1) }, 1)" % (zeros, x) if s > 1 else zeros, "before")
        return self.linear("nn.stack({ %s, %s }, -1):reshape(%d, %d, %d)" % (x, before, b, s, 2 * d), 2 * d, d)

    def experts(self, x):
        b, s, d, e = self.g.b, self.g.s, self.d, self.r.randint(2, 5)
        self.about.append("experts %d" % e)
        if self.r.random() < 0.5:
            gate = self.let("nn.softmax(%s)" % self.linear(x, d, e), "gate")
            each = [self.let(self.activation(self.linear(x, d, d)), "e") for _ in range(e)]
            return "nn.sum(nn.stack({ %s }, -1) * nn.unsqueeze(%s, 2), -1)" % (", ".join(each), gate)
        w = self.field("w", "nn.parameter({ %d, %d, %d }, { init = nn.init.normal(0, %g) })" % (e, d, d, d ** -0.5))
        y = self.let("nn.matmul(nn.unsqueeze(%s, 1), %s)" % (x, w), "y")
        return self.r.choice(["nn.mean(%s, 1)", "nn.max(%s, 1)", "nn.sum(nn.gelu(%s) * 0.3, 1)"]) % y

    def reductions(self, x):
        self.about.append("reductions")
        return self.r.choice([
            "%(x)s * nn.sigmoid(nn.mean(%(x)s, 1, true)) * %(p)s", "(%(x)s - nn.max(%(x)s, -1, true)) * %(p)s * 0.2", "%(x)s / (1 + nn.sum(%(x)s * %(x)s, { 1, 2 }, true))",
            "%(p)s * nn.softmax(%(x)s, 1) * 3", "%(p)s * nn.softmax(%(x)s, 0) * 3", "(nn.sum(%(x)s, 1, true) * 0.1 + nn.max(%(x)s, 1, true) * 0.3) * %(p)s + %(x)s",
            "%(x)s * (nn.mean(%(x)s) + 1) * %(p)s", "nn.tanh(%(x)s * nn.sum(%(x)s * %(p)s, -1, true))",
            "%(x)s * nn.expand(nn.mean(nn.abs(%(x)s), { 0, 1 }, true), %(b)d, %(s)d, %(d)d) * %(p)s"]) % dict(x=x, p=self.vector(self.d), b=self.g.b, s=self.g.s, d=self.d)

    def pieces(self, x):
        r, d = self.r, self.d
        self.about.append("pieces")
        if d < 6:
            return self.mlp(x)
        a = r.randint(1, d - 3)
        c = r.randint(1, d - a - 1)
        self.lines.append("local pa, pb, pc = %s:split({ %d, %d, %d }, -1)" % (x, a, c, d - a - c))
        parts = ["nn.silu(pa) * 0.8", "nn.tanh(pb)", r.choice(["pc", "pc * pc", "nn.gelu(pc)"])]
        r.shuffle(parts)
        y = self.let("nn.concat({ %s }, -1)" % ", ".join(parts), "y")
        return self.linear(y, d, d) if r.random() < 0.6 else "%s * %s" % (y, self.vector(d))

    def grouped(self, x):
        b, s, d = self.g.b, self.g.s, self.d
        groups = self.r.choice([k for k in range(1, d + 1) if d % k == 0 and (d // k > 3 or d == k)])  # of 2, a norm is a step: chaos
        self.about.append("groups of %d" % (d // groups))
        y = self.let("%s:reshape(%d, %d, %d, %d)" % (x, b, s, groups, d // groups), "y")
        y = self.let(self.norm(y, d // groups, ("layer", "bare", "rms", "bare_rms")), "y")
        if self.r.random() < 0.5:
            y = self.let("nn.transpose(%s, 2, 3)" % y, "y")
        return self.linear("%s:reshape(%d, %d, %d)" % (y, b, s, d), d, d)

    def batch_normed(self, x):
        b, s, d = self.g.b, self.g.s, self.d
        self.about.append("batch_norm")
        if self.r.random() < 0.5:
            y = "%s(%s:reshape(-1, %d)):reshape(%d, %d, %d)" % (self.field("bn", "nn.BatchNorm(%d)" % d), x, d, b, s, d)
        else:
            y = "%s(%s:transpose(1, 2)):transpose(1, 2)" % (self.field("bn", "nn.BatchNorm(%d)" % d), x)
        return self.linear(self.activation(y), d, d)

    def looked_up(self, x):
        self.about.append("lookup")
        table = self.field("table", "nn.Embedding(%d, %d, { init = nn.init.normal(0, 0.3)%s })" % (self.g.vocab, self.d, ", sparse = true" if self.g.sparse and not self.g.twice else ""))
        return "%s * nn.sigmoid(%s(tokens))" % (self.linear(x, self.d, self.d), table)

    def body(self):
        r = self.r
        kinds = [self.attention] * 5 + [self.gated] * 3 + [self.mlp] * 3 + [self.chain] * 3 + [self.tokens_mixed, self.experts, self.reductions, self.pieces, self.grouped, self.looked_up]
        if self.g.batch_norm:
            kinds += [self.batch_normed] * 2
        if self.g.kinds == "wide":
            kinds = [self.wide]
        if self.g.kinds == "many":
            kinds = [self.narrow_attention, self.narrow_attention, self.gated, self.chain, self.reductions, self.pieces, self.grouped, self.experts] + [self.batch_normed] * self.g.batch_norm
        x = "x"
        for _ in range(r.choice([1, 1, 2]) if self.g.kinds != "wide" else 1):
            y = self.let(self.norm(x, self.d), "n")
            y = self.let(r.choice(kinds)(y), "y")
            if self.g.dropout and r.random() < 0.3:
                y = self.let("nn.dropout(%s, %g)" % (y, self.g.dropout), "y")
            way = r.random()
            if way < 0.6:
                x = self.let("%s + %s" % (x, y), "x")
            elif way < 0.7:
                x = self.let("%s + %s * %s" % (x, y, self.vector(self.d)), "x")
            elif way < 0.8:
                x = self.let("%s * 0.7 + %s" % (x, y), "x")
            elif way < 0.9:
                x = self.let(self.norm("(%s + %s)" % (x, y), self.d, ("layer", "rms")), "x")
            else:
                x = self.let("%s + nn.sum(%s * 0.5, -1, true) * %s" % (x, y, self.vector(self.d, 0.1)), "x")
        return x

    def text(self, kind):
        last = self.body()
        inner = ["    " + line for line in self.lines]
        if self.r.random() < 0.25:  # half of it is computed again, where the policy says so
            self.about.append("nn.checkpoint")
            inner = ["    local function part(x)"] + ["  " + line for line in inner] + ["      return %s" % last, "    end",
                     "    if again[o.v + 1] then return nn.checkpoint(part, x) end", "    return part(x)"]
        else:
            inner.append("    return %s" % last)
        return "local function %s()\n  local m = nn.module \"%s\"\n%s\n  function m:forward(x, tokens, documents)\n%s\n  end\n  return m\nend\n" % (
            kind, kind, "\n".join("  " + f for f in self.fields), "\n".join(inner))


class Model:
    def __init__(self, seed):
        self.seed = seed
        r = self.r = random.Random(seed)
        self.world = 2 if r.random() < 0.12 else 1
        self.precision = r.choice(["fp32", "fp32", "fp32", "bf16", "bf16", "bf16", "fp16"])
        self.b = r.choice([1, 2, 2, 3, 4])
        self.s = r.choice([r.randint(2, 40), r.randint(2, 90), 16, 32, 64, 65, 70, r.randint(64, 140)])
        self.d = r.choice([r.randint(5, 80), 8 * r.randint(1, 16), 16 * r.randint(1, 8), 32, 64, 128])
        self.vocab = r.choice([r.randint(TOKENS, 400), 64, 256, 257, 1000])
        if r.random() < 0.08:  # rows of the loss that are held
            self.vocab, self.d = 8 * r.randint(2040, 2600) + r.choice([0, 0, 1]), r.choice([16, 24, 32, r.randint(5, 40)])
        self.replicas = self.world == 2 and r.random() < 0.25
        self.dropout = r.choice([0, 0, 0.1, 0.3])
        self.accumulate = r.choice([1, 1, 1, 2])
        self.sparse = r.random() < 0.15
        self.batch_norm = r.random() < 0.15
        self.scaler = self.precision == "fp16"
        self.features = r.choice([0, 0, 0, 0, r.randint(1, 40)])  # of an input of floating point; then records are read, no files
        self.repeats = r.random() > 0.06                         # deterministic
        self.kinds, self.steps = "any", 4
        if seed % 40 == 20:
            self.large()
        if seed % 40 == 10:
            self.many()
        self.text = self.make()

    def large(self):
        """Products of a size that a kernel of our own takes."""
        r = self.r
        self.world, self.precision, self.b, self.s, self.d, self.vocab, self.accumulate, self.sparse, self.scaler = 1, "bf16", 16, 512, r.choice([704, 768]), 64, 1, False, False
        self.kinds, self.features, self.replicas, self.batch_norm, self.steps = "wide", 0, False, False, 1  # the CPU takes long

    def many(self):
        """More rows, and heads, than a grid has blocks in its second dimension."""
        r = self.r
        self.world, self.b, self.s, self.d, self.vocab = 1, r.choice([9000, 17000]), r.randint(4, 6), r.randint(4, 16), TOKENS
        self.kinds, self.features = "many", 0

    def mp(self, root=False):
        r, policy = self.r, {"param_dtype": self.precision}
        if self.precision != "fp32":
            policy["reduce_dtype"] = r.choice(["fp32", "fp32", self.precision])
            if policy["reduce_dtype"] == "fp32" and r.random() < 0.3:
                policy["grad_dtype"] = self.precision
            if root and r.random() < 0.4:
                policy["output_dtype"] = r.choice(["fp32", self.precision])
        return policy

    def policies(self, units):
        """Lists of options, one a variant: of fully_shard and checkpoint_wrapper of each unit."""
        r, out = self.r, []
        for v in range(VARIANTS):
            wrap, shard = [], []
            for _ in range(units):
                w = {}
                if v:
                    w = r.choice([{}, {"recompute": True}, {"recompute": True}, {"recompute": True, "save": r.sample(["matmul", "attention", "gelu", "fused", "rms_norm", "layer_norm", "Linear"], r.randint(1, 3))},
                                  {"recompute": False, "offload": ["input"]}, {"recompute": False, "offload": ["*"]}, {"recompute": True, "offload": ["input"]}])
                wrap.append(w)
                s = {"mesh": {"shard": 1}} if self.replicas else {}
                if v:
                    s["reshard_after_forward"] = r.random() < 0.5
                    s["prefetch"] = {"forward": r.randint(0, 3), "backward": r.randint(0, 3)}
                    if self.accumulate > 1 and r.random() < 0.4 and not self.sparse:
                        s["reshard_after_backward"] = s["reshard_after_forward"] = False
                    if r.random() < 0.35:
                        s["offload"] = r.choice([{"params": True, "grads": True, "optimizer": "host"}, {"params": True, "optimizer": True}, {"optimizer": "stream"}, {"grads": True}, {"optimizer": "host"}, {"params": True}])
                shard.append(s)
            out.append((wrap, shard))
        return out

    def make(self):
        r = self.r
        count = r.choice([1, 2, 2, 3, 4])
        self.twice = r.random() < 0.25  # a block is called again
        if self.kinds != "any":
            count, self.twice = 1 if self.steps == 1 else min(count, 2), False
        blocks = [Block(self, self.d) for _ in range(count)]
        texts = [b.text("Block%d" % k) for k, b in enumerate(blocks)]
        self.about = ["; ".join(b.about) for b in blocks]
        calls = list(range(count))
        if self.twice:
            calls.append(r.randrange(count))
        units = [k for k in range(count) if r.random() < 0.75]
        program = [self.mp() for _ in units] + [self.mp(True)]
        variants = self.policies(len(units) + 1)
        tied = not self.sparse and r.random() < 0.4
        head = Block(self, self.d)
        final = head.norm("x", self.d)
        logits = "self.head(%s)" % final if tied else head.linear(final, self.d, self.vocab)
        top = ["local m = nn.module \"Net\"", "m.embed = nn.Embedding(%d, %d, { init = nn.init.normal(0, %g)%s })" % (self.vocab, self.d, 0.1 if tied else 0.5, ", sparse = true" if self.sparse else "")]
        positions = r.choice(["table", "vector", "none"])
        if positions == "table":
            top.append("m.place = nn.Embedding(%d, %d, { init = nn.init.normal(0, 0.1) })" % (self.s, self.d))
        elif positions == "vector":
            top.append("m.place = nn.parameter({ %d, %d }, { init = nn.init.normal(0, 0.1) })" % (self.s, self.d))
        top.append("m.blocks = nn.list { %s }" % ", ".join("Block%d()" % k for k in range(count)))
        if tied:
            top += ["m.head = nn.Linear(%d, %d, { bias = false })" % (self.d, self.vocab), "m.head.weight = m.embed.weight"]
        if r.random() < 0.2:
            top.append("m.idle = nn.parameter({ 7 })")
        top += head.fields
        forward = ["local documents = nn.cast(nn.lt(tokens, %d), \"int32\")" % r.randint(3, TOKENS), "local x = self.embed(tokens)"]
        if self.features:
            top.append("m.feed = nn.Linear(%d, %d)" % (self.features, self.d))
            forward.append("x = x + self.feed(features)")
        forward += {"table": ["x = x + self.place(nn.arange(%d))" % self.s], "vector": ["x = x + self.place"], "none": []}[positions]
        if self.dropout and r.random() < 0.5:
            forward.append("x = nn.dropout(x, %g)" % self.dropout)
        forward += ["x = self.blocks[%d](x, tokens, documents)" % (k + 1) for k in calls] + head.lines + ["return " + logits]
        if count > 1 and r.random() < 0.1:
            top.append("nn.freeze(m.blocks[%d])" % r.randint(1, count))
        lines = ["local nn, optim = require \"nn\", require \"optim\"", "local o = nn.options { v = 0 }", "local again = %s" % lua([False, r.random() < 0.7, r.random() < 0.7]), "", *texts, *top,
                 "function m:forward(tokens, features)", *["  " + f for f in forward], "end", ""]
        lines += ["local wrap = ({ %s })[o.v + 1]" % ", ".join(lua(w) for w, _ in variants), "local shard = ({ %s })[o.v + 1]" % ", ".join(lua(s) for _, s in variants)]
        for place, k in enumerate(units + [-1]):
            module = "m.blocks[%d]" % (k + 1) if k >= 0 else "m"
            lines.append("shard[%d].mp_policy = %s" % (place + 1, lua(program[place])))
            if k >= 0:
                lines.append("if next(wrap[%d]) then nn.checkpoint_wrapper(%s, wrap[%d]) end" % (place + 1, module, place + 1))
            lines.append("nn.fully_shard(%s, shard[%d])" % (module, place + 1))
        return "\n".join(lines + self.training()) + "\n"

    def training(self):
        r = self.r
        ignore = r.random() < 0.25
        loss = "nn.cross_entropy(y, b.targets%s)" % (", { ignore_index = %d }" % r.randint(0, 9) if ignore else "")
        before = ["local y = m(b.tokens, b.features)" if self.features else "local y = m(b.tokens)"]
        way = r.random()
        if way < 0.15:
            loss += " + 0.01 * nn.mean(nn.pow(nn.log(nn.sum(nn.exp(nn.cast(y, \"fp32\")), -1)), 2))"
        elif way < 0.25:
            loss = "nn.mean(nn.sum(nn.cast(nn.eq(b.targets:unsqueeze(-1), nn.arange(%d)), \"fp32\") * nn.log(nn.softmax(nn.cast(y, \"fp32\")) + 1e-6), -1)) * -1" % self.vocab
        elif self.features and way < 0.6:
            loss = "nn.mse_loss(nn.cast(y:slice(-1, 0, %d), \"fp32\"), b.features)" % self.features
        elif way < 0.35:
            before.append("nn.log_metric(\"size\", nn.mean(nn.cast(y * y, \"fp32\")))")
        options = {"lr": 1e-3, "weight_decay": r.choice([0, 0.1])}
        kind = r.choice(["AdamW", "AdamW", "Adam", "SGD"])
        if kind == "SGD":
            options["lr"] = 0.05
            if r.random() < 0.6:
                options["momentum"] = 0.9
                options["nesterov"] = r.random() < 0.5
        else:
            options["eps"] = 1e-6
        if r.random() < 0.2 and (kind != "SGD" or "momentum" in options):
            options["moment_dtype"] = "bf16"
        if r.random() < 0.4:
            options["groups"] = [{"match": ["embed.*"], "weight_decay": 0, "lr": options["lr"] / 2}]
        self.clip = r.choice([0, 0.1, 1.0])
        shape = "{ %d, %d }" % (self.b, self.s)
        files = ("", "") if self.features else (", { from = \"tokens\" }", ", { from = \"tokens\", shift = 1 }")
        out = ["", "return nn.training {", "  model = m,", "  batch = {", "    tokens = nn.input(\"int32\", %s%s)," % (shape, files[0]), "    targets = nn.input(\"int32\", %s%s)," % (shape, files[1])]
        if self.features:
            out.append("    features = nn.input(\"fp32\", { %d, %d, %d })," % (self.b, self.s, self.features))
        out += ["  },",
               "  loss = function(m, b)", *["    " + b for b in before], "    return " + loss, "  end,", "  optimizer = optim.%s %s," % (kind, lua(options))]
        if not self.repeats:
            out.append("  deterministic = false,")
        if self.clip:
            out.append("  clip_grad_norm = %g," % self.clip)
        if self.accumulate > 1:
            out.append("  accumulate = %d," % self.accumulate)
        if self.scaler:
            out.append("  grad_scaler = optim.GradScaler { init_scale = 64 },")
        return out + ["}"]

    def title(self):
        return "seed %d world %d %s b%d s%d d%d v%d%s%s%s: %s" % (self.seed, self.world, self.precision, self.b, self.s, self.d, self.vocab, " drop" if self.dropout else "", " acc" if self.accumulate > 1 else "",
                                                               " sparse" if self.sparse else "" + (" records" if self.features else "") + ("" if self.repeats else " fast"), " | ".join(self.about))


if __name__ == "__main__":
    import sys
    for seed in sys.argv[1:]:
        print("-- " + Model(int(seed)).title())
        print(Model(int(seed)).text)
