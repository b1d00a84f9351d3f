/* A source file through libclang: its functions with their parameters' types, its first error. Runs in a process of its
 * own, so that no input of whatever kind can harm the compiler. Relies on: libclang 19 (headers at build time, the
 * library by dlopen). Relied on by: parse.c. */
#include "extension.h"

#include <clang-c/Index.h>
#include <dlfcn.h>
#include <stdlib.h>

/* ── the library ─────────────────────────────────────────────────────────────────────────────────────────────────── */
#define FUNCTIONS(F)                                                                                                   \
    F(clang_createIndex)                                                                                               \
    F(clang_parseTranslationUnit2)                                                                                     \
    F(clang_getTranslationUnitCursor)                                                                                  \
    F(clang_getNumDiagnostics)                                                                                         \
    F(clang_getDiagnostic)                                                                                             \
    F(clang_getDiagnosticSeverity)                                                                                     \
    F(clang_getDiagnosticSpelling)                                                                                     \
    F(clang_getDiagnosticLocation)                                                                                     \
    F(clang_getPresumedLocation)                                                                                       \
    F(clang_getCString)                                                                                                \
    F(clang_visitChildren)                                                                                             \
    F(clang_getCursorKind)                                                                                             \
    F(clang_getCursorSpelling)                                                                                         \
    F(clang_getCursorLocation)                                                                                         \
    F(clang_getCursorType)                                                                                             \
    F(clang_getCursorLinkage)                                                                                          \
    F(clang_isCursorDefinition)                                                                                        \
    F(clang_Location_isFromMainFile)                                                                                   \
    F(clang_getResultType)                                                                                             \
    F(clang_Cursor_getNumArguments)                                                                                    \
    F(clang_Cursor_getArgument)                                                                                        \
    F(clang_getPointeeType)                                                                                            \
    F(clang_getCanonicalType)                                                                                          \
    F(clang_getArrayElementType)                                                                                       \
    F(clang_getArraySize)                                                                                              \
    F(clang_isConstQualifiedType)                                                                                      \
    F(clang_getTypeSpelling)                                                                                           \
    F(clang_getUnqualifiedType)

static struct {
#define FIELD(f) __typeof__(f) *f;
    FUNCTIONS(FIELD)
#undef FIELD
} lib;

/* SHARDC_LIBCLANG names another one. */
static bool open_library(void) {
    static const char *const names[] = {"libclang-19.so.19", "libclang-19.so.1", "/usr/lib/llvm-19/lib/libclang.so",
                                        "libclang.so.19"};
    const char *given = getenv("SHARDC_LIBCLANG");
    void *handle = given ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; !given && !handle && i < sizeof names / sizeof *names; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle) return false;
#define LOAD(f)                                                                                                        \
    *(void **)&lib.f = dlsym(handle, #f);                                                                              \
    if (!lib.f) return false;
    FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

bool extension_reads_c(void) {
    return open_library();
}

/* ── words of a line ─────────────────────────────────────────────────────────────────────────────────────────────── */
static void word(FILE *f, const char *s) {
    fputc('\t', f);
    for (; s && *s; s++) fputc((unsigned char)*s < 32 ? ' ' : *s, f);
}

static void string_word(FILE *f, CXString s) { /* freed with the process */
    word(f, lib.clang_getCString(s));
}

static unsigned line_of(CXSourceLocation at, const char **file) {
    CXString in;
    unsigned line = 0;
    lib.clang_getPresumedLocation(at, &in, &line, NULL);
    if (file) *file = lib.clang_getCString(in);
    return line;
}

/* ── types ───────────────────────────────────────────────────────────────────────────────────────────────────────── */
static bool is_array(CXType t) {
    return t.kind == CXType_ConstantArray || t.kind == CXType_IncompleteArray || t.kind == CXType_VariableArray;
}

/* What a parameter points to: through the pointer, or the array that stands for one, and the arrays below. */
static void describe_type(FILE *f, CXType type) {
    CXType t = lib.clang_getCanonicalType(type);
    long long size[MAX_DIMS];
    int dims = 0;
    bool constant = false; /* of an array that is what its elements are */
    if (t.kind == CXType_Pointer) {
        size[dims++] = 0;
        t = lib.clang_getCanonicalType(lib.clang_getPointeeType(t));
    }
    while (is_array(t) && dims < MAX_DIMS) {
        constant |= lib.clang_isConstQualifiedType(t) != 0;
        size[dims++] = t.kind == CXType_ConstantArray ? lib.clang_getArraySize(t) : 0;
        t = lib.clang_getCanonicalType(lib.clang_getArrayElementType(t));
    }
    constant |= lib.clang_isConstQualifiedType(t) != 0;
    fprintf(f, "\t%d", constant);
    string_word(f, lib.clang_getTypeSpelling(type));
    if (dims)
        string_word(f, lib.clang_getTypeSpelling(lib.clang_getUnqualifiedType(t)));
    else
        word(f, "");
    fprintf(f, "\t%d", dims);
    for (int i = 0; i < dims; i++) fprintf(f, "\t%lld", size[i]);
}

/* ── the file ────────────────────────────────────────────────────────────────────────────────────────────────────── */
static void describe_function(FILE *f, CXCursor c) {
    fputs("function", f);
    string_word(f, lib.clang_getCursorSpelling(c));
    fprintf(f, "\t%u\t%d", line_of(lib.clang_getCursorLocation(c), NULL),
            lib.clang_getCursorLinkage(c) != CXLinkage_External);
    string_word(
        f, lib.clang_getTypeSpelling(lib.clang_getCanonicalType(lib.clang_getResultType(lib.clang_getCursorType(c)))));
    fputc('\n', f);
    for (int i = 0; i < lib.clang_Cursor_getNumArguments(c); i++) {
        CXCursor p = lib.clang_Cursor_getArgument(c, (unsigned)i);
        fputs("parameter", f);
        string_word(f, lib.clang_getCursorSpelling(p));
        fprintf(f, "\t%u", line_of(lib.clang_getCursorLocation(p), NULL));
        describe_type(f, lib.clang_getCursorType(p));
        fputc('\n', f);
    }
}

static enum CXChildVisitResult visit(CXCursor c, CXCursor parent, CXClientData out) {
    if (!lib.clang_Location_isFromMainFile(lib.clang_getCursorLocation(c))) return CXChildVisit_Continue;
    if (lib.clang_getCursorKind(c) == CXCursor_LinkageSpec) return CXChildVisit_Recurse;
    if (lib.clang_getCursorKind(c) == CXCursor_FunctionDecl && lib.clang_isCursorDefinition(c))
        describe_function(out, c);
    return CXChildVisit_Continue;
}

/* nvcc knows more names on the GPU than the headers declare: what is not declared is left to it. */
static bool left_to_nvcc(const char *text) {
    return strstr(text, "undeclared identifier") || strstr(text, "no matching function");
}

static bool describe_error(FILE *f, CXTranslationUnit unit, bool cuda) {
    for (unsigned i = 0; i < lib.clang_getNumDiagnostics(unit); i++) {
        CXDiagnostic d = lib.clang_getDiagnostic(unit, i);
        if (lib.clang_getDiagnosticSeverity(d) < CXDiagnostic_Error) continue;
        const char *text = lib.clang_getCString(lib.clang_getDiagnosticSpelling(d)), *file;
        if (cuda && left_to_nvcc(text)) continue;
        unsigned line = line_of(lib.clang_getDiagnosticLocation(d), &file);
        fputs("error", f);
        word(f, file ? file : "");
        fprintf(f, "\t%u", line);
        word(f, text);
        fputc('\n', f);
        return true;
    }
    return false;
}

void extension_clang(FILE *out, const ClangInput *in) {
    if (!open_library()) {
        fputs("library\n", out);
        return;
    }
    struct CXUnsavedFile text = {in->path, in->text, (unsigned long)strlen(in->text)};
    CXTranslationUnit unit = NULL;
    enum CXErrorCode e = lib.clang_parseTranslationUnit2(lib.clang_createIndex(0, 0), in->path, in->flags, in->nflags,
                                                         &text, 1, CXTranslationUnit_None, &unit);
    if (e || !unit) return;
    if (!describe_error(out, unit, in->cuda))
        lib.clang_visitChildren(lib.clang_getTranslationUnitCursor(unit), visit, out);
    fputs("end\n", out);
}
