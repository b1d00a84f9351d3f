"""Tokens of texts and conversations, and text of tokens, for `shardc data` and for sampling: Hugging Face's `tokenizers` does the work.

Started as `python3 -c THIS MODE ARGUMENTS`; the modes are at the end. What it writes is described in helper.h.
Relies on: tokenizers; jinja2 for conversations. Relied on by: helper.c, which holds this file."""
import json
import os
import struct
import sys

TARGET = 1 << 31  # of a token: training wants it to be predicted
NONE = ERROR = 0xFFFFFFFF
BATCH = 512  # lines that are tokenized at once, on all processors


class Refused(Exception):
    """What is wrong, for people; file: its number among those given, line: from 1, or 0."""

    def __init__(self, text, file=None, line=0):
        super().__init__(text)
        self.file, self.line = file, line


def put(ids):
    sys.stdout.buffer.write(struct.pack("<%dI" % (len(ids) + 1), len(ids), *ids))


def package(name):
    try:
        return __import__(name)
    except ImportError:
        raise Refused("the Python package %s is missing (%s): `%s -m pip install tokenizers jinja2` installs it, or set SHARDC_PYTHON to a Python that has it"
                      % (name, sys.executable, sys.executable)) from None


# ── the tokenizer and what stands beside it ──────────────────────────────────────────────────────────────────────────────────────
def read_json(path):
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise Refused("%s: %s" % (path, e)) from None
    if not isinstance(found, dict):
        raise Refused("%s: it is no JSON object" % path)
    return found


def content(token):
    return token.get("content") if isinstance(token, dict) else token


class Tokenizer:
    """path: a tokenizer.json, or the folder of one."""

    def __init__(self, path):
        tokenizers = package("tokenizers")
        file = os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path
        self.folder = os.path.dirname(file) or "."
        if not os.path.exists(file):
            slow = os.path.exists(os.path.join(self.folder, "tokenizer.model"))
            raise Refused("%s: there is no such file%s" % (file, "; tokenizer.model beside it becomes one by transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)" if slow else
                                                            "; give the tokenizer.json of a Hugging Face model, or its folder"))
        try:
            self.of = tokenizers.Tokenizer.from_file(file)
        except Exception as e:  # the package raises nothing narrower
            raise Refused("%s: it is no tokenizer.json of Hugging Face: %s" % (file, e)) from None
        self.of.no_truncation()
        self.of.no_padding()
        self.config = read_json(os.path.join(self.folder, "tokenizer_config.json"))
        self.names = {k: content(v) for k, v in {**read_json(os.path.join(self.folder, "special_tokens_map.json")), **self.config}.items()
                      if k.endswith("_token") and isinstance(content(v), str)}
        self.special = {i for i, t in self.of.get_added_tokens_decoder().items() if t.special}

    def id(self, name):
        """The id of "eos_token" or "pad_token"; NONE: the model has none."""
        found = self.of.token_to_id(self.names[name]) if name in self.names else None
        for config in ("generation_config.json", "config.json") if found is None else ():
            found = read_json(os.path.join(self.folder, config)).get(name + "_id")
            found = found[0] if isinstance(found, list) and found else found
            if isinstance(found, int):
                break
        return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < self.size() else NONE

    def size(self):
        return self.of.get_vocab_size(with_added_tokens=True)

    def template(self, given):
        """The chat template's text: of the file `given`, or of what stands beside the tokenizer; None: there is none."""
        if given == "none":
            return None
        path = given or os.path.join(self.folder, "chat_template.jinja")
        if given or os.path.exists(path):
            try:
                with open(path, encoding="utf-8") as f:
                    return f.read()
            except (OSError, ValueError) as e:
                raise Refused("%s: %s" % (path, e)) from None
        found = self.config.get("chat_template") or read_json(os.path.join(self.folder, "chat_template.json")).get("chat_template")
        if isinstance(found, list):  # several with names
            named = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
            found = named.get("default")
            if not found:
                raise Refused("%s has the chat templates %s and no default: write the one to use into a file, and give --chat-template FILE"
                              % (os.path.join(self.folder, "tokenizer_config.json"), ", ".join(map(repr, named))))
        return found if isinstance(found, str) else None


# ── conversations ────────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What a template's {% generation %} blocks render stands between these two characters, which no text may hold.
BEGIN, END = "\ufdd0", "\ufdd1"


def compiled(text, tokenizer):
    """A function (messages, tools, whether the answer's beginning follows) -> text, as Hugging Face's templates are rendered."""
    package("jinja2")
    import datetime
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

        def _mark(self, caller):
            return BEGIN + caller() + END

    def refuse(message):
        raise jinja2.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        template = env.from_string(text)
    except jinja2.TemplateError as e:
        raise Refused("the chat template cannot be read: %s" % e) from None

    def render(messages, tools, prompt):
        try:
            return template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=prompt, **tokenizer.names)
        except Exception as e:  # a template may raise anything
            raise Refused("the chat template refuses the conversation: %s" % e) from None
    return render


ROLES = {"human": "user", "gpt": "assistant", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
PAIRS = ("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("query", "response"), ("instruction", "output")


def messages_of(found, what):
    """Messages as templates take them, of those of a data set: {"role", "content"}, or ShareGPT's {"from", "value"}."""
    messages = []
    if not isinstance(found, list) or not found:
        raise Refused('"%s" must be a list of messages' % what)
    for m in found:
        if isinstance(m, dict) and "from" in m and "value" in m:
            m = {"role": ROLES.get(m["from"], m["from"]), "content": m["value"], **{k: v for k, v in m.items() if k not in ("from", "value")}}
        if not isinstance(m, dict) or not isinstance(m.get("role"), str):
            raise Refused('a message of "%s" has no "role"; messages are {"role": "user", "content": "..."}' % what)
        if any(mark in str(m.get("content")) for mark in (BEGIN, END)):
            raise Refused('a message of "%s" holds U+FDD0 or U+FDD1, which are no characters; remove them' % what)
        messages.append(m)
    return messages


def pair_of(line):
    """(prompt, answer) where the line is one of texts; None: it is not."""
    for prompt, answer in PAIRS:
        if isinstance(line.get(prompt), str) and isinstance(line.get(answer), str):
            more = line.get("input")
            return line[prompt] + ("\n\n" + more if prompt == "instruction" and isinstance(more, str) and more else ""), line[answer]
    return None


def said(text, role):
    return [{"role": role, "content": text}] if isinstance(text, str) else messages_of(text, "prompt" if role == "user" else "answer")


class Chat:
    def __init__(self, tokenizer, template, all_turns=True):
        text = tokenizer.template(template)
        self.tokenizer, self.render = tokenizer, compiled(text, tokenizer) if text else None
        self.marks = bool(text) and "endgeneration" in text

    def encode(self, text, spans, specials=False, open_ended=True):
        """Tokens; those that a span [begin, end) of the text overlaps are targets. open_ended: so is the special token right behind a span that ends with none."""
        found = self.tokenizer.of.encode(text, add_special_tokens=specials)
        ids, at = [], 0
        spans = sorted(s for s in spans if s[0] < s[1])
        for token, (begin, end) in zip(found.ids, found.offsets):
            while at < len(spans) and begin >= spans[at][1]:
                ended = ids and ids[-1] & TARGET and ids[-1] & ~TARGET in self.tokenizer.special
                if open_ended and token in self.tokenizer.special and not ended and text[spans[at][1]:begin].strip() == "" and end > 0:
                    token |= TARGET
                at += 1
            inside = at < len(spans) and begin < spans[at][1] and (begin >= spans[at][0] or end > spans[at][0]) and end > 0
            ids.append(token | TARGET if inside else token)
        return ids

    def marked(self, text):
        """The text without marks, and the spans between them."""
        spans, parts, n = [], [], 0
        for i, part in enumerate(text.replace(END, BEGIN).split(BEGIN)):
            if i % 2:
                spans.append((n, n + len(part)))
            parts.append(part)
            n += len(part)
        return "".join(parts), spans

    def span(self, text, messages, i, tools):
        """Where answer i stands in the conversation's text: from where the prompt for it ends, to the end of its turn."""
        before = self.render(messages[:i], tools, True) if i else self.render([], tools, True)
        after = self.render(messages[:i + 1], tools, False)
        if text.startswith(before) and text.startswith(after) and len(after) >= len(before):
            return len(before), len(after.rstrip())
        # A template that writes earlier answers otherwise than the last one (without their reasoning): what changes with the content is the answer.
        other = list(messages)
        answer = messages[i].get("content")
        if not isinstance(answer, str) or not answer.strip():
            raise Refused("message %d: the chat template writes it in another way when it is not the last one, so that its tokens cannot be told; leave it out" % (i + 1))
        other[i] = {**messages[i], "content": "\ufdd2"}
        changed = self.render(other, tools, False)
        at = changed.find("\ufdd2")
        tail = len(changed) - at - 1
        if at < 0 or not text.startswith(changed[:at]) or not text.endswith(changed[at + 1:]) or len(text) < at + tail:
            raise Refused("message %d: where the chat template puts its text cannot be told; mark it by {%% generation %%} in a template of your own (--chat-template FILE)" % (i + 1))
        begin = len(before) if text.startswith(before) and len(before) <= at else at
        return begin, len(text) - tail

    def conversation(self, messages, tools=None, first=0):
        """Tokens of a conversation; the assistant's messages from `first` on are targets, but those with "weight": 0 or "train": false."""
        if not self.render:
            raise Refused("the tokenizer has no chat template; give --chat-template FILE, or lines of {\"prompt\": \"...\", \"completion\": \"...\"}")
        wanted = [i for i, m in enumerate(messages) if i >= first and m["role"] == "assistant" and m.get("weight", 1) != 0 and m.get("train", True) is not False]
        text = self.render(messages, tools, False)
        if self.marks:
            text, spans = self.marked(text)
            answers = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
            if wanted != answers and len(spans) != len(answers):
                raise Refused("the chat template marks %d places by {%% generation %%}, and the conversation has %d answers, of which some are no targets" % (len(spans), len(answers)))
            spans = spans if wanted == answers else [s for i, s in zip(answers, spans) if i in wanted]
        else:
            spans = [self.span(text, messages, i, tools) for i in wanted]
        return self.encode(text, spans, open_ended=not self.marks)

    def plain(self, prompt, answer):
        ids, eos = self.encode(prompt + answer, [(len(prompt), len(prompt) + len(answer))], True), self.tokenizer.id("eos_token")
        if eos != NONE and (not ids or ids[-1] & ~TARGET != eos):
            ids.append(eos)
        return ids[:-1] + [ids[-1] | TARGET] if eos != NONE else ids

    def sample(self, line):
        """Tokens of a line that is one conversation, or one prompt with its answer."""
        pair = pair_of(line)
        for name in ("messages", "conversations", "conversation"):
            if name in line:
                return self.conversation(messages_of(line[name], name), line.get("tools"))
        if pair:
            return self.conversation(said(pair[0], "user") + said(pair[1], "assistant")) if self.render else self.plain(*pair)
        if isinstance(line.get("prompt"), list) and "completion" in line:
            prompt = messages_of(line["prompt"], "prompt")
            return self.conversation(prompt + said(line["completion"], "assistant"), line.get("tools"), len(prompt))
        raise Refused('it has neither "messages" nor a prompt and its answer ("prompt" and "completion", "question" and "answer", "instruction" and "output"), but %s%s'
                      % (", ".join('"%s"' % k for k in list(line)[:8]) or "nothing", "; --pairs in place of --chat reads answers that were compared" if "chosen" in line and "rejected" in line else ""))

    def answers(self, line):
        """Tokens of the chosen and of the rejected answer, each behind the prompt; what comes before the answers is no target."""
        if "chosen" not in line or "rejected" not in line:
            raise Refused('it has no "chosen" and "rejected", but %s' % (", ".join('"%s"' % k for k in list(line)[:8]) or "nothing"))
        both = [line["chosen"], line["rejected"]]
        if all(isinstance(x, str) for x in both) and isinstance(line.get("prompt"), str) and not self.render:
            return [self.plain(line["prompt"], x) for x in both]
        if "prompt" in line:
            prompt = said(line["prompt"], "user")
            both = [said(x, "assistant") for x in both]
            n = len(prompt)
            both = [x if x[:n] == prompt and len(x) > n else prompt + x for x in both]
        elif all(isinstance(x, list) for x in both):
            both = [messages_of(x, "chosen") for x in both]
            n = next((i for i, (a, b) in enumerate(zip(*both)) if a != b), min(map(len, both)))
        else:
            raise Refused('without a "prompt", "chosen" and "rejected" must be lists of messages that begin alike')
        return [self.conversation(x, line.get("tools"), n) for x in both]


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def lines(path, number):
    """(number of the line, object) of JSON lines."""
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as f:
            for n, line in enumerate(f, 1):
                if not line.strip():
                    continue
                try:
                    found = json.loads(line.rstrip())
                except ValueError as e:
                    raise Refused("%s. JSON lines have an object a line" % str(e).replace("line 1 column", "column"), number, n) from None
                if not isinstance(found, dict):
                    raise Refused("it is no JSON object", number, n)
                yield n, found
    except (OSError, UnicodeDecodeError) as e:
        raise Refused(str(e), number) from None


ENDS = 8  # SC_TEXT_ENDS


def head(tokenizer):
    pad, end = tokenizer.id("pad_token"), tokenizer.id("eos_token")
    more = read_json(os.path.join(tokenizer.folder, "generation_config.json")).get("eos_token_id")
    ends = [end] + [i for i in (more if isinstance(more, list) else [more]) if isinstance(i, int) and 0 <= i < tokenizer.size() and i != end]
    sys.stdout.buffer.write(struct.pack("<%dI" % (3 + ENDS), tokenizer.size(), end, pad if pad != NONE else end, *(ends + ENDS * [NONE])[:ENDS]))


def conversations(path, template, pairs, *files):
    """A record a conversation, or two a line of answers that were compared."""
    tokenizer = Tokenizer(path)
    chat = Chat(tokenizer, template)
    head(tokenizer)
    for number, file in enumerate(files):
        for n, line in lines(file, number):
            try:
                for ids in chat.answers(line) if pairs == "pairs" else [chat.sample(line)]:
                    put(ids)
            except Refused as e:
                raise Refused(str(e), number, n) from None


def texts(path, key, form, *files):
    """A record a text, its end of text included: of JSON lines one a line, else one a file."""
    tokenizer = Tokenizer(path)
    eos = tokenizer.id("eos_token")
    head(tokenizer)

    def out(batch):
        for found in tokenizer.of.encode_batch(batch):
            put(found.ids + ([eos] if eos != NONE and (not found.ids or found.ids[-1] != eos) else []))
    for number, file in enumerate(files):
        if form == "jsonl" or (form == "" and file.lower().endswith((".jsonl", ".ndjson", ".json"))):
            batch = []
            for n, line in lines(file, number):
                if not isinstance(line.get(key), str):
                    raise Refused('it has no text as "%s", but %s; --key NAME says which member is the text' % (key, ", ".join('"%s"' % k for k in list(line)[:8]) or "nothing"), number, n)
                batch.append(line[key])
                if len(batch) == BATCH:
                    out(batch)
                    batch = []
            out(batch)
        else:
            try:
                with open(file, encoding="utf-8-sig", newline="") as f:
                    out([f.read()])
            except (OSError, UnicodeDecodeError) as e:
                raise Refused(str(e), number) from None


def prompt(path, template, chat, text):
    """Tokens of the beginning of a text, or of a conversation in which the user has said it."""
    tokenizer = Tokenizer(path)
    head(tokenizer)
    if chat == "chat":
        of = Chat(tokenizer, template)
        if not of.render:
            raise Refused("the tokenizer has no chat template: leave --chat out, or give --chat-template FILE")
        put([i & ~TARGET for i in of.encode(of.marked(of.render(said(text, "user"), None, True))[0], [])])
        return
    ids = tokenizer.of.encode(text).ids
    put(ids[:-1] if len(ids) > 1 and ids[-1] == tokenizer.id("eos_token") else ids)


def show(path):
    """Text of the tokens that arrive on standard input, as soon as its characters are whole."""
    tokenizer, ids, shown, begin = Tokenizer(path), [], 0, 0
    while blob := sys.stdin.buffer.read(4):
        ids.append(struct.unpack("<I", blob)[0])
        # A token's text depends on the one before it: decode a few together, and show what is new.
        before, after = tokenizer.of.decode(ids[begin:shown]), tokenizer.of.decode(ids[begin:])
        if len(after) > len(before) and not after.endswith("\ufffd"):
            sys.stdout.write(after[len(before):])
            sys.stdout.flush()
            begin, shown = shown, len(ids)
    sys.stdout.write(tokenizer.of.decode(ids[begin:])[len(tokenizer.of.decode(ids[begin:shown])):])
    sys.stdout.flush()


def main(mode, *arguments):
    try:
        {"conversations": conversations, "texts": texts, "prompt": prompt, "show": show}[mode](*arguments)
        sys.stdout.flush()
    except Refused as e:
        text = str(e).encode()
        if mode == "show":
            sys.exit("tokenizer: %s" % e)
        sys.stdout.buffer.write(struct.pack("<4I", ERROR, NONE if e.file is None else e.file, e.line, len(text)) + text)
        sys.stdout.flush()
        sys.exit(1)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
