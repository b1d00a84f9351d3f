"""nn.training { ema }: the average beside torch's rule over the weights of each step, on 1, 2 and 4 ranks; under memory plans, after a resume, where a GradScaler
skips steps; and what --ema validates, samples and exports.

Relies on: harness.py, rows/ema.lua, rows/ema_tokens.lua. Relied on by: run.py."""
import array
import os
import random

from harness import ROWS, build, check, command, corpus, floats, long, losses, microbatches, must, read_log, read_safetensors, run, same_run, scratch

NET, GLOBAL, STEPS, DECAY = os.path.join(ROWS, "ema.lua"), 16, 5, 0.9


def records(folder, accumulate, skipped=()):
    r, size, path = random.Random(7), GLOBAL // accumulate, os.path.join(folder, "records")
    with open(path, "wb") as f:
        for k in range(STEPS):
            for _ in range(accumulate):
                f.write(array.array("f", [r.gauss(0, 1) for _ in range(4 * size)]).tobytes())
                f.write(array.array("f", [1e30 if k in skipped else 1] * size).tobytes())
    return path


def go(world, *args, steps=STEPS, skipped=(), **o):
    o.setdefault("accumulate", 1)
    o.setdefault("decay", DECAY)
    binary = build(NET, world=world, batch=GLOBAL // world // o["accumulate"], **o)
    return run(binary, "--data", "-", "--steps", str(steps), "--seed", "3", *microbatches(o), *args, records=records(scratch("ema"), o["accumulate"], skipped))


def single(x):
    return array.array("f", [x])[0]


def average(weights, decay):
    """torch.lerp over the weights of each step, in fp32, as torch.optim.swa_utils.get_ema_multi_avg_fn calls it: the first step's weights are copied."""
    kept, weight = weights[0], single(1 - decay)
    for now in weights[1:]:
        kept = {k: [single(a + single(weight * single(b - a))) if weight < 0.5 else single(b - single(single(b - a) * single(1 - weight)))
                    for a, b in zip(kept[k], now[k])] for k in kept}
    return kept


def values(a):
    return {k: list(floats(t)) for k, t in a[1].items()}


@long
def test_it_is_torchs_average():
    for world, accumulate, decay in (1, 1, 0.9), (2, 1, 0.9), (4, 1, 0.4), (2, 2, 0.9):
        o = dict(accumulate=accumulate, decay=decay)
        weights = [values(go(world, steps=k, **o)) for k in range(1, STEPS + 1)]
        check(values(go(world, ema="false", **o)) == weights[-1], "an average changes the weights")
        for k in 1, STEPS:
            got, want = values(go(world, "--ema", steps=k, **o)), average(weights[:k], decay)
            check(got == want, "world %d, accumulate %d, %d steps: the average is another" % (world, accumulate, k))
    check(values(go(1, "--ema", steps=0)) == values(go(1, steps=0)), "before the first step the average is not the weights")
    return "the same bits on 1, 2 and 4 ranks"


@long
def test_plans_and_resume_change_no_bit():
    for o in dict(accumulate=1), dict(accumulate=2, clip=0.5), dict(accumulate=1, param_dtype="bf16"), dict(accumulate=1, optimizer="sgd"):
        plain = go(2, "--ema", **o)
        for plan in dict(state="host"), dict(state="stream"), dict(state="host", params="true"), dict(state="stream", params="true", recompute="true"), dict(params="true"):
            same_run(plain, go(2, "--ema", **o, **plan), str(dict(o, **plan)))
        saved = os.path.join(scratch("ema-saved"), "state")
        go(2, "--ema", "--save", saved, steps=3, **o)
        check(go(2, "--ema", "--resume", saved, **o)[1] == plain[1], "%s: a resumed run ends with another average" % o)
    rc, _, err = command([build(NET, world=2, batch=8, accumulate=1, decay=DECAY), "--resume", saved, "--data", "-", "--steps", "3", "--export", os.devnull])
    check(rc == 1 and "made with the optimizer" in err, err)
    without = os.path.join(scratch("ema-without"), "state")
    go(2, "--save", without, steps=2, ema="false")
    rc, _, err = command([build(NET, world=2, batch=8, accumulate=1, decay=DECAY), "--resume", without, "--export", os.devnull])
    check(rc == 1 and "no average of 'block.up.weight' there: it was saved by a program without ema" in err, err)
    rc, _, err = command([build(NET, world=2, batch=8, accumulate=1, decay=DECAY, ema="false"), "--ema", "--resume", without, "--export", os.devnull])
    check(rc != 0 and "--ema: this binary keeps no average of its weights; write ema" in err, err)


def test_a_skipped_step_leaves_it():
    o = dict(scaler="true", param_dtype="fp16")
    for skipped in (0, 3), (1,):
        weights = [values(go(2, steps=k, skipped=skipped, **o)) for k in range(1, STEPS + 1) if k - 1 not in skipped]
        got = values(go(2, "--ema", skipped=skipped, **o))
        check(got == average(weights, DECAY), "steps %s were skipped, and the average is another" % (skipped,))


def test_validation_sample_and_export_are_of_it():
    """The average's loss is that of its weights; validating it in between changes no bit of the training."""
    binary, data, folder = build(os.path.join(ROWS, "ema_tokens.lua"), world=2), corpus(), scratch("ema-val")
    average, log = os.path.join(folder, "average.safetensors"), os.path.join(folder, "log.jsonl")
    common = ["--data", data, "--seed", "3"]
    validate = ["--val-data", data, "--eval-steps", "3"]
    out = must([binary, *common, *validate, "--steps", "6", "--eval-every", "2", "--ema", "--sample", "20", "--quiet", "--export", average, "--log", log])
    must([binary, *common, "--steps", "6", "--quiet", "--log", log + ".plain"])
    check(losses(read_log(log)) == losses(read_log(log + ".plain")), "validating the average changes the training")
    again = must([binary, *validate, "--weights", average, "--seed", "3", "--steps", "0", "--sample", "20", "--quiet", "--log", log + ".again"])
    loss = [[s["val_loss"] for s in read_log(p) if "val_loss" in s][-1] for p in (log, log + ".again")]
    check(loss[0] == loss[1], "validated %s, and the exported average has %s" % tuple(loss))
    check(out.splitlines()[-1] == again.splitlines()[-1], "the samples differ: %s\n%s" % (out, again))


def test_a_program_without_an_average_says_so():
    """--ema of a binary that keeps no average, and a state without one for a binary that does."""
    data, state = records(scratch("ema-none"), 1), os.path.join(scratch("ema-none-state"), "state")
    without, keeps = build(NET, batch=GLOBAL, ema=False), build(NET, batch=GLOBAL)
    for words, args in (("this binary keeps no average of its weights; write ema = { decay = 0.999 } in nn.training", [without, "--steps", "1", "--ema"]),
                        (None, [without, "--steps", "1", "--save", state]),
                        ("it was saved by a program without ema; resume with that one", [keeps, "--steps", "2", "--resume", state])):
        with open(data, "rb") as f:
            rc, out, err = command([*args, "--data", "-"], stdin_file=f)
        check((rc == 0) == (words is None) and (words or "") in err, "%s: exit %d, %s" % (args, rc, err))
