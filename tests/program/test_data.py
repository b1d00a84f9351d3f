"""`shardc data`: text, JSON lines, and what is neither; and that programs name a file that holds no tokens.

Relies on: harness.py, models/mlp.lua. Relied on by: run.py, test_diagnostics.py."""
import bz2
import gzip
import json
import lzma
import os
import pickle
import random
import resource
import struct
import subprocess
import tarfile
import zipfile

from harness import SHARDC, build, check, command, corpus, must, scratch, shardc, write_safetensors


def write(folder, name, blob):
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(blob if isinstance(blob, bytes) else blob.encode())
    return path


def tokens(path):
    blob = open(path, "rb").read()
    magic, version, n = struct.unpack("<3i", blob[:12])
    check((magic, version, len(blob)) == (20240520, 1, 1024 + 2 * n) and not any(blob[12:1024]), "the header of " + path)
    return list(struct.unpack("<%dH" % n, blob[1024:]))


def made(folder, *args):
    """(tokens, what was printed, and noted)."""
    out = os.path.join(folder, "out.bin")
    rc, said, err = command([SHARDC, "data", *args, "-o", out])
    check(rc == 0, "exit %d: %s" % (rc, err))
    return tokens(out), said, err


def refused(folder, *args):
    out = os.path.join(folder, "refused.bin")
    rc, said, err = command([SHARDC, "data", *args, "-o", out])
    check(rc == 1 and not said and err.count("\n") == 1 and not os.path.exists(out), "%s: exit %d: %s%s" % (args, rc, said, err))
    return err


TEXTS = ["one", "", "zwei \u00fc\u20ac\U0001f600", 'a "quoted"\\/\b\f\n\r\t\0 line', "x" * 300000, "{\"text\": 1}"]


def bytes_of(texts, separator=None):
    found = []
    for t in filter(None, texts):
        if found and separator is not None:
            found.append(separator)
        found += t.encode()
    return found


def test_texts_of_json_lines():
    folder, r = scratch("jsonl"), random.Random(1)
    def line(text, plain=False):
        members = [("id", r.randrange(99)), ("text", text), ("meta", {"a": [1, -2.5e-3, None, True, {"text": "not this one"}], "b": {}}), ("list", [])]
        r.shuffle(members)
        return json.dumps(dict(members), ensure_ascii=not plain)
    forms = {
        "plain.jsonl": "".join(line(t) + "\n" for t in TEXTS),
        "utf8.ndjson": "".join(line(t, True) + "\n" for t in TEXTS),
        "crlf.JSONL": "".join(line(t) + "\r\n" for t in TEXTS),
        "no-newline.json": "\n".join(line(t) for t in TEXTS),
        "blank.jsonl": "\n \t\r\n" + "\n\n".join(line(t) for t in TEXTS) + "\n\n\n",
        "bom.jsonl": b"\xef\xbb\xbf" + "\n".join(line(t) for t in TEXTS).encode(),
        "by-its-bytes": "\n".join(line(t) for t in TEXTS),
    }
    for name, blob in forms.items():
        got, said, err = made(folder, write(folder, name, blob), "--separator", "500")
        check(got == bytes_of(TEXTS, 500) and not err, "%s: %d tokens" % (name, len(got)))
        check(", %d texts of JSON lines, a byte each" % len(TEXTS) in " ".join(said.split()), said)
    path = os.path.join(folder, "plain.jsonl")
    got, said, err = made(folder, path)
    check(got == bytes_of(TEXTS) and err == "shardc: note: no token stands between the texts of JSON lines: --separator TOKEN puts one there\n", err)
    content = write(folder, "content.jsonl", '{"content": "in it", "text": 3}\n')
    check(made(folder, content, "--key", "content")[0] == list(b"in it"), "another key")
    check(made(folder, path, "--as", "text")[0] == list(forms["plain.jsonl"].encode()) == made(folder, path, "--as", "bytes")[0], "as text")
    check(made(folder, os.path.join(folder, "by-its-bytes"), "--as", "jsonl")[0] == bytes_of(TEXTS), "as JSON lines")
    text = write(folder, "a.txt", "a text\n")
    check(made(folder, text, content, text, "--key", "content", "--separator", "9")[0] == list(b"a text\n\x09in it\x09a text\n"), "files of several kinds")
    p = subprocess.run([SHARDC, "data", "/dev/stdin", "-o", os.path.join(folder, "pipe.bin"), "--separator", "500"], input=forms["plain.jsonl"].encode(), capture_output=True)
    check(p.returncode == 0 and tokens(os.path.join(folder, "pipe.bin")) == bytes_of(TEXTS, 500), "through a pipe: %s" % p.stderr)
    return "%d forms" % len(forms)


BROKEN = [
    ('{"text": "cut sho', "the line ends within a string"), ('{"text": "a"', "the line ends where ',' or '}' is wanted"), ('{"text": "a",', "the line ends where a string is wanted"),
    ('{"text": "a",}', "column 14: '}' stands where a string is wanted: no JSON"), ("{'text': 'a'}", "column 2: ''' stands where a string is wanted"),
    ('{"text" "a"}', "where ':' is wanted"), ('{"text": "a"} {"text": "b"}', "column 15: '{' stands where the line's end is wanted"), ('{"text": "a"}]', "where the line's end is wanted"),
    ("some text", "column 1: 's' stands where an object, '{', is wanted"), ('["a"]', "where an object"), ('"a"', "where an object"), ("null", "where an object"),
    ('{"text": "a", "n": NaN}', "column 20: 'N' stands where a value is wanted"), ('{"text": "a", "n": 01}', "column 21: '1' stands"), ('{"text": "a", "n": +1}', "where a value"),
    ('{"text": "a", "n": 1.}', "where a digit is wanted"), ('{"text": "a", "n": -}', "where a digit"), ('{"text": "a", "n": 1e}', "where a digit"), ('{"text": "a", "n": tru}', "where a value"),
    ('{"text": "a", "n": [1 2]}', "where ',' or ']' is wanted"), ('{"text": "a", "n": {"b" 2}}', "where ':' is wanted"), ('{"text": "a", "n": {"b": 2]}', "where ',' or '}' is wanted"), ('{"text": "a", "n": ' + "[" * 600, "more than 512 deep"),
    ('{"text": "a\tb"}', "column 12: byte 0x09 within a string"), ('{"text": "a\\x"}', "column 12: no escape of JSON"), ('{"text": "\\u12g4"}', "no escape"), ('{"text": "\\u12', "no escape"), ('{"text": "\\', "no escape"),
    ('{"text": "\\ud800"}', "column 11: \\ud800 is half a character"), ('{"text": "\\ude00\\ud83d"}', "is half a character"), ('{"text": "\\ud83dx"}', "half a character"),
    (b'{"text": "a\xffb"}', "column 12: byte 0xff is no UTF-8"), (b'{"text": "\xc3"}', "is no UTF-8"), (b'{"text": "\xed\xa0\x80"}', "is no UTF-8"), (b'{"text": "a"}\0', "column 14: byte 0x00 stands"), (b'{"text": "\xe2\x82', "is no UTF-8"),
    ('{"content": "a", "id": 1}', 'it has no "text", but "content", "id"; --key NAME says'), ("{}", 'it has no "text": it is empty'), ('{"Text": "a"}', 'it has no "text", but "Text"'),
    ('{"text": 3}', '"text" is a number, not a string'), ('{"text": null}', '"text" is null'), ('{"text": ["a"]}', '"text" is a list'), ('{"text": {"a": "b"}}', '"text" is an object'), ('{"text": true}', "a truth value"),
    ('{"text": "a", "text": "b"}', 'it has "text" twice'),
]


def test_broken_json_lines_are_refused_with_their_number():
    folder = scratch("broken")
    good = b'{"text": "one"}\n'
    for bad, want in BROKEN:
        bad = bad if isinstance(bad, bytes) else bad.encode()
        for name, blob, number in ("x.jsonl", bad, 1), ("x.jsonl", good + b"\n" + good + bad + b"\n" + good, 4), ("x.jsonl", good + bad, 2), ("x", good * 3000 + bad, 3001):
            path = write(folder, name, blob)
            err = refused(folder, path)
            check(err.startswith("%s:%d: " % (path, number)) and want in err, "%r: wanted %s, got %s" % (bad, want, err))
    path = write(folder, "list.json", '[{"text": "one"},\n {"text": "two"}]\n')
    check("list.json:1: column 1: '[' stands where an object, '{', is wanted: no JSON. JSON lines have an object a line, which `jq -c '.[]'` makes of a list; --as text" in refused(folder, path), "a list")
    check("pretty.json:1: the line ends where a string" in refused(folder, write(folder, "pretty.json", '{\n  "text": "one"\n}\n')), "JSON over several lines")
    for blob in b"", b"\n\n", b'{"text": ""}\n', b"\xef\xbb\xbf":
        check("no tokens to write: " in refused(folder, write(folder, "empty.jsonl", blob)), "%r" % blob)
    path = write(folder, "huge.jsonl", "{")
    os.truncate(path, 1 << 30)
    p = subprocess.run([SHARDC, "data", path, "-o", os.path.join(folder, "x.bin")], capture_output=True, text=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20)))
    check(p.returncode == 1 and "huge.jsonl: no memory for a line of more than" in p.stderr, p.stderr)
    return "%d broken lines" % len(BROKEN)


def foreign(folder):
    """{name: (blob, what is said of it)}."""
    lines = b'{"text": "one"}\n{"text": "two"}\n' * 4
    zipped, tarred = os.path.join(folder, "x.zip"), os.path.join(folder, "x.tar")
    with zipfile.ZipFile(zipped, "w") as z:
        z.writestr("a.txt", lines)
    with tarfile.open(tarred, "w") as t:
        t.add(zipped, "x.zip")
    numpy = "{'descr': '<u2', 'fortran_order': False, 'shape': (64,), }\n"
    safe = os.path.join(folder, "seed.safetensors")
    write_safetensors(safe, {"tokens": ("I64", [2], bytes(16))})
    return {
        "x.jsonl.gz": (gzip.compress(lines), "compressed by gzip"), "x.jsonl": (gzip.compress(lines), "compressed by gzip"), "x.xz": (lzma.compress(lines), "compressed by xz"),
        "x.bz2": (bz2.compress(lines), "compressed by bzip2"), "x.zip": (open(zipped, "rb").read(), "a zip archive"), "x.tar": (open(tarred, "rb").read(), "a tar archive"),
        "p4.pkl": (pickle.dumps(list(range(99)), 4), "a pickle of Python"), "p2.pkl": (pickle.dumps(list(range(99)), 2), "a pickle of Python"), "x.safetensors": (open(safe, "rb").read(), "a safetensors file"),
        "x.parquet": (b"PAR1\x15\x04\x15\x10" + bytes(64) + b"PAR1", "a Parquet file"), "x.arrow": (b"ARROW1\0\0" + bytes(64), "an Arrow file"), "x.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file"),
        "x.zst": (b"\x28\xb5\x2f\xfd\x24\x05" + bytes(8), "compressed by zstd"), "utf16.txt": ("some text\n".encode("utf-16"), "text in UTF-16"),
        "x.npy": (b"\x93NUMPY\1\0" + struct.pack("<H", len(numpy)) + numpy.encode() + bytes(range(128)), "an array of NumPy"),
        "llmc.bin": (open(corpus(), "rb").read()[:5000], "tokens in llm.c's format"),
    }


def test_what_is_no_text_is_refused_by_name():
    folder = scratch("foreign")
    for name, (blob, what) in foreign(folder).items():
        path = write(folder, name, blob)
        err = refused(folder, path)
        tokens_already = what in ("an array of NumPy", "tokens in llm.c's format")
        check("%s: it is %s%s: " % (path, what, "" if tokens_already else ", and not text") in err and ("--data" if tokens_already else "--as bytes makes tokens") in err, err)
        check(made(folder, path, "--as", "bytes")[0] == list(blob), "%s as bytes" % name)
    latin = b"Gr\xfc\xdfe, in Latin-1\n"
    check(made(folder, write(folder, "latin.txt", latin))[0] == list(latin), "text in another encoding is bytes")
    check(made(folder, write(folder, "bom.txt", b"\xef\xbb\xbfa text"))[0] == list(b"a text"), "the mark of UTF-8 is no text")
    return "%d formats" % len(foreign(folder))


def test_programs_name_what_holds_no_tokens():
    """Whatever gives a width: the option, the file's name; as training data and as validation data."""
    folder, binary = scratch("no-tokens"), build("mlp.lua")
    more = {"x.jsonl": (b'{"text": "one"}\n' * 64, "JSON"), "x.txt": (b"some text of some lines\n" * 64, "text")}
    for name, (blob, what) in {**foreign(folder), **more}.items():
        if what in ("an array of NumPy", "tokens in llm.c's format", "a safetensors file", "a .npz archive of NumPy"): # arrays of inputs: test_arrays.py
            continue
        path = write(folder, name + ".uint16.bin", blob)
        for args in (["--data", path], ["--data", path, "--data-dtype", "uint32"], ["--data", corpus(), "--val-data", path]):
            rc, out, err = command([binary, *args, "--steps", "1"])
            check(rc == 1 and "%s: it is %s, and not tokens: " % (path, what) in err and err.count("\n") == 1 and not out, "%s: exit %d: %s" % (args, rc, err))
    return "%d formats" % (len(foreign(folder)) + len(more) - 2)


def test_an_array_of_numpy_is_trained_on_as_raw_tokens_are():
    folder, binary = scratch("numpy"), build("mlp.lua")
    found = tokens(corpus())
    raw = write(folder, "raw.uint16", struct.pack("<%dH" % len(found), *found))
    want = must([binary, "--data", raw, "--steps", "3", "--sample", "9", "--quiet"])
    for dtype, code in ("<u2", "H"), (">i4", ">i"), ("<i8", "q"):
        dict_ = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (dtype, len(found))
        dict_ = dict_.ljust(117) + "\n"
        blob = b"\x93NUMPY\1\0" + struct.pack("<H", len(dict_)) + dict_.encode() + struct.pack(code[:-1] + "%d%s" % (len(found), code[-1]), *found)
        path = write(folder, "x_uint16.npy", blob)
        out = must([binary, "--data", path, "--steps", "3", "--sample", "9", "--quiet", "--data-dtype", "uint16"])
        check(out == want, "%s: %s, not %s" % (dtype, out, want))
        out = must([binary, "--data", path, "--steps", "1"])
        check("data     1 file, %s tokens," % format(len(found), ",") in out, out)
        path = write(folder, "short.npy", blob[:-1])
        rc, _, err = command([binary, "--data", path, "--steps", "1"])
        check(rc == 1 and "truncated; copy it again" in err, err)
