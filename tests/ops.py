"""Ops, their fields and their names in the compiler: no field is read through another op's name, no pass names an op without a reason.

An access to a field of op X (op->X.field, SLOT(X, field), OpParts {.X = ...}) is right where the op is known to be X:
  - every row of ops.def, pattern or caller that reaches the function is X's;
  - or the statement, or the head of a block around it, names X (OP_X, BUILD(b, X, ...), UNIT_OP(g, X, ...), .X = {...}); a case label only
    where it is the only one of its statement;
  - or an earlier statement of such a block does, and the variable too: an assignment, a flag (bool x = op->kind == OP_X) that the statement
    asks, or an `if` that leaves where the kind is another. A function that returns false for all but X says as much as OP_X.
Elsewhere, where rows share a name, INT_OF(op, comm) and its sisters find it by the op's own row; each row that a rule serves must have it.
What a condition says is not understood: a test of X for one branch counts for the whole statement.

Relies on: cc (which expands ops.def). Relied on by: lint.sh, which prints what this says. With --count: which ops are named, and where."""
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compiler")

# Accesses that are right, and which this does not see: file, function, op: why.
KNOWN = {
    ("extension/check.c", "check_custom", "custom"): "the traced programs have no other foreign op",
    ("lower/qkv_fusion.c", "fused_heads", "rope"): "Branch.rope is one, or NULL",
    ("lower/qkv_fusion.c", "same_attention", "rope"): "Branch.rope is one, or NULL",
}

# Passes that ask for an op by its name: how often a file does, and why no trait does instead. Rules (ir/rules_*.c) are about certain ops.
# A new one needs a reason here; where there are fewer, lower the number.
NAMED = {
    "ir/constant.c": (23, "computes what each of these computes, in integers"),
    "ir/ops.c": (2, "answers for all who ask: a cast that changes nothing, a reshape that needs a copy"),
    "ir/patterns.c": (1, "a table of which ops one kernel serves, by their names"),
    "ir/unproven.c": (5, "says what weights of attention, rope and norms do not show"),
    "lower/accumulate.c": (3, "is about the gradients of logits"),
    "lower/chunks.c": (4, "is about losses of logits, and which of two products an add is fused with"),
    "lower/concat_in_place.c": (1, "is about concat"),
    "lower/narrow.c": (4, "is about what quantize and absmax read"),
    "lower/qkv_fusion.c": (3, "is about matmul, rope and attention"),
    "lower/quantize_fusion.c": (9, "is about what absmax and quantize read, and which matmul makes it"),
    "lower/recompute.c": (1, "finds the results of a product that quantizes by the name matmul"),
    "lower/shard/assign.c": (2, "nn.assign traces stores; the first program of a step overwrites, and a skipped step writes nothing"),
    "lower/shard/narrow.c": (1, "is about what quantize and absmax read"),
    "lower/shard/shard.c": (1, "nn.log_metric traces stores; the first program of a step overwrites"),
    "lower/shard/sparse.c": (1, "takes the rows that embedding_grad would sum"),
    "schedule/storages.c": (1, "a store reads what it adds to, and touches a part of the state"),
}

# What this must find, whatever becomes of it: the number of puns.
PLANTED = 5, """
static void planted(Op *op, OpParts *d) {
    bool layer = op->kind == OP_layer_norm;
    op->batch_norm.keep_running = true;
    if (op->kind == OP_cast) d = NULL;
    op->cast.dtype = op->layer_norm.eps > 0;
    switch (op->kind) {
    case OP_sum:
    case OP_mean: op->sum.over = 0; break;
    case OP_max: op->max.over = 0; break;
    default: INT_OF(op, dtyp) = layer ? 0 : op->layer_norm.eps > 0;
    }
}
"""

FIELDS = {"RESULT": 0, "OPERAND": 1, "SLOT": 1, "INT": 2, "FLOAT": 3}
DUMP = """
#define RESULT(name, flags) name
#define RESULTS(name, n) name
#define OPERAND(name, flags) name
#define OPERANDS(name, n) name
#define FLAG(name) name
#define INT(name) name
#define ENUM(name, type) name
#define FLAGS(name, type) name
#define AXIS(name) name
#define NUMBERS(name) name
#define DTYPE(name) name
#define WIDER(name) name
#define SIZES(dims, sizes) dims sizes
#define INTS(name, n) name
#define HINT(name) name
#define HINT_FLAG(name) name
#define FLOAT(name) name
#define FLOATS(name, n) name
#define TRAITS(t)
#define INFER(f) rule f
#define GRAD(f) rule f
#define COST(f) rule f
#define WORKSPACE(f) rule f
#define LIMIT(f) rule f
#define EXPR(text)
#define TIMED_AS(op)
#define OP(name, notation, results, operands, integers, floats, ...) @name|results|operands|integers|floats|__VA_ARGS__
#include "schema/ops.def"
"""
CONTROL = {"if", "for", "while", "switch"}
LEAVES = re.compile(r"\b(return|continue|break|goto|fail|bug|rule_fail)\b")


def rows():
    """Of each op its fields (sets of names: results, operands, integers, floats); of each rule the ops whose rows name it."""
    text = subprocess.run([os.environ.get("CC", "cc"), "-E", "-P", "-x", "c", "-I" + os.path.join(os.path.dirname(ROOT), "runtime"), "-"],
                          input=DUMP, capture_output=True, text=True, check=True).stdout
    ops, rules = {}, collections.defaultdict(set)
    for row in re.sub(r'"(\\.|[^"\\])*"', "", text).split("@")[1:]:
        name, *fields, columns = row.split("|", 5)
        ops[name.strip()] = [set(f.split()) for f in fields]
        for rule in re.findall(r"\brule (\w+)", columns):
            rules[rule].add(name.strip())
    return ops, rules


def blank(text):
    """Comments and strings are blanks of the same length."""
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


class Statement:
    """A statement or the head of a block, of text[begin:end]; before: statements that have been done when it is reached, innermost last."""
    def __init__(self, text, begin, before, heads):
        self.text, self.begin, self.end, self.before, self.heads = text, begin, begin, before, heads

    def __str__(self):
        return self.text[self.begin:self.end]


def opens_block(text, begin, at):
    """Does the brace at `at` of a statement that begins at `begin` open a block, and no initializer?"""
    head = text[begin:at].rstrip()
    if not head.strip() or re.search(r"(\belse|\bdo|:)$", head):
        return True
    if not head.endswith(")"):
        return False
    depth = 0
    for i in range(len(head) - 1, -1, -1):
        depth += (head[i] == ")") - (head[i] == "(")
        if not depth:
            word = re.search(r"(\w+)\s*$", head[:i])
            return bool(word) and word.group(1) in CONTROL
    return False


def statements(text, at, end):
    """The statements of a function's body."""
    done, blocks, out = [], [], []  # blocks: what stood before each open block
    heads, parens, braces = [], 0, 0
    now = Statement(text, at, [], [])
    for i in range(at, end):
        c = text[i]
        parens += (c == "(") - (c == ")")
        if c == "{" and (braces or parens or not opens_block(text, now.begin, i)):
            braces += 1
        elif c == "}" and braces:
            braces -= 1
        elif parens or braces:
            continue
        elif c in "{;":
            now.end, now.before, now.heads = i + 1, list(done), list(heads)
            out.append(now)
            if c == "{":
                blocks.append(done)
                heads.append(now)
                done = list(done)
            else:
                done = done + [now]
            now = Statement(text, i + 1, [], [])
        elif c == "}":
            done = blocks.pop() if blocks else done
            head = heads.pop() if heads else None
            if head is not None:
                closed = Statement(text, head.begin, head.before, head.heads)
                closed.end = i + 1
                done = done + [closed]
            now = Statement(text, i + 1, [], [])
    return out


LABELS = re.compile(r"(?:\s*(?:case\s+\w+|default)\s*:)+")


def named_in(text):
    """Ops that a piece of code names."""
    return set(re.findall(r"\bOP_([a-z]\w*)", text)) | set(re.findall(r"\b(?:BUILD|UNIT_OP)\(\s*[^,()]+,\s*(\w+)", text)) | \
        set(re.findall(r"[{(,]\s*\.(\w+) = \{", text))


SAYS = {}  # a function that is true or not NULL only for some ops: these


def says(text):
    """Ops for which alone a function that this text calls is true."""
    return set().union(*(SAYS.get(w, ()) for w in re.findall(r"(\w+)\(", text)))


def flags_of(text):
    """Of `bool x = op->kind == OP_y` the x."""
    return re.findall(r"(\w+) = [^,;]*== OP_\w+", text)


def labels_of(statement):
    m = LABELS.match(str(statement))
    return (set(re.findall(r"case\s+OP_(\w+)", m.group())), m.group().count("case") + m.group().count("default")) if m else None


def known_at(statement, words):
    """Ops that one of these variables is known to be where the statement stands."""
    text = str(statement)
    m = LABELS.match(text)
    here = [text[m.end():] if m else text, *(str(h) for h in statement.heads)]
    known = set().union(*(named_in(t) | says(t) for t in here))
    for s in [*statement.before, statement][::-1]:
        labels = labels_of(s)
        if labels:
            known |= labels[0] if labels[1] == 1 else set()
            break
    for s in statement.before:
        t = str(s)
        if not any(re.search(r"\b%s\b" % w, t) for w in words):
            continue
        first = re.match(r"\s*(\w+)", t)
        if first and first.group(1) in CONTROL | {"case", "default", "else"}:
            if LEAVES.search(t):
                known |= set(re.findall(r"!= OP_(\w+)", t)) | says(" ".join(re.findall(r"!\w+\(", t)))
        elif flags_of(t):
            known |= named_in(t) if any(re.search(r"\b%s\b" % f, " ".join(here)) for f in flags_of(t)) else set()
        elif "?" not in t:
            known |= named_in(t)
    return known


class Function:
    def __init__(self, file, name, body):
        self.file, self.name, self.body = file, name, body
        self.sites = []  # (ops that are known there, function that calls it or None)
        self.sure = None  # every op: not yet known


FUNCTION = re.compile(r"^[A-Za-z_][^;{}=#]*?\b(\w+)\([^;{}]*\)[^;{}()]*\{", re.M)


def functions(file, text):
    for m in FUNCTION.finditer(text):
        end = text.find("\n}", m.end())
        one = text.find("}", m.end())
        if "\n" not in text[m.end():one]:
            end = one
        yield Function(file, m.group(1), statements(text, m.end(), end + 1 if end > 0 else len(text)))


def base_of(text, at):
    """The variables of the expression before the arrow or dot at `at`."""
    return re.findall(r"[A-Za-z_]\w*", re.search(r"(?:\w|->|[.\[\]])*$", text[:at]).group())


def main():
    ops, rules = rows()
    texts = {}
    for folder, _, files in sorted(os.walk(ROOT)):
        for f in sorted(files):
            if f.endswith((".c", ".h")):
                path = os.path.join(folder, f)
                texts[os.path.relpath(path, ROOT)] = blank(open(path, encoding="utf-8").read())
    texts["planted.c"] = PLANTED[1]
    found = [f for file, text in texts.items() if re.search(r"\b(Op|OpParts)\b", text) for f in functions(file, text)]
    by_name = collections.defaultdict(list)
    for f in found:
        by_name[f.name].append(f)
        text = " ".join(str(s) for s in f.body)
        is_other = re.findall(r"if \((?:\w+->)?kind != OP_(\w+)(?: \|\| [^;]*)?\) return (?:false|NULL);", text)
        is_this = re.findall(r"(?:^|;)\s*return (?:\w+->)?kind == OP_(\w+)\s*&&", text) if text.count("return") == 1 else []
        if len(is_other + is_this) == 1:
            SAYS[f.name] = set(is_other + is_this)
    for rule, of in rules.items():
        for f in by_name[rule]:
            f.sites += [({op}, None) for op in of]
    for file, text in texts.items():  # tables of patterns
        for row in re.findall(r"\{[^{};]*\}", text):
            named = set(re.findall(r"\bOP_([a-z]\w*)", row))
            for f in (f for w in set(re.findall(r"\w+", row)) if named for f in by_name[w] if f.file == file):
                f.sites.append((named, None))
    for caller in found:
        for s in caller.body:
            for m in re.finditer(r"\b(\w+)\(", str(s)):
                for f in by_name.get(m.group(1), []):
                    args = str(s)[m.end():]
                    f.sites.append((known_at(s, re.findall(r"\w+", args[:args.find(";")])), caller))
    everything = set(ops)
    for f in found:
        f.sure = everything if f.sites else set()
    changed = True
    while changed:
        changed = False
        for f in found:
            sure = set.intersection(*(k | (c.sure if c and c is not f else everything if c else set()) for k, c in f.sites)) if f.sites else set()
            changed |= sure != f.sure
            f.sure = sure
    bad, used = [], set()
    fields = {op: set().union(*parts) for op, parts in ops.items()}
    access = re.compile(r"(?:->|\.)(%s)\.(\w+)|\bSLOT\((\w+), (\w+)\)|[{(,]\s*\.(%s) = \{" % (("|".join(ops),) * 2))
    by_own_row = re.compile(r"\b(RESULT|OPERAND|SLOT|INT|FLOAT)_OF\(\s*\w+,\s*(\w+)\)")
    for f in found:
        for s in f.body:
            for m in access.finditer(str(s)):
                op = m.group(1) or m.group(3) or m.group(5)
                field = m.group(2) or m.group(4)
                if op not in ops or (field and field not in fields[op]):
                    continue
                if m.group(5):
                    known = set(re.findall(r"\bOP_(\w+)", " ".join(str(x) for x in f.body)))
                else:
                    known = f.sure | known_at(s, base_of(s.text, s.begin + m.start()) if m.group(1) else re.findall(r"\w+", str(s)))
                if op in known:
                    continue
                if (f.file, f.name, op) in KNOWN:
                    used.add((f.file, f.name, op))
                    continue
                line = s.text.count("\n", 0, s.begin + m.start()) + 1
                bad.append("compiler/%s:%d: %s reads %s of an op that need be no %s: name OP_%s in the statement, or use INT_OF, OPERAND_OF ..." % (f.file, line, f.name, field or "fields", op, op))
            for m in by_own_row.finditer(str(s)):
                part = FIELDS[m.group(1)]
                lacking = [op for op in sorted(rules.get(f.name, [])) if m.group(2) not in ops[op][part]]
                maybe = s.heads or re.search(r"\?|&&|\bif\b", str(s)) or any("OP_" in str(b) and LEAVES.search(str(b)) for b in s.before)
                if (lacking and not maybe) or not any(m.group(2) in parts[part] for parts in ops.values()):
                    line = s.text.count("\n", 0, s.begin + m.start()) + 1
                    bad.append("compiler/%s:%d: %s: no %s_OF %s in the row of %s" %
                               (f.file, line, f.name, m.group(1), m.group(2), ", ".join(lacking) or "any op"))
    planted = [b for b in bad if "/planted.c:" in b]
    bad = [b for b in bad if b not in planted] + ["tests/ops.py finds %d of %d planted puns" % (len(planted), PLANTED[0])] * (len(planted) != PLANTED[0])
    bad += ["tests/ops.py: KNOWN has %s %s %s, which is not there any more" % k for k in sorted(set(KNOWN) - used)]
    counts = {}
    for file, text in texts.items():
        if re.match(r"ir/rules\w*\.c|planted", file):
            continue
        names = ["".join(n) for n in re.findall(r"(?:\bcase +|[!=]= *)OP_([a-z]\w*)|\[OP_([a-z]\w*)\] =", text)]
        if names:
            counts[file] = names
    if "--count" in sys.argv:
        for file, names in sorted(counts.items()):
            print("%3d compiler/%s: %s" % (len(names), file, " ".join(sorted(set(names)))))
        return 0
    print("%d places in %d files ask for an op by name" % (sum(len(n) for n in counts.values()), len(counts)), file=sys.stderr)
    for file in sorted(set(counts) | set(NAMED)):
        n, want = len(counts.get(file, [])), NAMED.get(file, (0, ""))[0]
        if n > want:
            bad.append("compiler/%s: asks for an op by name %d times, not %d: use a trait of ops.def, or say in tests/ops.py why not" % (file, n, want))
        elif n < want:
            bad.append("compiler/%s: asks for an op by name %d times: lower the %d in tests/ops.py" % (file, n, want))
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
