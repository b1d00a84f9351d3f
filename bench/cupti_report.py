"""Where a step's time goes, from the files that cupti_trace.c writes: by class of kernel, by kernel, what nothing covers.

Relies on: python3's standard library. Relied on by: gpu.py, side profile; by hand: python3 bench/cupti_report.py FILE..."""
import argparse
import collections
import ctypes
import json
import re
import statistics
import sys

FIELDS = ("kind", "start", "end", "device", "stream", "graph", "node", "launch", "grid", "block", "registers", "shared", "name")
Record = collections.namedtuple("Record", FIELDS)
Event = collections.namedtuple("Event", ("program", "id", "op", "phase", "module", "line"))
Trace = collections.namedtuple("Trace", ("records", "events", "lost"))  # events: by node, where the program told them

# first match wins; ours carry the name of their source file (multiply, which is static, its own: k_matmul_hopper.cu)
CLASSES = [("communication", r"nccl"), ("attention", r"k_attention\w*_cu|fmha|flash|cudnn|sdpa|sc_bf16|sc_fp16"),
           ("matmul", r"k_matmul_cu|8multiplyI|gemm|nvjet|cutlass|cublas|splitK"), ("pointwise", r"sc_pointwise_kernel|triton_poi"),
           ("norm", r"k_(batch_)?norm_\w*cu|norm_grads|norm_held"), ("loss", r"k_cross_entropy\w*_cu|k_softmax_cu"), ("optimizer", r"k_optimizer_cu"),
           ("embedding", r"k_embedding_cu"), ("rope", r"k_rope_cu"), ("sums", r"k_reduce_cu|adding"), ("random", r"k_random_cu|k_init_cu"),
           ("copies", r"k_copy_cu|k_fill_cu|memcpy|memset"), ("watchdog", r"mark")]


def class_of(name):
    return next((c for c, pattern in CLASSES if re.search(pattern, name)), "other")


def owners(captured, made):
    """{node: event}. captured: {program: [(nodes before it, event)]}, made: {(program, graph, node or clone): its nodes in order}."""
    events = {}
    for (program, *_), nodes in made.items():
        starts = captured.get(program, [])
        for (first, event), (after, _) in zip(starts, starts[1:] + [(len(nodes), None)]):
            events.update((n, event) for n in nodes[first:after])
    return events


def plausible(records, events):
    """Nodes are told apart by their order alone: matrix products must be found in events that make some."""
    owned = [events[r.node].op for r in records if class_of(r.name) == "matmul" and r.node in events]
    return not owned or sum("matmul" in op for op in owned) >= 0.9 * len(owned)


def read(path):
    """What a file holds; its records in order of their start."""
    records, captured, made, lost = [], collections.defaultdict(list), collections.defaultdict(list), 0
    with open(path) as f:
        for line in f:
            p = line.rstrip("\n").split("\t")
            if p[0] == "lost":
                lost += int(p[1])
            elif p[0] == "event" and len(p) == 8:
                captured[p[2]].append((int(p[1]), Event(*p[2:])))
            elif p[0] in ("node", "clone") and len(p) == 4:
                made[(p[3], int(p[1]), p[0])].append(int(p[2]))
            elif len(p) == len(FIELDS):
                records.append(Record(p[0], *map(int, p[1:8]), *p[8:]))
    records.sort(key=lambda r: r.start)
    events = owners(captured, made)
    return Trace(records, events if plausible(records, events) else {}, lost)


def by_launch(records):
    """The steps: launches of the graph that runs longest in all, each with its records."""
    graphs = collections.defaultdict(list)
    for r in records:
        if r.node:
            graphs[r.graph].append(r)
    if not graphs:
        return []
    graph = max(graphs, key=lambda g: sum(r.end - r.start for r in graphs[g]))
    steps = collections.defaultdict(list)
    for r in graphs[graph]:
        steps[r.launch].append(r)
    return [steps[k] for k in sorted(steps)]


def union(intervals):
    """Sorted, disjoint intervals that cover the same time."""
    out = []
    for s, e in sorted(intervals):
        if out and s <= out[-1][1]:
            out[-1][1] = max(out[-1][1], e)
        else:
            out.append([s, e])
    return out


def length(intervals):
    return sum(e - s for s, e in intervals)


def outside(a, b):
    """Time that the disjoint intervals `a` cover and `b` do not."""
    both = length(union([tuple(i) for i in a] + [tuple(i) for i in b]))
    return both - length(b)


def is_communication(r):
    return class_of(r.name) == "communication" or (r.kind == "copy" and "PtoP" in r.name)


def analyse(step):
    """Times of one step in ns."""
    talk = union([(r.start, r.end) for r in step if is_communication(r)])
    work = union([(r.start, r.end) for r in step if not is_communication(r)])
    start, end = min(r.start for r in step), max(r.end for r in step)
    return {"span": end - start, "compute": length(work), "communication": length(talk), "exposed": outside(talk, work),
            "idle": end - start - length(union([tuple(i) for i in talk + work]))}


def shares(step):
    """What each record of a step counts, in ns, so that those of computation add up to the time that they cover: kernels that run at a time
    have equal parts of it, copies beside none of them likewise; communication counts as long as it runs."""
    counted = [r.end - r.start if is_communication(r) else 0 for r in step]
    ends = sorted((t, begins, i) for i, r in enumerate(step) if r.end > r.start and not is_communication(r)
                  for t, begins in ((r.start, True), (r.end, False)))
    running, since = {"kernel": set(), "other": set()}, 0
    for t, begins, i in ends:
        now = running["kernel"] or running["other"]
        for k in now:
            counted[k] += (t - since) / len(now)
        since, of = t, running["kernel" if step[i].kind == "kernel" else "other"]
        (of.add if begins else of.discard)(i)
    return counted


_demangle = None


def plain(name):
    """A kernel's name without C++ mangling, namespaces and parameter lists."""
    global _demangle
    if name.startswith("_Z"):
        try:
            if _demangle is None:
                _demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
                _demangle.restype = ctypes.c_void_p
            status = ctypes.c_int()
            p = _demangle(name.encode(), None, None, ctypes.byref(status))
            if p:
                name = ctypes.string_at(p).decode()
        except OSError:
            pass
    name = name.replace("(anonymous namespace)::", "").replace("void ", "", 1)
    name = re.sub(r"\((int|bool|unsigned int)\)", "", name)
    return name.split("(")[0] or name


def owner(event):
    """(op, phase, module with its numbers left out)."""
    return event.op, event.phase, re.sub(r"\d+", "*", event.module)


def table(total, rows, top, n):
    """Lines for {key: [ms a step, calls in all]}, the longest first."""
    out = []
    for key, (ms, calls) in sorted(rows.items(), key=lambda x: -x[1][0])[:top]:
        out.append("  %9.3f ms %5.1f %% %7.1f x %8.1f us  %s" % (ms, 100 * ms / total, calls / n, 1e3 * ms * n / calls, "  ".join(key)))
    return out


def report(path, top=30, skip=3):
    """Text about the steps of one file after the first `skip`, and the same as a dict."""
    trace = read(path)
    steps = by_launch(trace.records)
    if not steps:
        return "%s: no graph was launched" % path, None
    steps = steps[skip:-1] or steps
    figures = [analyse(s) for s in steps]
    mean = {k: statistics.mean(f[k] for f in figures) / 1e6 for k in figures[0]}
    n = len(steps)
    kinds, names, events = collections.Counter(), collections.defaultdict(lambda: [0, 0]), collections.defaultdict(lambda: [0, 0])
    for s in steps:
        for r, counts in zip(s, shares(s)):
            ms, event = counts / 1e6 / n, trace.events.get(r.node)
            kind = "communication" if is_communication(r) else class_of(r.name)
            kinds[kind] += ms
            for at in [names[(kind, plain(r.name)[:100], r.grid)]] + ([events[owner(event)]] if event else []):
                at[0] += ms
                at[1] += 1
    span = mean["span"]
    lines = ["step %.3f ms (mean of %d): compute %.3f, communication %.3f of which exposed %.3f, nothing %.3f; %d kernels a step%s"
             % (span, n, mean["compute"], mean["communication"], mean["exposed"], mean["idle"], len(steps[0]),
                "; %d records lost" % trace.lost if trace.lost else "")]
    lines += ["  %9.3f ms %5.1f %%  %s" % (ms, 100 * ms / span, kind) for kind, ms in kinds.most_common()]
    lines += ["by kernel: ms a step, share, calls a step, each; class, kernel, grid"] + table(span, names, top, n)
    if not events:
        lines.append("no table by event: the program told none (LD_PRELOAD), or their order does not fit the kernels'")
    else:
        lines += ["by event: kernels, op, phase, module"] + table(span, events, top, n)
    return "\n".join(lines), {"ms": mean, "classes": dict(kinds), "steps": n, "kernels": len(steps[0])}


def sequence(path, skip=3):
    """One step, a line a kernel: start and duration in us, the gap since all before it ended, stream, name, whose it is."""
    trace = read(path)
    steps = by_launch(trace.records)
    step = steps[min(skip, len(steps) - 1)]
    ended, lines = step[0].start, []
    for r in step:
        e = trace.events.get(r.node)
        lines.append("%10.1f %9.1f %7.1f  s%-4d %-10s %s %s" % ((r.start - step[0].start) / 1e3, (r.end - r.start) / 1e3, (r.start - ended) / 1e3, r.stream,
                                                              e.id if e else "", plain(r.name)[:110], r.grid))
        ended = max(ended, r.end)
    return "\n".join(lines)


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("files", nargs="+")
    a.add_argument("--top", type=int, default=30)
    a.add_argument("--sequence", action="store_true", help="list one step's kernels in order")
    a.add_argument("--json", action="store_true")
    o = a.parse_args()
    for path in o.files:
        if o.sequence:
            print(sequence(path))
            continue
        text, figures = report(path, o.top)
        print(json.dumps(figures) if o.json else text)


if __name__ == "__main__":
    sys.exit(main())
