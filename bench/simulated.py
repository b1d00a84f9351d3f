"""How far a plan's simulated times are from measured ones: by class of events, one by one where they are far off, and in all.

python3 bench/simulated.py PLAN.json TRACE [--program micro] [--rank 0] [--step-ms MEASURED] [--worst N]

TRACE is what a training program writes with --trace (which launches every event by itself, without graphs); a plan made by
another profile is simulated anew by `shardc inspect MODEL ... --format json`.

Relies on: python3's standard library. Relied on by: people who fit device profiles."""
import argparse
import collections
import json
import statistics


def read_plan(path, program):
    plan = json.load(open(path))
    p = next(p for p in plan["programs"] if p["name"] == program)
    return {e["id"]: e for e in p["events"]}, plan


def read_trace(path, program, rank):
    """Event id -> durations in us, over the steps; and the lengths of the steps, from first start to last end."""
    times, steps = collections.defaultdict(list), collections.defaultdict(lambda: [1e30, 0])
    for line in open(path):  # an event a line, so that a part of the file will do
        e = json.loads(line.strip().rstrip(",")) if line.startswith("{") else {}
        if e.get("ph") != "X" or e.get("pid") != rank or e["args"].get("program", program) != program:
            continue
        times[e["args"]["event"]].append(e["dur"])
        s = steps[e["args"].get("step", 0)]
        s[0], s[1] = min(s[0], e["ts"]), max(s[1], e["ts"] + e["dur"])
    return times, [b - a for a, b in steps.values()]


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("plan"), a.add_argument("trace"), a.add_argument("--program", default="micro")
    a.add_argument("--rank", type=int, default=0), a.add_argument("--step-ms", type=float)
    a.add_argument("--worst", type=int, default=15)
    o = a.parse_args()
    events, plan = read_plan(o.plan, o.program)
    times, steps = read_trace(o.trace, o.program, o.rank)
    classes, off = collections.defaultdict(lambda: [0, 0.0, 0.0]), []
    for id, e in events.items():
        if id not in times:
            continue
        measured = statistics.median(times[id][len(times[id]) > 1:])
        c = classes[(e["stream"], e["op"])]
        c[0], c[1], c[2] = c[0] + 1, c[1] + e["duration_us"], c[2] + measured
        off.append((abs(e["duration_us"] - measured), id, e, measured))
    print(f"{'stream':8} {'op':28} {'events':>6} {'simulated ms':>13} {'measured ms':>12} {'ratio':>6}")
    streams = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for (stream, op), (n, x, y) in sorted(classes.items(), key=lambda c: -c[1][2]):
        print(f"{stream:8} {op[:28]:28} {n:6} {x / 1e3:13.3f} {y / 1e3:12.3f} {x / y if y else 0:6.2f}")
        s = streams[stream]
        s[0], s[1], s[2] = s[0] + n, s[1] + x, s[2] + y
    for stream, (n, x, y) in streams.items():
        print(f"{stream:8} {'all':28} {n:6} {x / 1e3:13.3f} {y / 1e3:12.3f} {x / y if y else 0:6.2f}")
    simulated = max(e["start_us"] + e["duration_us"] for e in events.values()) / 1e3
    print(f"step: simulated {simulated:.3f} ms, in the trace {statistics.median(steps) / 1e3 if steps else 0:.3f} ms", end="")
    print(f", measured {o.step_ms:.3f} ms, ratio {simulated / o.step_ms:.3f}" if o.step_ms else "")
    for far, id, e, measured in sorted(off, key=lambda x: -x[0])[: o.worst]:
        print(f"  {id:12} {e['op'][:24]:24} {e['module'][:30]:30} simulated {e['duration_us']:9.1f} measured {measured:9.1f} us")


main()
