/* What the objects of plan.json hold, member by member: write.c writes them by this table, read.c reads them.
 * Relies on: plan.h.
 * Relied on by: write.c, read.c. */
#include "fields.h"

static const Field fields[] = {
    {IN_MODEL, "model", F_TEXT, offsetof(Plan, model)},
    {IN_MODEL, "target", F_TEXT, offsetof(Plan, target)},
    {IN_DEVICE, "name", F_TEXT, offsetof(Plan, device)},
    {IN_DEVICE, "usable_bytes", F_REAL, offsetof(Plan, device_usable)},
    {IN_DEVICE, "peak_flops", F_REAL, offsetof(Plan, peak_flops)},
    {IN_DEVICE, "peak_dtype", F_DTYPE, offsetof(Plan, peak_dtype)},
    {IN_DEVICE, "host_up", F_RATE, offsetof(Plan, host_up)},
    {IN_DEVICE, "host_down", F_RATE, offsetof(Plan, host_down)},
    {IN_DEVICE, "time_source", F_TEXT, offsetof(Plan, time_source)},
    {IN_DEVICE, "time_off", F_REAL, offsetof(Plan, time_off)},
    {IN_MESH, "world", F_COUNT, offsetof(Plan, world)},
    {IN_MESH, "nodes", F_COUNT, offsetof(Plan, nodes)},
    {IN_AXIS, "name", F_TEXT, offsetof(Axis, name)},
    {IN_AXIS, "size", F_COUNT, offsetof(Axis, size)},
    {IN_AXIS, "stride", F_COUNT, offsetof(Axis, stride)},
    {IN_GROUP, "name", F_TEXT, offsetof(Comm, name)},
    {IN_GROUP, "axis", F_AXIS, offsetof(Comm, axis)},
    {IN_GROUP, "chain", F_INT, offsetof(Comm, chain)},
    {IN_STEP, "tokens_per_step", F_REAL, offsetof(Plan, tokens_per_step)},
    {IN_STEP, "samples_per_step", F_REAL, offsetof(Plan, samples_per_step)},
    {IN_STEP, "microbatches_per_step", F_INT, offsetof(Plan, microbatches)},
    {IN_STEP, "model_flops", F_REAL, offsetof(Plan, model_flops)},
    {IN_STEP, "model_flops_full", F_REAL, offsetof(Plan, model_flops_full)},
    {IN_LIBRARY, "name", F_TEXT, offsetof(LibraryLine, name)},
    {IN_LIBRARY, "bytes", F_REAL, offsetof(LibraryLine, bytes)},
    {IN_LIBRARY, "tolerance", F_REAL, offsetof(LibraryLine, tolerance)},
    {IN_LIBRARY, "source", F_TEXT, offsetof(LibraryLine, source)},
    {IN_ESTIMATE, "op", F_TEXT, offsetof(Estimate, op)},
    {IN_ESTIMATE, "variant", F_TEXT, offsetof(Estimate, variant)},
    {IN_ESTIMATE, "as", F_TEXT, offsetof(Estimate, as)},
    {IN_ESTIMATE, "us", F_REAL, offsetof(Estimate, us)},
    {IN_ESTIMATE, "events", F_INT, offsetof(Estimate, events)},
    {IN_UNIT, "id", F_INT, offsetof(PlanUnit, id)},
    {IN_UNIT, "path", F_TEXT, offsetof(PlanUnit, path)},
    {IN_UNIT, "shard", F_AXIS, offsetof(PlanUnit, shard)},
    {IN_UNIT, "replicate", F_AXIS, offsetof(PlanUnit, replicate)},
    {IN_UNIT, "expert", F_NO_AXIS, offsetof(PlanUnit, expert)},
    {IN_UNIT, "numel", F_SIZE, offsetof(PlanUnit, numel)},
    {IN_UNIT, "dtype", F_DTYPE, offsetof(PlanUnit, dtype)},
    {IN_UNIT, "wire", F_DTYPE, offsetof(PlanUnit, wire)},
    {IN_UNIT, "gradient", F_DTYPE, offsetof(PlanUnit, grad_dtype)},
    {IN_UNIT, "reduce", F_DTYPE, offsetof(PlanUnit, reduce)},
    {IN_UNIT, "parameters", F_INT, offsetof(PlanUnit, nparams)},
    {IN_UNIT, "master", F_INDEX, offsetof(PlanUnit, master_storage)},
    {IN_STORAGE, "id", F_INT, offsetof(Storage, id)},
    {IN_STORAGE, "class", F_CLASS, offsetof(Storage, cls)},
    {IN_STORAGE, "name", F_TEXT, offsetof(Storage, name)},
    {IN_STORAGE, "owner", F_TEXT, offsetof(Storage, owner)},
    {IN_STORAGE, "arena", F_ARENA, offsetof(Storage, arena)},
    {IN_STORAGE, "offset", F_SIZE, offsetof(Storage, offset)},
    {IN_STORAGE, "size", F_SIZE, offsetof(Storage, size)},
    {IN_PROGRAM, "step_us", F_REAL, offsetof(PlanProgram, step_us)},
    {IN_PROGRAM, "exposed_us", F_REAL, offsetof(PlanProgram, exposed_us)},
    {IN_PROGRAM, "peak", F_PAIR, offsetof(PlanProgram, peak)},
    {IN_PROGRAM, "bound", F_PAIR, offsetof(PlanProgram, bound)},
    {IN_EVENT, "op", F_TEXT, offsetof(Event, op)},
    {IN_EVENT, "stream", F_STREAM, offsetof(Event, stream)},
    {IN_EVENT, "purpose", F_PURPOSE, offsetof(Event, purpose)},
    {IN_EVENT, "phase", F_PHASE, offsetof(Event, phase)},
    {IN_EVENT, "module", F_TEXT, offsetof(Event, module)},
    {IN_COST, "flops", F_REAL, offsetof(Event, flops)},
    {IN_COST, "bytes", F_REAL, offsetof(Event, bytes)},
    {IN_COST, "peak_flops", F_RATE, offsetof(Event, peak_flops)},
    {IN_COST, "peak_bytes", F_RATE, offsetof(Event, peak_bytes)},
    {IN_COST, "over", F_ROUTE, offsetof(Event, over)},
    {IN_COST, "start_us", F_TIME, offsetof(Event, start_us)},
    {IN_COST, "duration_us", F_TIME, offsetof(Event, duration_us)},
    {.of = N_OBJECTS},
};

const Field *fields_of(Object o) {
    const Field *f = fields;
    while (f->of != o) f++;
    return f;
}

static const char *const routes[N_ROUTES] = {
    [OVER_MEMORY] = "memory", [OVER_HOST] = "host", [OVER_LINK] = "link", [OVER_NETWORK] = "network"};

const char *fields_word(FieldType t, int k) {
    switch (t) {
    case F_ARENA: return k < N_ARENAS ? k == ARENA_DEVICE ? "device" : "host" : NULL;
    case F_CLASS: return k < N_CLASSES ? storage_class_name((StorageClass)k) : NULL;
    case F_DTYPE: return k < N_DTYPES ? dtype_name((Dtype)k) : NULL;
    case F_PHASE: return k < N_PHASES ? phase_name((Phase)k) : NULL;
    case F_STREAM: return k < N_STREAMS ? stream_name((Stream)k) : NULL;
    case F_ROUTE: return k < N_ROUTES ? routes[k] : NULL;
    case F_PURPOSE: return k < N_PURPOSES ? purposes[k].name : NULL;
    default: return NULL;
    }
}

const char *const unused_keys[N_UNUSED] = {"parameters", "inputs", "modules"};
