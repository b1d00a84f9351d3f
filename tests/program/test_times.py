"""What a prediction says of time: counts of model FLOPs, where times come from, steps of several microbatches, how much ranks send, where
the network takes over, and devices in the order of their data sheets.

Relies on: harness.py. Relied on by: run.py."""
import json
import math
import os
import re

from harness import ROOT, check, entry, scratch, shardc

LLAMA3 = os.path.join(ROOT, "models", "llama3.lua")
GPT2 = os.path.join(ROOT, "models", "gpt2.lua")


def arguments(model, device, world, nodes, options):
    return [model, "--device", device, "--world", str(world), "--nodes", str(nodes), *[a for kv in options.split() for a in ("--set", kv)]]


def predicted(model, options, device="h200", world=1, nodes=1):
    return json.loads(shardc("predict", *arguments(model, device, world, nodes, options), "--format", "json"))


def told(model, options, device="h200", world=1, nodes=1):
    return shardc("predict", *arguments(model, device, world, nodes, options))


def test_both_counts_of_model_flops_are_named():
    """Llama-3 8B at 8192: 6 x (products' weights) + 12 or 6 x layers x sequence x width a token."""
    p = predicted(LLAMA3, "size=8b seq=8192 precision=bf16", "h100", 8)
    each = p["tokens_per_step"] / 8
    weights = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256
    full, causal = 6 * weights + 12 * 32 * 8192 * 4096, 6 * weights + 6 * 32 * 8192 * 4096
    check(p["model_flops_full"] == full * each and p["model_flops"] == causal * each, "%g and %g, not %g and %g" % (p["model_flops_full"], p["model_flops"], full * each, causal * each))
    f = p["prediction"]
    for key, flops in (("mfu_full_attention", full), ("mfu_causal_attention", causal)):
        mfu = flops * each / (f["step_us"] * 1e-6 * 989e12)
        check(abs(f[key] / mfu - 1) < 1e-9, "%s %g, not %g" % (key, f[key], mfu))
    text = told(LLAMA3, "size=8b seq=8192 precision=bf16", "h100", 8)
    check("with full attention (57.9 GFLOP a token, as PaLM counts)" in text and "with causal (51.5), of 989 TFLOP/s bf16" in text, text)
    again = predicted(LLAMA3, "size=8b seq=8192 precision=bf16 recompute=full", "h100", 8)
    check(again["model_flops"] == p["model_flops"], "recomputation is counted")


def test_a_step_has_the_microbatches_that_the_model_asks_for():
    one, four = (predicted(GPT2, "precision=bf16 seq=512 accumulate=%d" % n)["prediction"] for n in (1, 4))
    check(four["microbatches"] == 4 and 3 * one["step_us"] < four["step_us"] < 4.2 * one["step_us"], "%g us for one, %g for four" % (one["step_us"], four["step_us"]))
    check(abs(four["tokens_per_second"] * four["step_us"] * 1e-6 / (4 * 8 * 512) - 1) < 1e-9, "tokens of four microbatches")


def test_every_time_says_where_it_comes_from():
    seen = []
    for device, nodes, words in (("h100", 1, "measured kernels"), ("h200", 1, "kernels scaled from h100's"), ("b200", 1, "kernels scaled from h100's"),
                                 ("h100", 2, "network by data sheet")):
        p = predicted(LLAMA3, "size=8b seq=8192 precision=bf16", device, 8 * nodes, nodes)["prediction"]
        check(words in p["time_source"] and 0.02 < p["time_off"] < 0.5, "%s: %s, %g" % (device, p["time_source"], p["time_off"]))
        check(entry(told(LLAMA3, "size=8b seq=8192 precision=bf16", device, 8 * nodes, nodes), "times").startswith("%s, ±%.0f %% " % (p["time_source"], 100 * p["time_off"])), "the text does not say it")
        seen.append(p["time_off"])
    check(seen[0] < seen[1] < seen[2] and seen[0] < seen[3], "ranges %s" % seen)


def test_published_steps_are_met():
    """NVIDIA's recipe for Llama 3.1 8B, bf16, eight H100, sequences of 8192: 10,153 tokens a second and GPU."""
    ours = predicted(LLAMA3, "size=8b seq=8192 precision=bf16", "h100", 8)["prediction"]["tokens_per_second"]
    check(abs(ours / 10153 - 1) < 0.15, "%.0f tokens a second" % ours)
    return "%.0f tok/s, published 10,153" % ours


def test_ranks_send_what_the_closed_form_says():
    """Llama-3 405B on 16,384 GPUs, every block recomputed: each block's weights are gathered twice in bf16 and its gradients reduced once
    in fp32. A rank sends all parts but one; a parameter's part is a multiple of 128 elements (512 B of fp32)."""
    world, d, f, kv, vocab, layers = 16384, 16384, 53248, 1024, 128256, 126
    plan = json.loads(shardc("inspect", *arguments(LLAMA3, "h200", world, world // 8, "size=405b seq=8192 precision=bf16 recompute=full"), "--format", "json"))

    def padded(*sizes):
        return sum(math.ceil(n / world / 128) * 128 * world for n in sizes)
    block, table, rest = padded(d * d, d * kv, d * kv, d * d, d * f, d * f, d * f, d, d), padded(vocab * d), (world - 1) / world
    events = next(p for p in plan["programs"] if p["name"] == "micro")["events"]

    def sent(op, where):
        found = [e["bytes"] for e in events if e["op"] == op and where in e["module"]]
        return len(found), sum(found)
    for op, where, times, size in (("all_gather", "layers.", 2 * layers, 2 * block), ("reduce_scatter", "layers.", layers, 4 * block),
                                   ("all_gather", "lm_head", 2, 2 * table), ("reduce_scatter", "lm_head", 1, 4 * table),
                                   ("all_gather", "embed_tokens", 1, 2 * table), ("reduce_scatter", "embed_tokens", 1, 4 * table)):
        n, total = sent(op, where)
        check(n == times and abs(total / (times * size * rest) - 1) < 1e-9, "%s of %s: %d events, %g B; closed form %d, %g" % (op, where, n, total, times, times * size * rest))
    exact = layers * (2 * d * d + 2 * d * kv + 3 * d * f + 2 * d) + 2 * vocab * d + d
    every = sum(e["bytes"] for e in events if e["op"] == "reduce_scatter")
    check(1 <= every / (4 * exact * rest) < 1.002, "padding is %.4f of what is reduced" % (every / (4 * exact * rest)))


def test_a_sweep_shows_where_the_network_takes_over():
    """Llama-3 8B, one sequence a GPU: hidden behind compute to a few hundred GPUs; at 16,384 most of the step is the latency of rings."""
    step, exposed = {}, {}
    for world in (8, 64, 256, 1024, 4096, 16384):
        p = predicted(LLAMA3, "size=8b seq=8192 precision=bf16", "h100", world, world // 8)["prediction"]
        step[world], exposed[world] = p["step_us"], p["exposed_us"] / p["step_us"]
    worlds = sorted(step)
    # 64 GPUs may be a little faster than 8: each updates an eighth of the parameters, which saves 11 ms of kernels
    check(all(step[a] < step[b] * 1.002 for a, b in zip(worlds, worlds[1:])), "steps %s" % step)
    check(step[256] < 1.05 * step[8] and step[1024] > 1.02 * step[8], "steps %s" % step)
    check(exposed[256] < 0.1 and exposed[4096] > 0.3 and exposed[16384] > 0.6, "exposed %s" % exposed)
    return ", ".join("%d: %.0f ms" % (w, step[w] / 1e3) for w in worlds)


def test_devices_come_in_the_order_of_their_data_sheets():
    """Whole steps: a device that has more of everything is no slower."""
    better = [("h200", "h100"), ("h100", "a100"), ("b200", "h200"), ("b200", "h100"), ("h200", "a100")]
    for model, options in ((GPT2, "precision=bf16 batch=1 seq=128"), (GPT2, "precision=bf16 batch=16"), (GPT2, "precision=fp32 batch=4"),
                           (LLAMA3, "size=1b seq=4096 batch=2 precision=bf16"), (LLAMA3, "size=1b seq=1024 precision=bf16 recompute=full offload=activations")):
        for world in (1, 8):
            us = {d: predicted(model, options, d, world)["prediction"]["step_us"] for d in ("h100", "h200", "a100", "b200")}
            for a, b in better:
                check(us[a] <= us[b] * 1.0001, "%s on %d GPUs: %s %.3f ms, %s %.3f ms" % (options, world, a, us[a] / 1e3, b, us[b] / 1e3))


ATTENTION = os.path.join(ROOT, "bench", "attention.lua")


def attention(options, *more, device="h100"):
    """(us of attention, us of its gradient, the prediction) of one attention of bench/attention.lua."""
    plan = json.loads(shardc("inspect", *arguments(ATTENTION, device, 1, 1, options), *more, "--format", "json"))
    us = {e["op"]: e["duration_us"] for p in plan["programs"] if p["name"] == "micro" for e in p["events"]}
    return us["attention"], us["attention_grad"], plan["prediction"]


def test_attention_takes_what_its_kernel_takes():
    """One H100 at the clock of seconds of attention alone: 4.1 ms forward and backward, 1.4 with documents of 512 tokens, 0.8 in a window of 512, 4.9 with a cap.
    A step's clock is higher, where other kernels draw less."""
    sizes = "seq=8192 heads=32 kv_heads=8 width=128"
    for options, more, us in (("", [], 4054), (" documents=true", ["--document-length", "512"], 1393), (" before=512", [], 816), (" softcap=50", [], 4900)):
        forward, backward, p = attention(sizes + options, *more)
        check(abs((forward + backward) / us - 1) < 0.25, "%s: %.0f and %.0f us, not %d" % (options, forward, backward, us))
        check(not p["estimates"], "%s has estimates: %s" % (options, p["estimates"]))
        check(p["attention"] == "shardc's kernels for compute capability 9.0 (2 events)", p["attention"])
        check(p.get("documents") == ({"length": 512, "whole_rows": False} if more else None), "documents: %s" % p.get("documents"))
        free = attention(sizes + options + " deterministic=false", *more)
        check(free[:2] == (forward, backward), "where bits need not repeat: %.0f and %.0f us" % free[:2])
    whole = attention(sizes + " documents=true")
    check(whole[2]["documents"] == {"length": 8192, "whole_rows": True} and sum(whole[:2]) > 2 * 1393, "whole rows: %s" % (whole,))
    for options, device, by in ((" bias=true", "h100", "shardc's kernels for compute capability 9.0 (2 events) · shardc's kernels for any GPU (1 event)"), ("", "a100", "cuDNN (1 event) · shardc's kernels for any GPU (1 event)"), (" deterministic=false", "a100", "cuDNN (2 events)"), (" before=64", "a100", "shardc's kernels for any GPU (2 events)")):
        p = attention("seq=512" + options, device=device)[2]
        check(p["attention"] == by, "%s on %s: %s" % (options, device, p["attention"]))
        text = shardc("predict", *arguments(ATTENTION, device, 1, 1, "seq=512" + options))
        check(entry(text, "times").endswith(" attention by %s" % by), text)


def test_bits_that_repeat_need_no_square():
    """On every GPU a gradient whose bits repeat asks for no more memory than one whose bits need not, and for twice as much at twice the length."""
    for device in "a100", "h100", "b200":
        arena = {(seq, d): predicted(ATTENTION, "seq=%d heads=32 kv_heads=8 width=128 deterministic=%s" % (seq, d), device)["prediction"]["arena_bytes"]
                 for seq in (16384, 32768) for d in ("true", "false")}
        check(all(arena[seq, "true"] <= arena[seq, "false"] for seq in (16384, 32768)) and arena[32768, "true"] < 2.1 * arena[16384, "true"], "%s: %s" % (device, arena))


def test_variants_of_attention_cost_no_more_than_attention():
    """Dense parts of models of today at 8192 tokens: with their windows, caps, sinks and scaled positions, within 5 % of time and memory without."""
    text = []
    for name in "gemma2-9b", "gemma3-12b", "mistral-7b", "gpt-oss-20b":
        with_it, without = (predicted(os.path.join(ROOT, "bench", "blocks.lua"), "model=%s variant=%s" % (name, v), world=8)["prediction"] for v in ("true", "false"))
        time, memory = (with_it[x] / without[x] for x in ("step_us", "arena_bytes"))
        check(time < 1.05 and memory < 1.05 and not with_it["estimates"], "%s: %.3f of the time, %.3f of the memory, %s" % (name, time, memory, with_it["estimates"]))
        text.append("%s %.2f" % (name, time))
    return ", ".join(text)


def test_long_rows_fit_where_no_square_of_scores_is_kept():
    """Llama-3 8B on eight H100, recomputed, its bits repeating: 55,801 tokens were the most with cuDNN's square of scores."""
    p = predicted(LLAMA3, "size=8b precision=bf16 recompute=full seq=120000", "h100", 8)["prediction"]
    check(p["fits"], "120,000 tokens take %.1f GiB" % (p["arena_bytes"] / 2**30))


def test_documents_are_an_assumption_that_is_told():
    options = arguments(ATTENTION, "h100", 1, 1, "seq=1024 documents=true")
    text = shardc("predict", *options)
    check("documents of 1,024 tokens each, whole rows, as nobody said how long they are: --document-length N" in entry(text, "times"), text)
    text = shardc("predict", *options, "--document-length", "100")
    check("documents of 100 tokens each" in entry(text, "times") and "whole rows" not in text, text)
    long = arguments(ATTENTION, "h100", 1, 1, "seq=8192 heads=32 documents=true") # short rows take as long whatever their documents
    steps = [json.loads(shardc("predict", *long, "--document-length", str(n), "--format", "json"))["prediction"] for n in (512, 2048, 8192, 10000)]
    check(steps[0]["step_us"] < steps[1]["step_us"] < steps[2]["step_us"] == steps[3]["step_us"], "steps %s" % [s["step_us"] for s in steps])
    bare = shardc("predict", *arguments(ATTENTION, "h100", 1, 1, "seq=1024"), "--document-length", "100")
    check("documents of" not in bare, "a model without documents: " + bare)


def test_what_was_not_measured_is_told():
    """Every kernel that takes another's time, or its flops' and bytes', is named with its share, and the range grows."""
    for options, device, op, variant, other in (("precision=fp16 heads=8 documents=true dropout=0.1 causal=false", "h100", "attention_grad", "fp16 hopper documents dropout", "bf16 hopper documents"),
                                                ("precision=fp32 dropout=0.1 documents=true", "h200", "attention", "fp32 causal documents dropout", "fp32 causal documents"),
                                                ("bias=true softcap=20", "h100", "attention", "bf16 hopper causal softcap bias", "bf16 hopper causal softcap"),
                                                ("value_width=32 precision=fp16", "h200", "attention_grad", "fp16 hopper causal widths", "fp16 hopper causal")):
        p = attention("seq=512 " + options, device=device)[2]
        found = [e for e in p["estimates"] if e["op"] == op and e["variant"] == variant]
        check(len(found) == 1 and found[0]["as"] == other and found[0]["us"] > 0 and found[0]["events"] == 1, "estimates: %s" % p["estimates"])
        text = shardc("predict", *arguments(ATTENTION, device, 1, 1, "seq=512 " + options))
        check("not measured, by shares of the step: " in entry(text, "times") and re.search(r" \d+\.\d %% +%s %s \S+ us as %s\b" % (op, variant, other), entry(text, "times")), text)
        guessed = sum(e["us"] for e in p["estimates"]) / p["step_us"]
        known = attention("seq=512", device=device)[2]
        check(abs(p["time_off"] - known["time_off"] - guessed * (0.30 - known["time_off"])) < 1e-6, "off by %g, %g guessed" % (p["time_off"], guessed))
    for model, options in ((LLAMA3, "size=1b precision=bf16"), (GPT2, "precision=bf16"), (GPT2, "precision=fp32"), (LLAMA3, "size=1b precision=bf16 recompute=selective")):
        for device in ("h100", "h200"):
            p = predicted(model, options, device)["prediction"]
            check(not p["estimates"], "%s %s on %s: %s" % (model, options, device, p["estimates"]))


def test_a_machines_clock_scales_its_steps():
    """A quick profile with the H100's own figures predicts what the H100 does; a GPU that sustains a lower clock is slower where arithmetic is."""
    path = os.path.join(scratch("clocks"), "mine.lua")
    def step(mhz, options):
        with open(path, "w") as f:
            f.write('return { name = "mine", target = "cuda", arch = "sm_90", source = "measured 2026-11-26", like = "h100", memory_bytes = 80 * 2^30, usable_bytes = 79.1 * 2^30,'
                    ' memory_bandwidth = 3.01e12, clock_mhz = 1980, step_mhz = %g, flops = { bf16 = 989e12, fp16 = 989e12, fp32 = 67e12, fp64 = 67e12 }, launch_us = 1.04 }' % mhz)
        return predicted(LLAMA3, options, path)["prediction"]["step_us"]
    for options in "size=1b precision=bf16 batch=4 seq=4096", "size=1b precision=bf16 seq=512":
        base = predicted(LLAMA3, options, "h100")["prediction"]["step_us"]
        same, slow, fast = step(1496, options), step(1420, options), step(1580, options)
        check(abs(same / base - 1) < 1e-3, "%s: %g us, not %g" % (options, same, base))
        check(slow > 1.02 * base and fast < 0.98 * base if "4096" in options else base <= slow < 1.05 * base, "%s: %g, %g, %g us" % (options, slow, base, fast))
