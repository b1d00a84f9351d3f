#!/usr/bin/env python3
"""Follows a run's log (--log) as it grows, and shows it in TensorBoard, Weights & Biases or MLflow:

    runtime/examples/watch.py run.jsonl --to tensorboard DIR
    runtime/examples/watch.py run.jsonl --to wandb PROJECT
    runtime/examples/watch.py run.jsonl --to mlflow EXPERIMENT

The run knows nothing of it: it may be started before the run, beside it or after it, on any machine that sees the log. It ends when the
run has written its last line, or on Ctrl-C. A run that resumes cuts off the steps that it makes again; they are replaced here too.

Relies on: Python 3.8; the package that --to names. Relied on by: test_watch.py, README.md."""
import argparse
import hashlib
import json
import os
import re
import signal
import sys
import time


def need(package, install):
    sys.exit("watch.py: --to %s needs the Python package %s: %s" % (package[0], package[1], install))


# ── where a run is shown ─────────────────────────────────────────────────────────────────────────────────────────────────
class TensorBoard:
    def __init__(self, folder, name):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            try:
                from tensorboardX import SummaryWriter
            except ImportError:
                need(("tensorboard", "tensorboard (with torch) or tensorboardX"), "pip install tensorboardX")
        self.new = lambda step: SummaryWriter(os.path.join(folder, name) if name else folder, purge_step=step)
        self.writer = self.new(0)  # hides what an earlier watch.py has written there

    def begin(self, line):
        rows = "".join("| %s | %s |\n" % (k, str(v).replace("|", "\\|")) for k, v in line.items())
        self.writer.add_text("run", "| | |\n|-|-|\n" + rows, line["step"])

    def back(self, step):
        self.writer.close()
        self.writer = self.new(step)

    def numbers(self, step, values):
        for name, x in values.items():
            self.writer.add_scalar(name, x, step)
        self.writer.flush()

    def end(self, how):
        self.writer.close()


class Wandb:
    def __init__(self, project, name):
        try:
            import wandb
        except ImportError:
            need(("wandb", "wandb"), "pip install wandb")
        self.wandb, self.project, self.name, self.run = wandb, project, name, None

    def begin(self, line):
        if self.run:  # the run was resumed
            self.run.config.update(line, allow_val_change=True)
            return
        own = hashlib.sha1(json.dumps(line).encode()).hexdigest()[:16]  # the same run when it is watched again
        self.run = self.wandb.init(project=self.project, name=self.name, id=own, resume="allow", config=line)
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def back(self, step):
        pass  # a curve over "step" shows the newest value of a step

    def numbers(self, step, values):
        self.run.log(dict(values, step=step))

    def end(self, how):
        if self.run:
            self.run.summary["end"] = how
            self.run.finish()


class Mlflow:
    def __init__(self, experiment, name):
        try:
            import mlflow
        except ImportError:
            need(("mlflow", "mlflow"), "pip install mlflow")
        self.mlflow, self.told = mlflow, {}
        mlflow.set_experiment(experiment)
        mlflow.start_run(run_name=name)

    def named(self, values):
        """MLflow's names hold letters, digits, and these."""
        return {re.sub(r"[^\w\-. /:]", "_", k): v for k, v in values.items()}

    def begin(self, line):
        new = {k: v for k, v in self.named(line).items() if k not in self.told}  # a parameter is given once
        self.told.update(new)
        self.mlflow.log_params(new)
        self.mlflow.set_tag("started at step %d" % line["step"], line.get("start", ""))

    def back(self, step):
        pass  # it shows the newest value of a step

    def numbers(self, step, values):
        self.mlflow.log_metrics(self.named(values), step=step)

    def end(self, how):
        self.mlflow.set_tag("end", how)
        self.mlflow.end_run("FINISHED" if how in ("complete", "patience") else "KILLED")


SINKS = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": Mlflow}


# ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def say(text):
    print("watch.py: " + text, file=sys.stderr, flush=True)


class Log:
    """The whole lines of a file that grows. A resumed run cuts it: then the lines that stay are passed over."""

    def __init__(self, path):
        self.path, self.offset, self.passed, self.read = path, 0, 0, []  # read: a hash and the length of each line; passed: how many of them

    def still_there(self, f):
        if not self.read or not self.offset:
            return True
        was, length = self.read[self.passed - 1]
        f.seek(self.offset - length)
        return hash(f.read(length)) == was

    def more(self):
        """Yields (bytes of a line, whether lines that were read before are gone)."""
        try:
            f = open(self.path, "rb")
        except FileNotFoundError:
            return
        with f:
            if not self.still_there(f):
                self.offset = self.passed = 0
            f.seek(self.offset)
            for line in f:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                self.passed += 1
                new = (hash(line), len(line))
                if self.passed <= len(self.read) and self.read[self.passed - 1] == new:
                    continue
                cut = self.passed <= len(self.read)
                del self.read[self.passed - 1:]
                self.read.append(new)
                yield line, cut


def figures(line):
    """The numbers of a step, a validation or a measurement, by the names that they are shown under. null, which is not finite, is a gap."""
    own = {"seconds": "val_seconds"} if "val_loss" in line else {}
    return {own.get(k, k): v for k, v in line.items() if k != "step" and isinstance(v, (int, float)) and not isinstance(v, bool)}


def watch(log, sink, poll, forever):
    """Returns how the run has ended."""
    begun, told = False, False
    while True:
        how, began = None, time.monotonic()
        for text, cut in log.more():
            try:
                line = json.loads(text)
                step = line["step"]
            except (ValueError, TypeError, KeyError):
                say("%s: line %d is none of a log, and is passed over: %.60r" % (log.path, log.passed, text.decode("utf-8", "replace").rstrip("\n")))
                continue
            if cut and log.passed == 1:
                return "replaced by another run's log: watch that one anew"
            if cut:
                sink.back(step + ("model" in line))  # a run that resumes at a step keeps that one
            how = line.get("end")
            if "model" in line:
                begun = True
                sink.begin(line)
            elif begun and not how and figures(line):
                sink.numbers(step, figures(line))
        if how and not forever:
            return how
        if not begun and not told:
            told = True
            say("%s: no run has begun there yet; waiting" % log.path)
        time.sleep(max(0.0, poll - (time.monotonic() - began)))


def main():
    p = argparse.ArgumentParser(prog="watch.py", description="Show a run's log in TensorBoard, Weights & Biases or MLflow, while it grows.")
    p.add_argument("log", help="the file of the run's --log; of several ranks' logs, one")
    p.add_argument("--to", nargs=2, required=True, metavar=("WHAT", "WHERE"), help="tensorboard DIR, wandb PROJECT or mlflow EXPERIMENT")
    p.add_argument("--name", help="the run's name there (default: the log's, without its end)")
    p.add_argument("--poll", type=float, default=2.0, metavar="X", help="look every X seconds (default 2)")
    p.add_argument("--forever", action="store_true", help="go on when the run has ended: it will be resumed")
    o = p.parse_args()
    if o.to[0] not in SINKS:
        p.error("--to wants %s, not '%s'" % (", ".join("%s WHERE" % k for k in SINKS), o.to[0]))
    if not 0 < o.poll < 86400:
        p.error("--poll wants a number of seconds above 0, not %g" % o.poll)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sink, how = None, "watched no longer"
    try:
        name = o.name or ("" if o.to[0] == "tensorboard" else os.path.splitext(os.path.basename(o.log))[0])
        sink = SINKS[o.to[0]](o.to[1], name)
        how = watch(Log(o.log), sink, o.poll, o.forever)
    except KeyboardInterrupt:
        pass
    except OSError as e:
        sys.exit("watch.py: %s" % e)
    if sink:
        sink.end(how)
    say("%s: %s" % (o.log, how))


if __name__ == "__main__":
    main()
