"""`shardc calibrate` as far as it goes without a GPU: the list of a model's kernels, finding and running sc_calibrate; and
sc_calibrate itself, where it is built, from measurements to a profile that shardc reads.

Relies on: harness.py. Relied on by: run.py."""
import os
import re

from harness import BUILD, ROOT, SHARDC, build, check, command, corpus, entry, must, scratch, shardc

MLP = os.path.join(ROOT, "models", "mlp.lua")
GPT2 = os.path.join(ROOT, "models", "gpt2.lua")
QUICK = """device NVIDIA H100 80GB HBM3|90|13000|13000|2|132
value total_bytes|85017493504
value launch_us|1.10
value memory_bandwidth|2.9e+12
value host_bandwidth|5e+10
value clock_mhz|1980
value step_mhz|1450
collective all_gather|2|100000000|330.0
"""
RAW = """world 1
library context|545259520
world 4
library NCCL first communicator|300000000
library NCCL second communicator|106847616
library further gathers|60817408
library further sums|143654912
device NVIDIA H200|90|13000|13000|4
value total_bytes|150109880320
value memory_bandwidth|4.1e12
value flops.bf16|7.9e14
value flops.fp32|5.4e13
value flops.fp8|1.4e15
value host_bandwidth|5.5e10
value launch_us|0.9
kernel fused|||0|4096|1.5
kernel fused|||0|1048576|1.4
kernel fused|||0|1073741824|262
kernel gelu_tanh|||0|805306368|446
kernel layer_norm|||402653184|201853952|51.7
kernel matmul|bf16 nn|65536,2304,768,1|232079228928|406196736|320.1
kernel matmul|bf16 nn|65536,2304,768,1|232079228928|406196736|330.1
kernel matmul|fp8_e4m3>bf16 nt|65536,2304,768,1|232079228928|354090000|190.1|1650
kernel quantize|||0|150994944|40.5|1980
kernel quantize|both||0|201326592|55.5|1980
kernel attention_grad|bf16 causal|64,12,12,1024,1024,64|257698037760|808452096|1020
collective all_gather|4|1000000|20
collective all_gather|4|100000000|330
collective reduce_scatter|4|100000000|350
collective all_to_all|4|100000000|340
beside all_gather|2|0.5|0.5
beside all_gather|4|0.02|0.65
host copies|1|5.5e10|5.4e10|9.6e10
host copies|4|1.7e11|1.3e11|2e11
host update|1|1e11
host update|4|2.5e10
"""


def test_the_kernels_of_a_model_are_listed():
    lines = shardc("calibrate", GPT2, "--set", "precision=bf16", "--set", "layers=2").splitlines()
    fields = [line.split("|") for line in lines]
    check(all(len(f) == 10 for f in fields), "a line has not ten fields:\n" + "\n".join(lines[:5]))
    check(all(len(f[9].split()) == int(f[5]) and all(":" in e for e in f[9].split()) for f in fields), "an event is missing or stands twice")
    ops = {f[0] for f in fields}
    here = [line.split("|") for line in shardc("calibrate", GPT2, "--device", "cpu", "--set", "layers=2").splitlines()]
    check({"matmul", "attention", "adam"} <= {f[0] for f in here} and all(len(f) == 10 for f in here), "the CPU's kernels: %s" % here[:3])
    check({"matmul", "attention", "attention_grad", "adam"} <= ops, "missing among %s" % sorted(ops))
    check(not ops & {"fused", "all_gather", "offload"}, "not kernels of the library: %s" % sorted(ops))
    product = next(f for f in fields if f[0] == "matmul")
    check(len(product[2].split(",")) == 4 and product[1].startswith("bf16"), "key of a product: %s" % product)
    same = [f for f in fields if f[0] == "layer_norm"]
    check(any(int(f[5]) > 1 for f in same), "equal kernels are not counted together")


def test_the_list_goes_to_a_file():
    path = os.path.join(scratch("calibrate"), "mlp.tasks")
    shardc("calibrate", MLP, "-o", path)
    check(open(path).read() == shardc("calibrate", MLP), "the file is not what is printed")


def test_only_models_have_kernels():
    rc, _, err = command([SHARDC, "calibrate", os.path.join(ROOT, "README.md")])
    check(rc == 2 and "a model's .lua file is wanted" in err, "exit %d: %s" % (rc, err))


def alone(name):
    """A folder with nothing but the compiler."""
    folder = scratch(name)
    must(["cp", SHARDC, folder])  # by a process that ends: another thread's fork would keep a file open that is to be run
    return folder, os.path.join(folder, "shardc")


def test_a_missing_program_is_named_with_the_remedy():
    _, binary = alone("calibrate")
    rc, _, err = command([binary, "calibrate"], env={"SHARDC_HOME": "/nowhere"})
    check(rc == 1 and "sc_calibrate" in err and "make cuda" in err and "SHARDC_HOME" in err, "exit %d: %s" % (rc, err))


def test_its_program_gets_the_options():
    folder, binary = alone("calibrate")
    path = os.path.join(folder, "sc_calibrate")
    must(["sh", "-c", "cat > %s && chmod 755 %s" % (path, path)], stdin="#!/bin/sh\necho \"$@\"\nexit 7\n")
    rc, out, err = command([binary, "calibrate", "-o", "a.lua", "--table", "t", "--tasks", "l", "--world", "4"])
    check((rc, out) == (7, "-o a.lua --table t --tasks l --world 4\n"), "exit %d: %s%s" % (rc, out, err))
    rc, out, err = command([binary, "calibrate", "--quick", "-o", "a.lua"])
    check((rc, out) == (7, "-o a.lua --quick\n"), "exit %d: %s%s" % (rc, out, err))
    for more, said in ((["--tasks", "l"], "--tasks: --quick measures no kernels; leave one of the two out"), (["--table", "t"], "--table: --quick measures no kernels"),
                       ([MLP], "--quick: with a MODEL, calibrate lists its kernels and measures nothing; leave MODEL out")):
        rc, _, err = command([binary, "calibrate", "--quick", *more])
        check(rc == 2 and said in err, "exit %d: %s" % (rc, err))
    must(["sh", "-c", "cat > " + path], stdin="not a program\n")
    rc, _, err = command([binary, "calibrate"])
    check(rc == 1 and "cannot run" in err and "sc_calibrate" in err, "exit %d: %s" % (rc, err))


def test_a_machine_without_gpus_is_told_at_once():
    program = os.path.join(BUILD, "sc_calibrate")
    if not os.path.exists(program):
        return "skipped: no sc_calibrate (make cuda)"
    if os.path.exists("/dev/nvidiactl"):
        return "skipped: this machine has a GPU"
    path = os.path.join(scratch("calibrate"), "mine.lua")
    rc, out, err = command([SHARDC, "calibrate", "-o", path])
    check(rc == 1 and not out and not os.path.exists(path), "exit %d: %s" % (rc, out))
    check(err == "sc_calibrate: the GPU's driver is not there (libcuda.so.1): see nvidia-smi, install the driver, or take a profile that shardc brings, "
          "as in shardc predict --device h200\n", err)


def test_measurements_become_a_profile():
    program = os.path.join(BUILD, "sc_calibrate")
    if not os.path.exists(program):
        return "skipped: no sc_calibrate (make cuda)"
    folder = scratch("calibrate")
    raw, profile = os.path.join(folder, "raw"), os.path.join(folder, "mine.lua")
    open(raw, "w").write(RAW)
    must([program, "--from", raw, "--name", "mine", "-o", profile])
    text = open(profile).read()
    for part in ('name = "mine"', 'arch = "sm_90"', "ranks_per_node = 4", '"4 ranks", 100000000, 330.00', "{ 526336, 1.45 }",
                 "2304, 768, 1, 325.10", '{ "fp8_e4m3>bf16 nt", 2.32079e+11, 3.5409e+08, 65536, 2304, 768, 1, 190.10 }', '{ "both", 201326592, 55.50 }',
                 "fp8_e4m3 = 1.979e+15, fp8_e5m2 = 1.979e+15", """flops_source = "NVIDIA's data sheet, dense",""", "attention_grad = {", "all_gather = { kernels = 0.020, itself = 0.650 }",
                 "host_optimizer_bandwidth = 2.5e+10,", "host_reads = 1.7e+11, host_writes = 1.3e+11, host_both = 2e+11, -- 4 GPUs at once",
                 'name = "NCCL", ranks = 4, further_gathers = 58 * 2^20, further_sums = 137 * 2^20, bytes = 388 * 2^20'):
        check(part in text, "no %s in\n%s" % (part, text))
    report = shardc("predict", GPT2, "--set", "precision=bf16", "--world", "4", "--device", profile)
    check(report.startswith("fits mine"), report)
    report = shardc("predict", GPT2, "--set", "precision=bf16", "--set", "matmul=fp8", "--device", profile)
    check(re.search(r"products in fp8: \d+ events, by measured kernels; \d+ of them by flops and bytes, at 0\.80 of 1979 TFLOP/s \(NVIDIA's data sheet, dense\)", entry(report, "times")), report)
    open(raw, "w").write(QUICK)
    must([program, "--quick", "--from", raw, "--name", "quick", "-o", profile])
    text = open(profile).read()
    for part in ('like = "h100"', "clock_mhz = 1980, step_mhz = 1450,", "memory_bandwidth = 2.9e+12,", "host_bandwidth = 5e+10,", "launch_us = 1.10,", '"2 ranks", 100000000, 330.00'):
        check(part in text, "no %s in\n%s" % (part, text))
    check("network" not in text and "link_bandwidth" not in text and "matmul" not in text, text)
    check(shardc("predict", GPT2, "--set", "precision=bf16", "--world", "2", "--device", profile).startswith("fits quick"), "a quick profile")
    open(raw, "w").write(QUICK.replace("H100 80GB HBM3", "GPU of tomorrow"))
    rc, _, err = command([program, "--quick", "--from", raw, "-o", profile])
    check(rc == 1 and "--quick knows no data sheet of NVIDIA GPU of tomorrow, by which to scale kernels; leave --quick out" in err, "exit %d: %s" % (rc, err))
    for n in "none", "0", "9", "2x":
        rc, _, err = command([program, "--world", n])
        check(rc == 2 and "--world %s: give a number of GPUs, from 1 to 8" % n in err, "exit %d: %s" % (rc, err))
    tasks, kept = os.path.join(folder, "tasks"), os.path.join(folder, "kept")
    for path in tasks, kept:
        open(path, "w").write("as it was\n")
    for args, code, says in ((["--only", "device,matmul"], 2, "--only device,matmul: give some of device,fp8,tasks,collectives,footprint,host"),
                             (["--table", "t"], 2, "--table t: algorithms are found for the kernels of --tasks FILE"),
                             (["--tasks", "/nowhere/list"], 1, "cannot read /nowhere/list: No such file or directory; `shardc calibrate MODEL.lua -o /nowhere/list`"),
                             (["-o", "/nowhere/mine.lua"], 1, "cannot write /nowhere/mine.lua: No such file"),
                             (["--raw", "/nowhere/raw"], 1, "cannot write /nowhere/raw: No such file"),
                             (["-o", kept, "--tasks", tasks, "--table", "/nowhere/t"], 1, "cannot write /nowhere/t: No such file")):
        rc, _, err = command([program, *args])
        check(rc == code and says in err and "sc_calibrate: footprints" not in err, "exit %d: %s" % (rc, err))
    check(open(kept).read() == "as it was\n", "the old profile is gone though nothing was measured")
    rc, _, err = command([program, "--from", os.path.join(folder, "absent")])
    check(rc == 1 and "cannot read" in err and "--raw" in err, "exit %d: %s" % (rc, err))


def test_a_table_of_algorithms_is_read_at_the_start():
    from test_cuda_host import fake, headers
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    binary = fake(build("mlp.lua", world=2))
    path = os.path.join(scratch("algorithms"), "table")
    args = [binary, "--data", corpus(), "--steps", "1"]
    rc, _, err = command(args, env={"SHARDC_ALGORITHMS": path})
    check(rc == 1 and "cannot read %s (SHARDC_ALGORITHMS): No such file" % path in err, "exit %d: %s" % (rc, err))
    entry = " ".join(["8"] * 22 + ["00000000deadbeef"] * 8)
    open(path, "w").write("# a table\ngpu A GPU\ncublaslt 130000\n%s # 1 us\n" % entry + "".join("%s %s # 1 us\n" % (entry, w) for w in ("apart", "blocks", "squares")))
    must(args, env={"SHARDC_ALGORITHMS": path})
    for line in entry.replace(" 8 00", " 256 00"), entry + " x", entry[:-20], "gpus A", entry.replace("beef", "gfed", 1), "8 " * 600:
        open(path, "w").write("gpu A GPU\ncublaslt 130000\n%s\n" % line)
        rc, _, err = command(args, env={"SHARDC_ALGORITHMS": path})
        check(rc == 1 and "%s:3: no entry of a table of matmul algorithms" % path in err, "%r: exit %d: %s" % (line[:80], rc, err))


def test_what_a_table_lacks_is_measured_and_saved():
    from test_cuda_host import fake, headers
    if not headers():
        return "skipped: no cuda_runtime.h or nccl.h"
    binary = fake(build("mlp.lua", world=2))
    path = os.path.join(scratch("algorithms"), "table")
    args = [binary, "--data", corpus(), "--steps", "1"]
    for _ in range(2):
        must(args, env={"SHARDC_TUNE": path})
        check(open(path).read().startswith("gpu "), "no table: %s" % open(path).read())
    rc, _, err = command(args, env={"SHARDC_TUNE": "/nowhere/table"})
    check(rc == 1 and "cannot write /nowhere/table (SHARDC_TUNE): No such file" in err, "exit %d: %s" % (rc, err))
