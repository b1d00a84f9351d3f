/* The manual page, and completions for bash, zsh and fish, from the tables of main.c and command_line.c.
 * Relies on: manual.h, version.h.
 * Relied on by: main.c. */
#include "manual.h"

#include "../base/version.h"

static bool takes(const Manual *m, int option, int command) {
    return m->options[option].doc && m->options[option].commands >> command & 1;
}

/* ── the manual page ─────────────────────────────────────────────────────────────────────────────────────────────── */
/* A line cannot begin with a control character of roff, and minus signs stay what people type. */
static void roff(FILE *f, const char *text, size_t n) {
    bool begins = true;
    for (size_t i = 0; i < n; begins = text[i++] == '\n') {
        if (begins && (text[i] == '.' || text[i] == '\'')) fputs("\\&", f);
        if (text[i] == '\\')
            fputs("\\e", f);
        else if (text[i] == '-')
            fputs("\\-", f);
        else
            fputc(text[i], f);
    }
}

static void roff_text(FILE *f, const char *text) {
    roff(f, text, strlen(text));
    fputc('\n', f);
}

/* Lines that begin with spaces stay as they are; others are paragraphs. */
static void roff_examples(FILE *f, const char *text) {
    bool literal = false;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        bool is = *line == ' ' || (literal && !n);
        if (is != literal) fputs(is ? ".PP\n.nf\n" : ".fi\n.PP\n", f);
        literal = is;
        roff(f, line, n);
        fputc('\n', f);
        line += n + (line[n] == '\n');
    }
    if (literal) fputs(".fi\n", f);
}

static void roff_option(FILE *f, const ManualOption *o) {
    fputs(".TP\n\\fB", f);
    if (o->letter) fprintf(f, "\\-%c\\fR, \\fB", o->letter);
    fputs("\\-\\-", f);
    roff(f, o->name, strlen(o->name));
    fputs("\\fR", f);
    if (o->arg) {
        fputs(o->optional ? "[=\\fI" : " \\fI", f);
        roff(f, o->arg, strlen(o->arg));
        fputs(o->optional ? "\\fR]" : "\\fR", f);
    }
    fputc('\n', f);
    roff_text(f, o->doc);
}

static bool everywhere(const Manual *m, const ManualOption *o) {
    for (int c = 0; c < m->ncommands; c++)
        if (!(o->commands >> c & 1)) return false;
    return true;
}

void manual_page(FILE *f, const Manual *m) {
    fprintf(f,
            ".\\\" Written by `shardc man` from the tables of the command line.\n"
            ".TH SHARDC 1 \"\" \"shardc " SHARDC_RELEASE "\" \"\"\n"
            ".SH NAME\nshardc \\- ahead\\-of\\-time compiler for sharded training\n"
            ".SH SYNOPSIS\n.B shardc\n.I COMMAND\n.RI [ INPUT ]\n.RI [ OPTIONS ]\n.br\n.B shardc \\-\\-version\n"
            ".SH DESCRIPTION\n"
            "shardc compiles a model, described in Lua, to a program that trains it on one or many devices. Memory "
            "and the schedule of a step are decided when the program is made: they can be shown, compared and proven "
            "before anything runs.\n.PP\n"
            "INPUT is a model's .lua file, a plan.json or a program that shardc built. `shardc COMMAND \\-h` explains "
            "a command; a program's own options are explained by its \\-h.\n"
            ".SH COMMANDS\n");
    for (int c = 0; c < m->ncommands; c++) {
        const ManualCommand *x = &m->commands[c];
        size_t n = strcspn(x->doc, "\v");
        fprintf(f, ".SS shardc %s ", x->name);
        roff_text(f, x->args);
        roff(f, x->doc, n);
        fputc('\n', f);
        for (int o = 0; o < m->noptions; o++)
            if (takes(m, o, c) && !everywhere(m, &m->options[o])) roff_option(f, &m->options[o]);
        if (x->doc[n]) fputs(".PP\n", f);
        if (x->doc[n]) roff_examples(f, x->doc + n + 1);
    }
    fputs(".SH OPTIONS OF ALL COMMANDS\n", f);
    for (int o = 0; o < m->noptions; o++)
        if (m->options[o].doc && everywhere(m, &m->options[o])) roff_option(f, &m->options[o]);
    fputs(
        ".SH EXIT STATUS\n0 where all is well. 1 where the input is wrong, a plan does not fit or is not sound, or a "
        "bound is missed. 2 for a wrong command line.\n"
        ".SH ENVIRONMENT\n.TP\n.B SHARDC_HOME\nThe folder of shardc, where it cannot find its runtime beside itself.\n"
        ".TP\n.B CC\nThe C compiler; gcc unless given.\n"
        ".TP\n.BR CUDA_HOME \", \" NCCL_HOME \", \" CUBLAS_HOME \", \" CUDNN_HOME\nWhere CUDA and its libraries "
        "are.\n",
        f);
}

/* ── completions ─────────────────────────────────────────────────────────────────────────────────────────────────── */
/* The first sentence, without what a shell or a completion function would read. */
static const char *brief(Arena *a, const char *doc) {
    Str s = {.arena = a};
    for (size_t i = 0; doc[i] && doc[i] != '\v' && doc[i] != ';'; i++) {
        if (doc[i] == ':' || (doc[i] == '.' && (doc[i + 1] == ' ' || !doc[i + 1]))) break;
        if (!strchr("'\"[]\\$`()", doc[i])) str_bytes(&s, &doc[i], 1);
    }
    return s.n ? s.s : "";
}

static const char *names_of(Arena *a, const Manual *m, int command) { /* "--world --nodes" */
    Str s = {.arena = a};
    for (int o = 0; o < m->noptions; o++)
        if (takes(m, o, command)) str_addf(&s, "%s--%s", s.n ? " " : "", m->options[o].name);
    return s.n ? s.s : "";
}

static const char *words_of(Arena *a, const ManualOption *o) {
    Str s = {.arena = a};
    for (const char *const *w = o->words; w && *w; w++) str_addf(&s, "%s%s", s.n ? " " : "", *w);
    return s.n ? s.s : "";
}

static void bash(FILE *f, Arena *a, const Manual *m) {
    fputs("_shardc() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '",
          f);
    for (int c = 0; c < m->ncommands; c++) fprintf(f, "%s ", m->commands[c].name);
    fputs("--help --version' -- \"$cur\"))\n        return\n    fi\n    case ${COMP_WORDS[1]}:$prev in\n", f);
    for (int c = 0; c < m->ncommands; c++)
        for (int o = 0; o < m->noptions; o++)
            if (takes(m, o, c) && m->options[o].words)
                fprintf(f, "    %s:--%s) words='%s' ;;\n", m->commands[c].name, m->options[o].name,
                        words_of(a, &m->options[o]));
    fputs("    completions:completions) [[ $cur == -* ]] || words='bash zsh fish' ;;\n    esac\n"
          "    if [ -n \"$words\" ]; then\n        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n        return\n  "
          "  fi\n"
          "    case ${COMP_WORDS[1]} in\n",
          f);
    for (int c = 0; c < m->ncommands; c++)
        fprintf(f, "    %s) words='%s' ;;\n", m->commands[c].name, names_of(a, m, c));
    fputs("    esac\n    case $cur in\n    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
          "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\ncomplete -o filenames -F _shardc shardc\n",
          f);
}

static void zsh(FILE *f, Arena *a, const Manual *m) {
    fputs("#compdef shardc\n_shardc() {\n    local -a commands\n    commands=(\n", f);
    for (int c = 0; c < m->ncommands; c++)
        fprintf(f, "        '%s:%s'\n", m->commands[c].name, brief(a, m->commands[c].doc));
    fputs("    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
          "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $command in\n",
          f);
    for (int c = 0; c < m->ncommands; c++) {
        fprintf(f, "    %s)\n        _arguments", m->commands[c].name);
        for (int o = 0; o < m->noptions; o++) {
            const ManualOption *x = &m->options[o];
            if (!takes(m, o, c)) continue;
            fprintf(f, " \\\n            '*--%s%s[%s]", x->name, x->arg ? x->optional ? "=-" : "=" : "",
                    brief(a, x->doc));
            if (x->words)
                fprintf(f, ":value:(%s)", words_of(a, x));
            else if (x->arg)
                fputs(":value:_files", f);
            fputc('\'', f);
        }
        fprintf(f, " \\\n            '*:input:%s'\n        ;;\n",
                strcmp(m->commands[c].name, "completions") ? "_files" : "(bash zsh fish)");
    }
    fputs("    esac\n}\n_shardc \"$@\"\n", f);
}

static void fish(FILE *f, Arena *a, const Manual *m) {
    for (int c = 0; c < m->ncommands; c++)
        fprintf(f, "complete -c shardc -n __fish_use_subcommand -a %s -d '%s'\n", m->commands[c].name,
                brief(a, m->commands[c].doc));
    fputs("complete -c shardc -n '__fish_seen_subcommand_from completions' -f -a 'bash zsh fish'\n", f);
    for (int o = 0; o < m->noptions; o++) {
        const ManualOption *x = &m->options[o];
        if (!x->doc) continue;
        fputs("complete -c shardc -n '__fish_seen_subcommand_from", f);
        for (int c = 0; c < m->ncommands; c++)
            if (takes(m, o, c)) fprintf(f, " %s", m->commands[c].name);
        fprintf(f, "' -l %s", x->name);
        if (x->letter) fprintf(f, " -s %c", x->letter);
        if (x->words)
            fprintf(f, " -x -a '%s'", words_of(a, x));
        else if (x->arg && !x->optional)
            fputs(" -r", f);
        fprintf(f, " -d '%s'\n", brief(a, x->doc));
    }
}

void manual_completions(FILE *f, Arena *a, const Manual *m, const char *shell) {
    if (!strcmp(shell, "bash"))
        bash(f, a, m);
    else if (!strcmp(shell, "zsh"))
        zsh(f, a, m);
    else if (!strcmp(shell, "fish"))
        fish(f, a, m);
    else
        fail_usage("completions %s: there are completions for bash, zsh and fish", shell);
}
