"""The GPU benchmark and the GPU tests where there is no GPU: workloads are predicted, the trace reader counts right, tables hold what was
measured, cases have names of their own.

Relies on: harness.py, bench/{workloads,cupti_report,gpu,times}.py, tests/gpu/run.py. Relied on by: run.py."""
import json
import os
import re
import sys

from harness import ROOT, check, command, must, scratch, shardc

sys.path.append(os.path.join(ROOT, "bench"))
import cupti_report  # noqa: E402
import workloads  # noqa: E402


def test_every_row_is_predicted_to_fit():
    for name in workloads.ROWS:
        w = workloads.workload(name)
        p = json.loads(shardc("predict", os.path.join(ROOT, "models", w.shape.file), "--world", str(w.world), *w.settings(), "--device", "h200", "--format", "json"))
        ratio = p["model_flops"] / (w.flops() * w.tokens)
        check(p["prediction"]["fits"], "%s does not fit an h200" % name)
        check(p["tokens_per_step"] == w.tokens * w.world and 0.9 < ratio < 1.1, "%s: %d tokens, flops %.3f of the usual count" % (name, p["tokens_per_step"], ratio))
    return "%d workloads" % len(workloads.ROWS)


def test_unknown_workloads_are_refused():
    for name in ("gpt2-124m", "gpt5-1x1x1", "gpt2-124m-1x64x1024-fast"):
        rc, _, err = command([sys.executable, os.path.join(ROOT, "bench", "gpu.py"), "run", name])
        check(rc == 1 and "'%s' is no workload" % name in err and "gpt2-124m" in err, "exit %d: %s" % (rc, err))


# Notes what it is called with; as `predict` it answers.
STUB = """#!/usr/bin/env python3
import json, sys
with open(%r, "a") as f:
    f.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "build":
    open(sys.argv[sys.argv.index("-o") + 1], "w").close()
else:
    print(json.dumps({"prediction": {"arena_bytes": 1, "step_us": 1}}))
"""


def test_a_workload_has_one_plan():
    """gpu.py predicts with the program that it has built, for the device that it was told; times.py judges no program by another's plan."""
    folder = scratch("one-plan")
    calls, stub, made = os.path.join(folder, "calls"), os.path.join(folder, "shardc"), os.path.join(folder, "made")
    with open(stub, "w") as f:
        f.write(STUB % calls)
    os.chmod(stub, 0o755)
    name = "gpt2-124m-1x2x64"
    must([sys.executable, os.path.join(ROOT, "bench", "gpu.py"), "build", "--shardc", stub, "--device", "a100", "--arch", "sm_80", "-o", made, name])
    built, told = [json.loads(line) for line in open(calls)]
    check(built[0] == "build" and built[built.index("--device") + 1] == "a100" and built[built.index("--arch") + 1] == "sm_80", "built with %s" % built)
    check(told == ["predict", os.path.join(made, name), "--format", "json"], "predicted with %s" % told)
    steps = os.path.join(folder, "steps.json")
    with open(steps, "w") as f:
        json.dump({"fit": [], "judge": [name], "runs": {name: {"device": "a100", "median": 1.0}}}, f)
    rc, _, err = command([sys.executable, os.path.join(ROOT, "bench", "times.py"), "judge", "--device", "h100", steps])
    check(rc == 1 and "%s was built for a100" % name in err, "exit %d: %s" % (rc, err))


def test_attention_is_listed_and_merged_by_its_kernel():
    """Attention of a profile's sizes is listed by what computes it today; what was measured of it stands beside the old points."""
    folder, times = scratch("attention"), [sys.executable, os.path.join(ROOT, "bench", "times.py")]
    profile, tasks, raw = (os.path.join(folder, n) for n in ("mine.lua", "tasks", "raw"))
    rows = {"attention": ["bf16 own causal window", 6444548096, 16908288, 1, 16, 16, 2048, 1024, 64, 42.81], "attention_grad": ["bf16 causal", 1610612736, 9449472, 1, 12, 12, 512, 512, 64, 30.51]}
    with open(profile, "w") as f:
        with open(os.path.join(ROOT, "compiler", "devices", "h100.lua")) as h100:
            f.write(h100.read().split("  kernels = {")[0] + "  kernels = { -- points\n")
        f.writelines('    %s = {\n      { "%s", %s },\n    },\n' % (op, x[0], ", ".join(map(str, x[1:]))) for op, x in rows.items())
        f.write("  },\n}\n")
    must([*times, "attention", profile, "--only", "hopper", "-o", tasks])
    with open(tasks) as f:
        found = [line.split("|") for line in f]
    check(sorted(p[:3] for p in found) == sorted([op, "bf16 hopper " + words, sizes] for op in rows for words, sizes in (("causal window", "1,16,16,2048,1024,64"), ("causal", "1,12,12,512,512,64"))), "tasks %s" % found)
    with open(raw, "w") as f:
        f.writelines("kernel %s|%s|%s|%s|%s|20.00|1980\n" % (p[0], p[1], p[2], p[3], p[4]) for p in found)
    with open(profile) as f:
        before = f.read()
    for _ in range(2):  # a second time it replaces what the first has put there
        must([*times, "merge", profile, raw, "--only", "hopper"])
        with open(profile) as f:
            text = f.read()
        check(all('{ "%s", %s }' % (x[0], ", ".join(map(str, x[1:]))) in text for x in rows.values()), "an old point is gone: " + text)
        check(text.count('"bf16 hopper causal", ') == 2 and text.count('"bf16 hopper causal window", ') == 2 and text.split("kernels =")[0] == before.split("kernels =")[0], text)
    options = [x for kv in "seq=2048 heads=16 kv_heads=16 before=1024".split() for x in ("--set", kv)]
    plan = json.loads(shardc("inspect", os.path.join(ROOT, "bench", "attention.lua"), *options, "--device", profile, "--format", "json"))
    us = {e["op"]: e["duration_us"] for p in plan["programs"] if p["name"] == "micro" for e in p["events"]}
    check(20 <= us["attention"] <= us["attention_grad"] < 30 and not [e for e in plan["prediction"]["estimates"] if e["op"].startswith("attention")], "%s, %s" % (us, plan["prediction"]["estimates"]))


def test_fp8_is_listed_and_merged_by_another_gpu():
    """Products in fp8, absmax and quantize of a workload are listed; what one H200 took stands in the H100's profile as the H100's bandwidth makes
    of it, and then nothing of them is estimated."""
    folder, times, name = scratch("fp8-times"), [sys.executable, os.path.join(ROOT, "bench", "times.py")], "gpt2-124m-1x16x1024-fp8"
    profile, tasks, raw = (os.path.join(folder, n) for n in ("mine.lua", "tasks", "raw"))
    h200 = os.path.join(ROOT, "compiler", "devices", "h200.lua")
    with open(profile, "w") as f:
        with open(os.path.join(ROOT, "compiler", "devices", "h100.lua")) as h100:
            f.write(re.sub("  fp8_source = .*\n", "", h100.read().split("  kernels = {")[0]) + "  kernels = { -- points\n  },\n}\n")
    must([*times, "tasks", name, "--only", "fp8|absmax|quantize", "-o", tasks])
    with open(tasks) as f:
        found = [line.split("|") for line in f]
    kinds = {"%s %s" % (p[0], p[1]) for p in found}
    check({"absmax ", "quantize ", "quantize turn", "quantize both", "matmul fp8_e4m3>bf16 nt", "matmul fp8_e5m2*fp8_e4m3>bf16 nt", "matmul fp8_e4m3*fp8_e5m2>fp32 nt"} <= kinds, "kinds %s" % kinds)
    check(not [k for k in kinds if not re.search("fp8|absmax|quantize", k)], "kinds %s" % kinds)
    took = {p[0] + p[1] + p[2] + p[4]: (float(p[3]) / 1e15 + float(p[4]) / 4e12) * 1e6 + 10 for p in found}  # at the highest clock
    with open(raw, "w") as f:
        f.writelines("kernel %s|%s|%s|%s|%s|%.2f|1980\n" % (*p[:5], took[p[0] + p[1] + p[2] + p[4]]) for p in found)
        # Products that follow themselves: (700 - 204) W are what their FLOPs draw, of which a GPU's take 1.1 times the profile's, and their bytes.
        for variant, size, pj, mhz in (("bf16 nt", 3 << 27, 0.897, 1400), ("fp8_e4m3>bf16 nt", 1 << 28, 0.6, 1300), ("fp8_e5m2*fp8_e4m3>bf16 nt", 1 << 28, 0.55, 1350)):
            drawn = 1.1e-12 * pj * 2 * 8192**3 * (mhz / 1980) ** 0.9 + 108e-12 * 3.01 / 4.137 * size
            f.write("sustained %s|%d|%d|%.2f|%d\n" % (variant, 2 * 8192**3, size, drawn / 496 * 1e6, mhz))
    for _ in range(2):
        must([*times, "merge", profile, raw, "--only", "fp8|absmax|quantize", "--measured-on", h200, "--fp8-source", "measured on some H200"])
    with open(profile) as f:
        text = f.read()
    check("flop = { bf16 = 0.897e-12, fp16 = 0.897e-12, fp8_e4m3 = 0.600e-12, fp8_e5m2 = 0.550e-12, fp32 = 8.55e-12 },\n" in text, text[:3000])
    check(text.count("fp8_source") == 1 and text.count("quantize = {") == 1 and text.count("absmax = {") == 1, text[:3000])
    w = workloads.workload(name)
    model = [os.path.join(ROOT, "models", w.shape.file), *w.settings(), "--device", profile]
    plan = json.loads(shardc("inspect", *model, "--format", "json"))
    p = plan["prediction"]
    check(not [e for e in p["estimates"] if re.search("fp8|absmax|quantize", e["op"] + e["variant"])], "estimates %s" % p["estimates"])
    check(re.match(r"\d+ events, by kernels measured on some H200; the peak is 1979 TFLOP/s \(NVIDIA's", p["fp8"]), p["fp8"])
    bandwidth, curves = {"h100": 3.01e12, "h200": 4.137e12}, 0
    listed = {e: t for t in found for e in t[9].split()}
    for e in (e for p in plan["programs"] if p["name"] == "micro" for e in p["events"]):
        t = listed.get("micro:" + e["id"])
        if not t or t[2] or float(t[4]) < 80 << 20:  # products also slow down as the clock falls
            continue
        here = 1.04 + (took[t[0] + t[1] + t[4]] - 1.04) * bandwidth["h200"] / bandwidth["h100"]
        check(abs(e["duration_us"] / here - 1) < 0.05, "%s %s of %s B: %.2f us, not %.2f" % (*t[:2], t[4], e["duration_us"], here))
        curves += 1
    check(curves > 20, "%d kernels were compared" % curves)
    for variant, sizes, us in re.findall(r'\{ "(fp8[^"]*)", ([\d, ]+), ([\d.]+) \}', text):
        flops, size, *key = map(int, sizes.split(", "))
        line = {g: max(flops / 1979e12, size / bandwidth[g]) * 1e6 + 6 for g in bandwidth}
        here = took["matmul" + variant + ",".join(map(str, key)) + str(size)] * line["h100"] / line["h200"]
        check(abs(float(us) / here - 1) < 1e-3, "%s %s: %s us, not %.2f" % (variant, key, us, here))


def test_the_trace_counts_overlap_and_gaps():
    """Two launches of a graph: 100 us of compute, communication from 60 to 160 us, nothing from 160 to 170, compute to 180."""
    path = os.path.join(scratch("trace"), "trace.1")
    kernel = "kernel\t%d\t%d\t0\t%d\t7\t%d\t%d\t1x1x1\t32x1x1\t16\t0\t%s\n"
    with open(path, "w") as f:
        f.write("event\t0\tmicro\te1\tmatmul\tforward\th.0.mlp\t9\nevent\t1\tmicro\tg1f\tall_gather\tforward\th.1\t0\nevent\t2\tmicro\te2\tmatmul\tforward\th.1.mlp\t9\n")
        f.write("".join("node\t6\t%d\tmicro\nclone\t6\t%d\tmicro\n" % (n - 10, n) for n in (11, 12, 13)))
        for launch in (1, 2):
            t = launch * 1000000
            f.write(kernel % (t, t + 100000, 1, 11, launch, "nvjet_a") + kernel % (t + 60000, t + 160000, 2, 12, launch, "ncclDevKernel")
                    + kernel % (t + 170000, t + 180000, 1, 13, launch, "nvjet_a"))
    text, found = cupti_report.report(path, skip=0)
    expected = {"span": 0.18, "compute": 0.11, "communication": 0.1, "exposed": 0.06, "idle": 0.01}
    check(all(abs(found["ms"][k] - v) < 1e-9 for k, v in expected.items()), "found %s" % found["ms"])
    check(not cupti_report.plausible([r for r in cupti_report.read(path).records if "nvjet" in r.name], {11: cupti_report.read(path).events[12]}), "products in a gather")
    check(abs(found["classes"]["matmul"] - 0.11) < 1e-9 and "all_gather  forward  h.*" in text and "matmul  forward  h.*.mlp" in text, text)


def test_the_trace_counts_time_once():
    """Two kernels at a time have half of it each; a copy what no kernel covers; communication all of its own."""
    def record(kind, start, end, name):
        return cupti_report.Record(kind, start, end, 0, 1, 7, start + 1, 1, "1x1x1", "32x1x1", 16, 0, name)
    step = [record("kernel", 0, 100, "fmha"), record("kernel", 50, 150, "nvjet_a"), record("copy", 0, 200, "DtoH"), record("kernel", 10, 310, "ncclDevKernel"),
            record("kernel", 20, 20, "nvjet_a")]
    check(cupti_report.shares(step) == [75, 75, 50, 300, 0], "counted %s" % cupti_report.shares(step))
    check(cupti_report.class_of("_ZN69_GLOBAL__N__1_28_k_cross_entropy_held_cu_1_220held_losses_and_gradsE") == "loss", "a kernel of ours has no class")


def test_tables_join_runs():
    folder = scratch("tables")
    first, second = (os.path.join(folder, n) for n in ("1.json", "2.json"))
    with open(first, "w") as f:
        json.dump({"gpt2-124m-1x64x1024": {"ours": [{"tok_s": 600.0, "ms": 2.0, "arena_predicted": 1 << 20, "arena_allocated": 1 << 20}, {"failed": "exit 3"}]}}, f)
    with open(second, "w") as f:
        figures = {"ms": {"span": 2.1, "compute": 1.8, "communication": 0.5, "exposed": 0.2, "idle": 0.1}, "classes": {"matmul": 1.1, "attention": 0.5, "communication": 0.5}}
        json.dump({"gpt2-124m-1x64x1024": {"torch": [{"tok_s": 500.0, "ms": 2.4, "active": 3 << 20}], "floor": [{"tok_s": 800.0, "ms": 1.5, "products_ms": 1.0}],
                                           "profile": [figures]}}, f)
    out = must([sys.executable, os.path.join(ROOT, "bench", "gpu.py"), "table", first, second])
    check("| gpt2-124m-1x64x1024 | 600 | 500 | 1.200 | 800 | 0.750 | 0.625 | 2.00 | - |" in out, out)
    check("| gpt2-124m-1x64x1024 | 1 | 1 | - | - | - | 3 | - | - |" in out, out)
    nothing = "0.00 | " * 8
    check("| gpt2-124m-1x64x1024 | 2.10 | 1.10 | 0.50 | %s0.20 | 0.30 | 0.20 | 0.10 |" % nothing in out, out)  # where the step is
    check("| gpt2-124m-1x64x1024 | 0.60 | 0.10 | 0.00 | %s0.20 | 0.20 | 0.10 |" % nothing in out, out)  # and its gap to the floor


def test_cases_for_gpus_have_names_of_their_own():
    lines = must([sys.executable, os.path.join(ROOT, "tests", "gpu", "run.py"), "--list", "--build", scratch("cases")]).split("\n")[:-1]
    cases = dict(line.split(" ") for line in lines)
    check(len(lines) == len(cases) > 80 and set(cases.values()) == {"1", "2", "4"}, "%d lines, %d names" % (len(lines), len(cases)))
    return "%d cases" % len(cases)


def test_memory_rows_want_a_build():
    folder = scratch("memory-rows")
    rc, _, err = command([sys.executable, os.path.join(ROOT, "bench", "memory_rows.py"), "run", "--build", folder])
    check(rc == 1 and re.fullmatch(r"memory_rows\.py: %s/plans\.json: No such file or directory; make the folder by `memory_rows\.py build -o %s`, or .*\n" % (re.escape(folder), re.escape(folder)), err), "exit %d: %s" % (rc, err))


def test_memory_rows_have_twins():
    """Each of our cases is one that torch_memory.py knows, unless it is another's with the unit on the wrapper."""
    import memory_rows
    from test_rows_memory import CASES
    with open(os.path.join(ROOT, "bench", "torch_memory.py")) as f:
        known = set(re.findall(r'"(\w+)": \w+[,}]', re.search(r"^MODELS = .*$", f.read(), re.M).group(0)))
    twins = {name: memory_rows.torch_case(name, options) for name, _, options, _ in CASES if "wrapper" not in options}
    check(len(twins) == 7 and {t[1] for t in twins.values()} == known, "%s, known are %s" % (twins, known))
    check({tuple(t[2:]) for t in twins.values() if t[1] == "mlp"} == {(True, True), (True, False), (False, True), (False, False)}, "grid: %s" % twins)
    check(all(name.split(", unit")[0] in twins for name, _, _, _ in CASES), "a case has no twin")
