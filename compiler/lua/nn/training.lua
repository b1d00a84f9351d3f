-- nn: recomputation, policies, inputs, training.
-- Relies on: the table `prim` (frontend/*.c, arguments.lua), whose field nn this file adds functions to.
-- Relied on by: nn.lua, which makes the module of it.
local prim = prim
local nn, fail, describe, is_module = prim.nn, prim.refuse, prim.describe, prim.is_module

-- ── recomputation, policies, training ────────────────────────────────────────────────────────────────────────────────

-- nn.checkpoint(fn, x, ...) returns fn(x, ...) and computes it again in the backward, as torch.utils.checkpoint. fn is
-- a function or a module. nn.checkpoint(options, fn, x, ...) takes the options of nn.checkpoint_wrapper.
function nn.checkpoint(options, ...)
  if type(options) == "table" and not is_module(options) then
    local fn = ...
    if type(fn) ~= "function" and not is_module(fn) then fail(nil, "nn.checkpoint: expected a function or a module, got %s", describe(fn)) end
    prim.enter_checkpoint(prim.checkpoint_options(options))
    return prim.leave(fn(select(2, ...)))
  end
  return nn.checkpoint({}, options, ...)
end

-- nn.checkpoint_wrapper(module, {           the same options as nn.checkpoint, for every call of a module
--   recompute = true,                        false: keep everything, but for what `offload` names
--   save = { "attention", "mlp.up_proj" },   kept: ops, kinds of modules, paths, a path's op ("attn:rope"), "input", "*"
--   offload = { "input" },                   kept in host memory
-- })
-- nn.fully_shard(module, {                   makes a unit of it; entries of --policy files take the same options, and stand
--                                            over these, option by option. With their defaults:
--   mesh = nn.mesh { replicate = 1 },        replicate and shard, one of which may be left out; shard = 1 is DDP. Each unit
--                                            may have its own. expert = n: its experts are spread over n of the ranks that
--                                            shard, neighbours, each of which has whole experts
--   reshard_after_forward = true,            false: gathered once a microbatch, which is also the root's default; n: each
--                                            group of n neighbours keeps it whole, and the backward gathers within
--   reshard_after_backward = true,           false, under accumulation: gathered once a step
--   requires_gradient_sync = true,           false, under accumulation: whole gradients are summed, and reduced once a step
--   requires_all_reduce = true,              false, likewise: shards are, and summed over replicas once a step
--   mp_policy = { param_dtype, reduce_dtype, output_dtype, buffer_dtype, cast_forward_inputs = true,
--                                            the first two: the stored dtype unless given
--     matmul_dtype,                          "fp8": nn.linear and x W of the unit's parameters multiply in fp8, on GPUs of
--                                            compute capability 8.9 and later, and emulated on the CPU
--     recipe = "tensor",                     its scales: of each tensor as it is; "delayed": of the last 16 steps, whose
--                                            largest magnitudes are kept beside the state, so that kernels write 8 bits;
--                                            "block": one for each 128 elements of inputs and gradients and 128 x 128 of
--                                            weights, on compute capability 9.0 and the CPU
--     matmul_expert_dtype,                   "fp8": routed experts, nn.grouped_matmul with the unit's parameters, multiply
--                                            in fp8; not with blocks, which they do not have
--     matmul_grad_dtype = "e5m2",            or "e4m3", as blocks always have it
--     grad_dtype = reduce_dtype },           "bf16", reduce_dtype = "fp32": gradients are rounded and summed in fp32, as in
--                                            FSDP2; both "bf16": microbatches, too, are added up in bf16, else in fp32
--   offload = { params = false,              every copy of the parameters lies in host memory
--               grads = false,               reduced gradients do, until the optimizer takes them
--               optimizer = false },         its state does: "stream" takes it through the device for the update, "host"
--                                            updates on the CPU, true leaves the choice to the compiler
--   prefetch = { forward = 1, backward = 1 },units gathered ahead; 0: each when its turn has come. A list of modules,
--                                            { model.layers[2] }, or of their paths: gathered when this one begins
--   unshard_in_backward = true,              false: a promise that the backward reads no parameter of it, which is checked
--   ignored_params = {},                     patterns of parameters that every rank holds whole, as stored. Frozen ones are
--                                            then buffers; gradients of others are averaged over all ranks (which PyTorch
--                                            leaves to its user)
--   gradient_divide_factor = world,          1: gradients are summed over ranks; microbatches are averaged in any case
--   all_gather = nn.all_gather_extension { source = "x.c", cuda = "x.cu", wire = "bf16" }    how parameters travel; below
-- })
-- nn.all_gather_extension {                  your own C before and after the gather: runtime/sc_extension.h, models/extensions
--   source = "file.c", cuda = "file.cu",     for the CPU, for GPUs; in the model's folder
--   wire = "bf16",                           what travels, or up to 4 of { dtype, count = 1, every = 1, per = "element" }: count
--                                            elements for every `every` stored ones; per = "piece": for a rank's part of a parameter
--   amax = false,                            true: both functions are told the parameter's largest magnitude
--   pre = "pre_all_gather", post = "post_all_gather", align = "element" }   "row": no rank holds a part of a row
function nn.all_gather_extension(options) return (prim.all_gather_extension(options)) end
function nn.checkpoint_wrapper(module, options) return (prim.checkpoint_wrapper(module, options)) end
function nn.fully_shard(module, options) return (prim.fully_shard(module, options)) end
-- A unit's ranks, for fully_shard: replicate · shard, as a 2-D DeviceMesh. One of the two may be left out. expert = n takes
-- n ranks from `shard` for experts (nn.MoE).
function nn.mesh(options) return (prim.mesh(options)) end
-- Declares what `--set name=value` may change, and returns the values: { name = default, ... }. A default's type is the
-- option's. Once a model.
function nn.options(examples) return (prim.options(examples)) end
-- A default for nn.options that is not set: "number", "integer", "string" or "boolean". Unless set, the option is nil.
function nn.optional(kind) return (prim.optional(kind)) end
-- nn.choice("a", "b", ...): a default for nn.options that allows only these values. The first is the default.
nn.choice = prim.choice
-- Whether training is traced, as module.training in PyTorch. Ask inside forward.
function nn.training_mode() return (prim.training_mode()) end
-- A tensor that each microbatch supplies. dtype: "int32", "fp32", ... The first size of the shape is the samples of one
-- rank's microbatch. from = "tokens": windows of --data's files; without it, records from standard input. shift: how
-- many tokens further on the window begins, 0 by default.
function nn.input(dtype, shape, options) return (prim.input(dtype, shape, options)) end
-- What a model file returns. model: a module. batch: a table of inputs by name. loss: a function of model and batch
-- that returns one number. optimizer, schedule: from optim. grad_scaler: optim.GradScaler, for fp16. clip_grad_norm:
-- none by default. ema = { decay = 0.999 }: an average of the weights too, as torch.optim.swa_utils.get_ema_multi_avg_fn
-- takes it, which a program's `--ema` validates, samples and exports. accumulate: microbatches a step, 1 by default. sample = { inputs, logits }: what a program's
-- `--sample` runs, where logits(model, batch) returns [1,seq,vocab]. deterministic: true; false allows faster kernels
-- on GPUs, whose sums depend on timing. It changes nothing on the CPU target.
function nn.training(options) return (prim.training(options)) end
