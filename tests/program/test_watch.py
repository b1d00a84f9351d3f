"""runtime/examples/watch.py, which shows a run's log in TensorBoard, Weights & Biases or MLflow: with stand-ins for their packages that
note each call.

Relies on: harness.py, runtime/examples/watch.py. Relied on by: run.py."""
import json
import os
import shutil
import signal
import subprocess
import sys

from harness import MANY, ROOT, build, check, command, corpus, must, read_log, scratch, until

WATCH = os.path.join(ROOT, "runtime/examples/watch.py")
SMALL = dict(layers=1, dim=16, heads=2, vocab=256, batch=4, seq=16)
NOTE = '''
import json, os
def note(*call):
    with open(os.environ["NOTED"], "a") as f:
        f.write(json.dumps(call) + "\\n")
class Notes:
    def __init__(self, name):
        self._name = name
    def __getattr__(self, method):
        return lambda *args, **named: note(self._name + "." + method, args, named)
'''
FAKES = {
    "noted.py": NOTE,
    "tensorboardX.py": 'from noted import *\ndef SummaryWriter(folder, purge_step):\n    note("SummaryWriter", [folder], {"purge_step": purge_step})\n    return Notes("writer")\n',
    "wandb.py": 'from noted import *\ndef init(**named):\n    note("init", [], named)\n    run = Notes("run")\n    run.config, run.summary = Notes("config"), {}\n    return run\n',
    "mlflow.py": 'from noted import *\n_all = Notes("mlflow")\nset_experiment, start_run, log_params, log_metrics, set_tag, end_run = [getattr(_all, k) for k in '
                 '("set_experiment", "start_run", "log_params", "log_metrics", "set_tag", "end_run")]\n',
    "torch/__init__.py": "",
}


class Watched:
    """watch.py beside a log, and the calls that it has made."""

    def __init__(self, log, *to, more=()):
        self.folder = scratch("watched")
        for name, text in FAKES.items():
            os.makedirs(os.path.dirname(os.path.join(self.folder, name)), exist_ok=True)
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text)
        self.noted = os.path.join(self.folder, "noted.txt")
        env = dict(os.environ, PYTHONPATH=self.folder, NOTED=self.noted)
        self.p = subprocess.Popen([sys.executable, WATCH, log, "--to", *to, "--poll", "0.02", *more], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def calls(self, *names):
        lines = open(self.noted).read().split("\n")[:-1] if os.path.exists(self.noted) else []
        return [call[1:] for call in map(json.loads, lines) if call[0] in names]

    def reach(self, what, name, test):
        until(lambda: any(test(*call) for call in self.calls(name)), what)

    def end(self, says):
        out, err = self.p.communicate(timeout=MANY)
        check(self.p.returncode == 0 and out == "" and err.endswith(says + "\n"), "exit %d: %s%s" % (self.p.returncode, out, err))
        return err


def run(log, state, steps, *more):
    return must([build("gpt2.lua", world=2, **SMALL), "--data", corpus(), "--val-data", corpus("val", 4000, 5), "--eval-every", "3", "--seed", "1", "--lr", "1e-3", "--warmup", "0", "--min-ratio", "1",
                 "--log", log, "--steps", str(steps), "--save", state, *more])


def metrics(log):
    """What should be seen of each line."""
    lines = [(line.pop("step"), line) for line in read_log(log)]
    return [(step, {("val_seconds" if k == "seconds" and "val_loss" in line else k): v for k, v in line.items() if v is not None}) for step, line in lines]


def test_a_run_is_followed():
    """Watched before it begins, while it is cut and resumed, to its end; each number is told once, and those that are made again once more."""
    folder = scratch("followed")
    log, state, older = [os.path.join(folder, name) for name in ("run.jsonl", "state", "older")]
    tensorboard, wandb, mlflow = all_ = Watched(log, "tensorboard", os.path.join(folder, "tb"), more=["--forever"]), Watched(log, "wandb", "project"), Watched(log, "mlflow", "experiment")
    until(lambda: all(w.p.poll() is None and os.path.exists(w.noted) for w in (tensorboard, mlflow)), "watchers")
    run(log, state, 4)
    first = metrics(log)
    check([step for step, _ in first] == [1, 2, 3, 3, 4, 4], "%s" % first)
    for w in (wandb, mlflow):
        w.end("%s: complete" % log)
    tensorboard.reach("the first part", "writer.add_scalar", lambda args, _: args[2] == 4 and args[0] == "val_loss")
    shutil.copytree(state, older)
    run(log, state, 7, "--resume", state)  # two steps of that are cut, and made again at another rate
    tensorboard.reach("the second part", "writer.add_scalar", lambda args, _: args[2] == 7 and args[0] == "val_loss")
    run(log, os.path.join(folder, "other"), 6, "--resume", older, "--lr", "2e-3")
    tensorboard.reach("the third part", "SummaryWriter", lambda args, named: named["purge_step"] == 5)
    tensorboard.reach("the third part", "writer.add_scalar", lambda args, _: args == ["val_seconds", metrics(log)[-1][1]["val_seconds"], 6])
    tensorboard.p.send_signal(signal.SIGINT)
    tensorboard.end("%s: watched no longer" % log)

    seen = {}
    for args, _ in tensorboard.calls("writer.add_scalar"):
        seen[args[2], args[0]] = args[1]
    last = {(step, name): x for step, line in metrics(log) for name, x in line.items()}
    check({k: x for k, x in seen.items() if k[0] < 7} == last, "TensorBoard: %s, the log: %s" % (seen, last))
    texts = tensorboard.calls("writer.add_text")
    check(len(texts) == 3 and "| model | gpt2 |" in texts[0][0][1], "%s" % texts)
    begun = wandb.calls("init")
    check(len(begun) == 1 and begun[0][1]["project"] == "project" and begun[0][1]["name"] == "run" and begun[0][1]["config"]["model"] == "gpt2" and begun[0][1]["resume"] == "allow", "%s" % begun)
    check([call[0][0] for call in wandb.calls("run.log")] == [dict(line, step=step) for step, line in first], "%s" % wandb.calls("run.log"))
    check(len(wandb.calls("run.finish")) == 1 and wandb.calls("run.define_metric")[1][1] == {"step_metric": "step"}, "wandb")
    check([(call[1]["step"], call[0][0]) for call in mlflow.calls("mlflow.log_metrics")] == first, "%s" % mlflow.calls("mlflow.log_metrics"))
    check(mlflow.calls("mlflow.set_experiment")[0][0] == ["experiment"] and mlflow.calls("mlflow.log_params")[0][0][0]["option dim"] == "16", "%s" % mlflow.calls("mlflow.log_params"))
    check(mlflow.calls("mlflow.end_run") == [[["FINISHED"], {}]], "%s" % mlflow.calls("mlflow.end_run"))


def test_what_a_log_may_hold():
    """null is a gap; half a line is waited for; a line of something else is passed over; a run that stopped, and another run's log, end it."""
    folder = scratch("lines")
    log = os.path.join(folder, "log")
    start = '{"step": 0, "model": "m", "start": "2026", "lr": 0.1}\n'

    def write(text, mode="a"):
        with open(log, mode) as f:
            f.write(text)

    write(start + '{"step": 1, "loss": null, "a*b": 2}\nwhat\n{"step": 2, "lo', "w")
    mlflow = Watched(log, "mlflow", "x", more=["--name", "own"])
    mlflow.reach("step 1", "mlflow.log_metrics", lambda args, named: args == [{"a_b": 2}] and named == {"step": 1})
    write('ss": 3}\n')
    mlflow.reach("step 2", "mlflow.log_metrics", lambda args, named: args == [{"loss": 3}] and named == {"step": 2})
    write(start + '{"step": 1, "loss": 5, "other": 1}\n{"step": 1, "model": "m", "start": "2027", "lr": 0.2, "new": 1}\n', "w")
    mlflow.reach("a new parameter", "mlflow.log_params", lambda args, named: args == [{"new": 1}])
    write('{"step": 1, "end": "stopped"}\n')
    err = mlflow.end("%s: stopped" % log)
    check("%s: line 3 is none of a log, and is passed over: 'what'\n" % log in err, err)
    check(mlflow.calls("mlflow.end_run") == [[["KILLED"], {}]] and mlflow.calls("mlflow.start_run") == [[[], {"run_name": "own"}]], "%s" % mlflow.calls("mlflow.end_run"))
    write(start, "w")
    wandb = Watched(log, "wandb", "x")
    wandb.reach("a start", "init", lambda args, named: True)
    write(start.replace("2026", "2028"), "w")
    wandb.end("%s: replaced by another run's log: watch that one anew" % log)
    late = Watched(log + "2", "tensorboard", folder)
    check(late.p.stderr.readline() == "watch.py: %s2: no run has begun there yet; waiting\n" % log, "not told")
    late.p.send_signal(signal.SIGTERM)
    late.end("%s2: watched no longer" % log)


def test_refusals():
    folder = scratch("bare")
    os.mkdir(os.path.join(folder, "torch"))
    for name in ("tensorboardX.py", "wandb.py", "mlflow.py", "torch/__init__.py"):
        with open(os.path.join(folder, name), "w") as f:
            f.write("raise ImportError")
    for args, code, says in ((["--to", "tensorboard", "x"], 1, "watch.py: --to tensorboard needs the Python package tensorboard (with torch) or tensorboardX: pip install tensorboardX\n"),
                             (["--to", "wandb", "x"], 1, "watch.py: --to wandb needs the Python package wandb: pip install wandb\n"),
                             (["--to", "mlflow", "x"], 1, "watch.py: --to mlflow needs the Python package mlflow: pip install mlflow\n"),
                             (["--to", "comet", "x"], 2, "--to wants tensorboard WHERE, wandb WHERE, mlflow WHERE, not 'comet'\n"),
                             (["--to", "wandb", "x", "--poll", "0"], 2, "--poll wants a number of seconds above 0, not 0\n")):
        rc, out, err = command([sys.executable, WATCH, "log", *args], env={"PYTHONPATH": folder})
        check(rc == code and err.endswith(says) and not out, "%s: exit %d: %s" % (args, rc, err))
    rc, out, err = command([sys.executable, WATCH, folder, "--to", "mlflow", "x"], env={"PYTHONPATH": Watched("x", "mlflow", "x").folder, "NOTED": os.devnull})
    check(rc == 1 and err == "watch.py: [Errno 21] Is a directory: '%s'\n" % folder, err)
