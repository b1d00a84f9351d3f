/* What programs for the CPU are built with, as `shardc doctor` finds it: the C compiler, libraries, shardc's runtime;
 * and what some commands need beside it.
 * Relies on: doctor.h, emit/ (what is linked), base/places.h, extension/, runtime/text (which Python).
 * Relied on by: doctor.c. */
#include "../base/places.h"
#include "../emit/emit.h"
#include "../extension/c_file.h"
#include "../extension/extension.h"
#include "doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const char builds[] = "`shardc build` and `shardc run`";

typedef VEC(const char *) Words;

static Words words_of(Doctor *d, const char *const *first, const char *const *more) {
    Words w = {0};
    for (; *first; first++) push(&w, d->a, *first);
    for (; more && *more; more++) push(&w, d->a, *more);
    return w;
}

/* ── the C compiler ──────────────────────────────────────────────────────────────────────────────────────────────── */
static char *ask_compiler(Doctor *d, const char *const *more, const char **why) {
    Words w = words_of(d, emit_c_compiler(d->a), more);
    push(&w, d->a, NULL);
    return doctor_ask(d->a, w.at, why);
}

/* The whole path of a file where the compiler looks, or NULL. */
static const char *file_of_compiler(Doctor *d, const char *file) {
    const char *why,
        *path = ask_compiler(d, (const char *const[]){arena_printf(d->a, "-print-file-name=%s", file), NULL}, &why);
    return path && strchr(path, '/') && !access(path, R_OK) ? path_real(d->a, path) : NULL;
}

static bool compiler(Doctor *d) {
    const char *why, *given = getenv("CC"), *said = ask_compiler(d, (const char *const[]){"--version", NULL}, &why);
    bool chosen = given && given[strspn(given, " \t")];
    if (said)
        doctor_found(d, GROUP_CPU, "C compiler", "%.*s", (int)strcspn(said, "\n"), said);
    else
        doctor_lacks(d, GROUP_CPU, "C compiler", builds, chosen ? "unset CC" : doctor_install(d, "gcc libc6-dev"),
                     "%s%s", why, chosen ? " (the environment variable CC names it)" : "");
    const char *folder = places_on_path(d->a, "ld.lld");
    if (folder)
        doctor_found(d, GROUP_CPU, "linker", "%s", path_join(d->a, folder, "ld.lld", ""));
    else {
        Fact *f = doctor_found(d, GROUP_CPU, "linker", "%s", "that of the C compiler; lld is not there");
        f->condition = ABSENT;
        f->without = "builds work, and take half a second longer";
        f->mend = doctor_install(d, "lld");
    }
    return said;
}

/* ── libraries ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static const struct {
    const char *file, *name, *package, *pc;
} known[] = {{"libopenblas.a", "OpenBLAS", "libopenblas-serial-dev", "openblas.pc"},
             {"libjansson.a", "Jansson", "libjansson-dev", "jansson.pc"},
             {"libz.a", "zlib", "zlib1g-dev", "zlib.pc"}};
enum { N_KNOWN = sizeof known / sizeof *known };

/* What stands behind a key at the beginning of a line: "Version:", "version=". */
static const char *behind(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? at + strlen(key) + strspn(at + strlen(key), " \t") : "";
}

/* What the file for pkg-config beside a library says of its version; empty: there is none, or it says nothing. A
 * version may be the name of a value, "${version}". */
static const char *version_of(Doctor *d, const char *library, const char *pc) {
    const char *folder = arena_printf(d->a, "%.*s", (int)(strrchr(library, '/') - library), library);
    const char *path = path_join(d->a, folder, "pkgconfig/", pc);
    if (access(path, R_OK)) return "";
    const char *text = path_read(d->a, path, NULL), *version = behind(text, "\nVersion:");
    if (!strncmp(version, "${", 2))
        version = behind(text, arena_printf(d->a, "\n%.*s=", (int)strcspn(version + 2, "}\n"), version + 2));
    return arena_printf(d->a, "%.*s", (int)strspn(version, "0123456789."), version);
}

/* "-l:libz.a", among the folders of "-L/usr/lib/..." words and where the compiler looks. */
static void library(Doctor *d, const char *const *linked, const char *file, bool asks) {
    const char *path = NULL, *name = file, *package = file, *version = "";
    for (const char *const *w = linked; *w && !path; w++)
        if (!strncmp(*w, "-L", 2)) path = path_join(d->a, *w + 2, file, "");
    if (path && access(path, R_OK)) path = NULL;
    if (!path && asks) path = file_of_compiler(d, file);
    for (int i = 0; i < N_KNOWN; i++)
        if (!strcmp(file, known[i].file)) {
            name = known[i].name;
            package = known[i].package;
            version = path ? version_of(d, path, known[i].pc) : "";
        }
    if (path && *version)
        doctor_found(d, GROUP_CPU, name, "%s (%s)", version, path);
    else if (path)
        doctor_found(d, GROUP_CPU, name, "%s", path);
    else if (asks)
        doctor_lacks(d, GROUP_CPU, name, builds, doctor_install(d, package), "%s is not there", file);
}

/* Compiles and links a program with all that programs for the CPU are linked with, but for shardc's own library. */
static void trial(Doctor *d, const char *const *linked) {
    static const char text[] = "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
                               "int main(int n, char **v) { return printf(\"%g\\n\", exp(n)) < 0 || !v; }\n";
    const char *top = getenv("TMPDIR"), *why = NULL;
    char *folder = arena_printf(d->a, "%s/shardc-doctor-XXXXXX", top && *top ? top : "/tmp");
    if (!mkdtemp(folder)) {
        Fact *f = doctor_found(d, GROUP_CPU, "trial", "no folder can be made in %s: %s", top && *top ? top : "/tmp",
                               strerror(errno));
        f->condition = DOUBTFUL;
        f->without = "whether the C compiler works was not tried";
        f->mend = "set TMPDIR to a folder that can be written to";
        return;
    }
    const char *source = path_join(d->a, folder, "trial.c", ""), *made = path_join(d->a, folder, "trial", "");
    FILE *f = fopen(source, "w");
    bool written = f && fputs(text, f) >= 0;
    if (f && fclose(f)) written = false;
    Words w = words_of(d, emit_c_compiler(d->a), (const char *const[]){"-std=gnu17", source, "-o", made, NULL});
    for (; *linked; linked++) push(&w, d->a, *linked);
    push(&w, d->a, NULL);
    if (!written)
        why = arena_printf(d->a, "%s cannot be written: %s", source, strerror(errno));
    else if (doctor_ask(d->a, w.at, &why))
        why = NULL;
    if (why)
        doctor_lacks(d, GROUP_CPU, "trial", builds, doctor_install(d, "gcc binutils libc6-dev"),
                     "a small program cannot be compiled and linked: %s", why);
    else
        doctor_found(d, GROUP_CPU, "trial", "a small program was compiled and linked");
    unlink(source);
    unlink(made);
    rmdir(folder);
}

/* ── shardc's runtime ────────────────────────────────────────────────────────────────────────────────────────────── */
static void runtime(Doctor *d) {
    static const char *const wanted[] = {"libsc_cpu.a", "libsc_cpu_portable.a"};
    for (int i = 0; i < 2; i++) {
        const char *folder = places_library_folder(d->a, wanted[i]);
        const char *name = i ? "portable runtime" : "runtime";
        if (folder)
            doctor_found(d, GROUP_CPU, name, "%s", path_join(d->a, folder, wanted[i], ""));
        else {
            Fact *f = doctor_lacks(d, GROUP_CPU, name, i ? "`shardc build --portable`" : builds,
                                   doctor_make(d, i ? "libs-portable" : ""), "%s is not there", wanted[i]);
            if (i) f->condition = ABSENT;
        }
    }
}

/* ── beside it ───────────────────────────────────────────────────────────────────────────────────────────────────── */
static void libclang(Doctor *d) {
    const char *given = getenv("SHARDC_LIBCLANG");
    if (extension_reads_c()) {
        doctor_found(d, GROUP_CPU, "libclang", "libclang 19");
        return;
    }
    Fact *f = doctor_lacks(d, GROUP_CPU, "libclang", "models with C of their own (all-gather extensions, custom ops)",
                           given && *given ? "unset SHARDC_LIBCLANG" : doctor_install(d, "libclang1-19"),
                           "libclang 19 is not there%s%s", given && *given ? ", where SHARDC_LIBCLANG names it: " : "",
                           given && *given ? given : "");
    f->condition = ABSENT;
}

static void python(Doctor *d) {
    const char *given = getenv("SHARDC_PYTHON"), *why, *program = given && *given ? given : "python3";
    const char *const args[] = {program, "-c",
                                "import sys, importlib.metadata as m; print(sys.version.split()[0], "
                                "*[', ' + p + ' ' + m.version(p) for p in ('tokenizers', 'jinja2')], sep='')",
                                NULL};
    const char *said = doctor_ask(d->a, args, &why);
    if (said) {
        doctor_found(d, GROUP_CPU, "Python", "%.*s", (int)strcspn(said, "\n"), said);
        return;
    }
    const char *missing = strstr(why, "No package metadata") ? "the package tokenizers or jinja2 is not there"
                          : strlen(why) > 200                ? "it cannot import tokenizers and jinja2"
                                                             : why;
    bool there = strchr(program, '/') ? !access(program, X_OK) : places_on_path(d->a, program) != NULL;
    Fact *f =
        doctor_lacks(d, GROUP_CPU, "Python",
                     "`shardc data --tokenizer`, --chat and --pairs, and samples as text; nothing else needs Python",
                     there ? arena_printf(d->a, "%s -m pip install tokenizers jinja2", program)
                           : doctor_install(d, "python3 python3-pip"),
                     "%s%s%s", there ? program : "", there ? ": " : "", missing);
    f->condition = ABSENT;
}

void doctor_cpu(Doctor *d) {
    const char *const *linked = emit_linked(d->a);
    bool compiles = compiler(d);
    int least = d->facts.n;
    for (const char *const *w = linked; *w; w++)
        if (!strncmp(*w, "-l:", 3)) library(d, linked, *w + 3, compiles);
    bool all = true;
    for (int i = least; i < d->facts.n; i++) all &= d->facts.at[i].condition == FOUND;
    if (compiles && all) trial(d, linked);
    runtime(d);
    libclang(d);
    python(d);
}
