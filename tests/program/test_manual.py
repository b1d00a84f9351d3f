"""What stands beside the compiler: -h within a terminal's width, --version, the manual page, completions, and what `make install` and `make uninstall` do.

Relies on: harness.py, make, bash. Relied on by: run.py."""
import os
import re
import subprocess

from harness import BUILD, ROOT, SHARDC, build, check, command, corpus, must, scratch, shardc


def commands():
    """{command: names of its options}, as -h lists them."""
    names = re.findall(r"^  shardc (\w+)", shardc("-h"), re.M)
    names = [n for n in dict.fromkeys(names) if n not in ("COMMAND",)]
    option = re.compile(r"^ {2,6}(?:-\w, )?--([a-z][a-z-]*)", re.M)
    return {n: set(option.findall(shardc(n, "-h").partition("Example:")[0])) for n in names}


def test_help_fits_a_terminal():
    """80 columns: of shardc, of every command, of a program. Examples are not broken within a line."""
    listed, seen = commands(), 0
    check(len(listed) >= 14, "commands are %s" % sorted(listed))
    program = build("mlp.lua")
    for args in [[SHARDC, "-h"], *([SHARDC, c, "-h"] for c in listed), [program, "-h"]]:
        text = must(args)
        for line in text.split("\n"):
            check(len(line) <= 80, "%s: %d columns: %s" % (" ".join(args[1:]), len(line), line))
        lines = text.partition("\nExample")[2].split("\n")
        for line, after in zip(lines, lines[1:]):  # a command goes on in the next line behind a backslash alone
            check(not re.match("  (shardc|build/)", line) or not after or re.match("  |Example", after), "%s: an example is broken: %s" % (args[1], line))
            check(not line.endswith("\\") or after.startswith("      "), "%s: an example is broken: %s" % (args[1], line))
        seen += 1
    return "%d texts" % seen


def test_version():
    """The release and the commit that git names, of the compiler and of its programs."""
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude", "*", "--abbrev=12"], capture_output=True, text=True).stdout.strip()
    said = shardc("--version")
    check(re.match(r"shardc 0\.\d+( \(commit [0-9a-f]{12}(-dirty)?\))?\n$", said), "the version is %s" % said)
    if commit:  # of the time of the build: an edit since then may have made it dirty
        check(commit.partition("-")[0][:7] in said or "commit" in said, "the version is %s, git says %s" % (said, commit))
    program = build("mlp.lua")
    check(must([program, "--version"]) == "mlp, %s for cpu: made by %s" % (os.path.join(ROOT, "models", "mlp.lua"), said), "a program says %s" % must([program, "--version"]))


def test_manual_names_everything():
    page = open(os.path.join(ROOT, "man", "shardc.1")).read()
    check(page == shardc("man"), "man/shardc.1 is not what `shardc man` writes")
    plain, count = page.replace("\\-", "-"), 0
    for name, options in commands().items():
        part = re.search(r"^\.SS shardc %s\b(.*?)(?=^\.SS|^\.SH)" % name, plain, re.M | re.S)
        check(part, "the manual does not name %s" % name)
        for o in options:
            check("--" + o in part[1] + plain.split(".SH OPTIONS OF ALL COMMANDS")[1], "the manual does not name --%s of %s" % (o, name))
            count += 1
    if subprocess.run(["sh", "-c", "command -v groff"], capture_output=True).returncode == 0:
        r = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True, text=True)
        check(not r.stderr, "groff complains: " + r.stderr[:500])
    return "%d options" % count


def completed(script, *words):
    """What bash offers for the last word."""
    code = "source %s; COMP_WORDS=(%s); COMP_CWORD=%d; _shardc; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (script, " ".join("'%s'" % w for w in words), len(words) - 1)
    out = must(["bash", "-c", code])
    return set(out.split())


def test_completions():
    folder = scratch("manual")
    script = os.path.join(folder, "bash")
    with open(script, "w") as f:
        f.write(shardc("completions", "bash"))
    listed = commands()
    check(completed(script, "shardc", "") >= set(listed), "bash offers %s" % completed(script, "shardc", ""))
    check(completed(script, "shardc", "ins") == {"inspect"}, "bash offers %s for ins" % completed(script, "shardc", "ins"))
    for name, options in listed.items():
        got = completed(script, "shardc", name, "--")
        check(got == {"--" + o for o in options} | ({"--help"}), "%s: bash offers %s, -h lists %s" % (name, sorted(got), sorted(options)))
    check(completed(script, "shardc", "inspect", "--format", "") == {"text", "json", "html", "trace"}, "formats: %s" % completed(script, "shardc", "inspect", "--format", ""))
    for shell in ("zsh", "fish"):
        text = shardc("completions", shell)
        check(all(re.search(r"\b%s\b" % n, text) for n in listed) and all(o in text for options in listed.values() for o in options), "%s lacks a command or an option" % shell)
    rc, _, err = command([SHARDC, "completions", "csh"])
    check(rc == 2 and "there are completions for bash, zsh and fish" in err, "exit %d: %s" % (rc, err))


def files(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def test_install_and_uninstall():
    """An installed compiler works from another folder; uninstalling removes what was installed, and neither files of others nor folders that were there."""
    top = scratch("install")
    prefix = os.path.join(top, "stage", "opt", "tools")
    os.makedirs(os.path.join(prefix, "bin"))
    for name in ("bin/other", "share.txt"):
        open(os.path.join(prefix, name), "w").write("of another program\n")
    before = files(prefix)
    make = lambda what: must(["make", "-s", "-C", ROOT, what, "B=" + BUILD, "DESTDIR=" + os.path.join(top, "stage"), "PREFIX=/opt/tools", "-o", "all"])
    make("install")
    there = files(prefix)
    for wanted in ("bin/shardc", "lib/shardc/libsc_cpu.a", "share/man/man1/shardc.1", "share/shardc/models/gpt2.lua", "share/shardc/models/extensions", "share/doc/shardc/LICENSE",
                   "share/doc/shardc/README.md", "share/doc/shardc/runtime/README.md", "share/bash-completion/completions/shardc", "share/zsh/site-functions/_shardc"):
        check(any(f == wanted or f.startswith(wanted + "/") for f in there), "%s is not installed: %s" % (wanted, there[:50]))
    elsewhere = os.path.join(top, "elsewhere")
    os.mkdir(elsewhere)
    env = {k: v for k, v in os.environ.items() if k != "SHARDC_HOME"}
    installed = os.path.join(prefix, "bin", "shardc")
    must([installed, "build", os.path.join(prefix, "share/shardc/models/mlp.lua"), "--world", "2"], cwd=elsewhere, env=env)
    out = must([os.path.join(elsewhere, "build/mlp/mlp"), "--data", corpus(), "--steps", "2"], cwd=elsewhere, env=env)
    check("step 2/2" in out, "the program says " + out)
    make("install")  # again, over itself
    check(files(prefix) == there, "a second install makes %s" % sorted(set(files(prefix)) ^ set(there)))
    make("uninstall")
    check(files(prefix) == before and sorted(os.listdir(prefix)) == ["bin", "share.txt"], "uninstalling leaves %s" % sorted(set(files(prefix)) - set(before)) + str(os.listdir(prefix)))
    rc, _, err = command(["make", "-s", "-C", ROOT, "uninstall", "DESTDIR=" + os.path.join(top, "stage"), "PREFIX=/opt/tools"])
    check(rc != 0 and "nothing was installed there by make install" in err, "exit %d: %s" % (rc, err))
    return "%d files" % (len(there) - len(before))
