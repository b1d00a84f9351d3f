/* Embeds the Lua files into the compiler, so that a built shardc needs no files of its own at run time.
 * Relies on: the assembler's .incbin, run from the repository's root.
 * Relied on by: the front end (nn, optim, PyTorch's names), devices/ (profiles). */
#include "embed.h"

#include <string.h>

#define EMBED(symbol, path)                                                                                            \
    __asm__(".section .rodata\n"                                                                                       \
            ".balign 16\n"                                                                                             \
            "embed_" #symbol ":\n"                                                                                     \
            ".incbin \"compiler/" path "\"\n"                                                                          \
            "embed_" #symbol "_end:\n"                                                                                 \
            ".byte 0\n"                                                                                                \
            ".previous\n");                                                                                            \
    extern const char embed_##symbol[], embed_##symbol##_end[]

/* The front end runs those of lua/nn/ in this order. */
#define LUA_FILES(X)                                                                                                   \
    X(arguments, "lua/arguments.lua")                                                                                  \
    X(nn_pointwise, "lua/nn/pointwise.lua")                                                                            \
    X(nn_views, "lua/nn/views.lua")                                                                                    \
    X(nn_reductions, "lua/nn/reductions.lua")                                                                          \
    X(nn_order, "lua/nn/order.lua")                                                                                    \
    X(nn_indexing, "lua/nn/indexing.lua")                                                                              \
    X(nn_scans, "lua/nn/scans.lua")                                                                                    \
    X(nn_functions, "lua/nn/functions.lua")                                                                            \
    X(nn_activations, "lua/nn/activations.lua")                                                                        \
    X(nn_statistics, "lua/nn/statistics.lua")                                                                          \
    X(nn_matrices, "lua/nn/matrices.lua")                                                                              \
    X(nn_network, "lua/nn/network.lua")                                                                                \
    X(nn_shapes, "lua/nn/shapes.lua")                                                                                  \
    X(nn_contractions, "lua/nn/contractions.lua")                                                                      \
    X(nn_layers, "lua/nn/layers.lua")                                                                                  \
    X(nn_attention, "lua/nn/attention.lua")                                                                            \
    X(nn_rope, "lua/nn/rope.lua")                                                                                      \
    X(nn_cross_entropy, "lua/nn/cross_entropy.lua")                                                                    \
    X(nn_losses, "lua/nn/losses.lua")                                                                                  \
    X(nn_ranks, "lua/nn/ranks.lua")                                                                                    \
    X(nn_assign, "lua/nn/assign.lua")                                                                                  \
    X(nn_parameters, "lua/nn/parameters.lua")                                                                          \
    X(nn_modules, "lua/nn/modules.lua")                                                                                \
    X(nn_adapters, "lua/nn/adapters.lua")                                                                              \
    X(nn_experts, "lua/nn/experts.lua")                                                                                \
    X(nn_custom, "lua/nn/custom.lua")                                                                                  \
    X(nn_training, "lua/nn/training.lua")                                                                              \
    X(nn, "lua/nn.lua")                                                                                                \
    X(optim, "lua/optim.lua")                                                                                          \
    X(pytorch, "lua/pytorch.lua")

#define EMBED_IT(symbol, path) EMBED(symbol, path);
LUA_FILES(EMBED_IT)
#if __has_include("devices/cpu.lua")
EMBED(cpu, "devices/cpu.lua");
#endif
#if __has_include("devices/h100.lua")
EMBED(h100, "devices/h100.lua");
#endif
#if __has_include("devices/h200.lua")
EMBED(h200, "devices/h200.lua");
#endif
#if __has_include("devices/a100.lua")
EMBED(a100, "devices/a100.lua");
#endif
#if __has_include("devices/b200.lua")
EMBED(b200, "devices/b200.lua");
#endif
#if __has_include("devices/l40s.lua")
EMBED(l40s, "devices/l40s.lua");
#endif
#if __has_include("devices/rtx4090.lua")
EMBED(rtx4090, "devices/rtx4090.lua");
#endif

#define FILE_ENTRY(symbol, path)                                                                                       \
    { path, embed_##symbol, embed_##symbol##_end }
#define LUA_ENTRY(symbol, path) FILE_ENTRY(symbol, path),
static const struct {
    const char *name, *text, *end;
} files[] = {
#if __has_include("devices/cpu.lua")
    FILE_ENTRY(cpu, "devices/cpu.lua"),
#endif
#if __has_include("devices/h100.lua")
    FILE_ENTRY(h100, "devices/h100.lua"),
#endif
#if __has_include("devices/h200.lua")
    FILE_ENTRY(h200, "devices/h200.lua"),
#endif
#if __has_include("devices/a100.lua")
    FILE_ENTRY(a100, "devices/a100.lua"),
#endif
#if __has_include("devices/b200.lua")
    FILE_ENTRY(b200, "devices/b200.lua"),
#endif
#if __has_include("devices/l40s.lua")
    FILE_ENTRY(l40s, "devices/l40s.lua"),
#endif
#if __has_include("devices/rtx4090.lua")
    FILE_ENTRY(rtx4090, "devices/rtx4090.lua"),
#endif
    LUA_FILES(LUA_ENTRY)};
enum { NFILES = sizeof files / sizeof *files };

const char *embedded_text(const char *name, size_t *n) {
    for (int i = 0; i < NFILES; i++)
        if (!strcmp(files[i].name, name)) {
            *n = (size_t)(files[i].end - files[i].text);
            return files[i].text;
        }
    return NULL;
}

const char *embedded_name(int i) {
    return i >= 0 && i < NFILES ? files[i].name : NULL;
}
