/* The static tables that describe a build to the runtime: sc_this_build and all that it points to.
 * Relies on: text.h; runtime/sc.h for the types it fills.
 * Relied on by: emit.c. */
#include "../ir/training.h"
#include "../plan/live.h"
#include "../plan/sentences.h"
#include "text.h"

/* Short tables and single lines. */
#define put(e, ...) str_addf((e)->out, __VA_ARGS__)

static const char *quoted(const Emit *e, const char *s) {
    return c_string(e->a, s);
}

static void put_text(const Emit *e, const char *s) {
    str_add(e->out, s);
}
static void put_number(const Emit *e, const char *before, int64_t x) {
    str_add(e->out, before);
    str_int(e->out, x);
}
static void end_row(const Emit *e, const char *after) {
    str_add(e->out, after);
    str_spill(e->out, e->f);
}

/* One value of a row. */
typedef struct {
    enum { NUMBER, ADDRESS, STRING, NAME, ELEMENT, SHAPE } kind;
    const char *s;
    int64_t n;
    const int64_t *shape;
} Cell;
#define NUMBER(x) ((Cell){NUMBER, .n = (x)})
#define ADDRESS(x) ((Cell){ADDRESS, .n = (int64_t)(x)}) /* in hexadecimal */
#define STRING(text) ((Cell){STRING, .s = (text)})
#define NAME(text) ((Cell){NAME, .s = (text)})                      /* as it stands */
#define ELEMENT(array, i) ((Cell){ELEMENT, .s = (array), .n = (i)}) /* array + i */
#define SHAPE(sizes, dims) ((Cell){SHAPE, .shape = (sizes), .n = (dims)})

static void put_row(const Emit *e, const Cell *cells, size_t n) {
    put_text(e, "    {");
    for (const Cell *c = cells; c < cells + n; c++) {
        if (c > cells) put_text(e, ", ");
        switch (c->kind) {
        case NUMBER: text_int(e->out, c->n); break;
        case ADDRESS: str_hex(e->out, (uint64_t)c->n, 1); break;
        case STRING: text_string(e->out, c->s); break;
        case NAME: put_text(e, c->s); break;
        case ELEMENT:
            put_text(e, c->s);
            put_number(e, " + ", c->n);
            break;
        case SHAPE:
            put_text(e, c->n ? "{" : "{0");
            for (int d = 0; d < c->n; d++) put_number(e, d ? ", " : "", c->shape[d]);
            put_text(e, "}");
        }
    }
    end_row(e, "},\n");
}
#define row(e, ...) put_row(e, (const Cell[]){__VA_ARGS__}, sizeof((const Cell[]){__VA_ARGS__}) / sizeof(Cell))

/* An empty initialiser is not C: every table has at least one, unused, row. */
static void open_table(const Emit *e, const char *type, const char *name) {
    put(e, "static const %s %s[] = {\n", type, name);
}
static void close_table(const Emit *e, int n) {
    put(e, n ? "};\n\n" : "    {0}};\n\n");
}

/* ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────── */
static int put_accesses(const Emit *e, const Access *a, int n) {
    for (int i = 0; i < n; i++) row(e, NUMBER(a[i].storage), NUMBER(a[i].offset), NUMBER(a[i].size));
    return n;
}

static void put_events(const Emit *e, const PlanProgram *p) {
    const char *name = c_name(e->a, p->name), *waits = arena_printf(e->a, "waits_of_%s", name);
    const char *accesses = arena_printf(e->a, "accesses_of_%s", name);
    int nwaits = 0, naccesses = 0, wait = 0, access = 0; /* the last two: where an event's begin in the lists */
    if (!p->n) return;
    open_table(e, "int", waits);
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->events[i].nwaits; k++) {
            put_number(e, "    ", p->events[i].waits[k]);
            end_row(e, ++nwaits % 16 ? "," : ",\n");
        }
    put(e, nwaits ? "};\n\n" : "    0};\n\n");
    open_table(e, "sc_access", accesses);
    for (int i = 0; i < p->n; i++) {
        naccesses += put_accesses(e, p->events[i].reads, p->events[i].nreads);
        naccesses += put_accesses(e, p->events[i].writes, p->events[i].nwrites);
    }
    close_table(e, naccesses);
    open_table(e, "sc_event_info", arena_printf(e->a, "events_of_%s", name));
    for (int i = 0; i < p->n; i++) {
        const Event *x = &p->events[i];
        row(e, STRING(x->id), STRING(x->op), STRING(x->module ? x->module : ""), STRING(phase_name(x->phase)),
            STRING(x->src.file), NUMBER(x->src.line), NAME(c_stream(x->stream)), ELEMENT(waits, wait),
            NUMBER(x->nwaits), ELEMENT(accesses, access), ELEMENT(accesses, access + x->nreads), NUMBER(x->nreads),
            NUMBER(x->nwrites), ADDRESS(emit_event_written(x->op_ir)));
        wait += x->nwaits;
        access += x->nreads + x->nwrites;
    }
    close_table(e, p->n);
}

static void put_programs(const Emit *e) {
    for (int i = 0; i < e->plan->nprograms; i++) put_events(e, &e->plan->programs[i]);
    open_table(e, "sc_program_info", "programs");
    for (int i = 0; i < e->plan->nprograms; i++) {
        const PlanProgram *p = &e->plan->programs[i];
        const char *name = c_name(e->a, p->name), *events = p->n ? arena_printf(e->a, "events_of_%s", name) : "NULL";
        row(e, STRING(p->name), NAME(arena_printf(e->a, "program_%s", name)), NAME(events), NUMBER(p->n),
            NUMBER((int64_t)(p->step_us * 1e3 + 0.5)));
    }
    close_table(e, e->plan->nprograms);
}

static void put_storages(const Emit *e) {
    open_table(e, "sc_storage_info", "storages");
    for (int i = 0; i < e->plan->nstorages; i++) {
        const Storage *s = &e->plan->storages[i];
        row(e, STRING(s->name), ADDRESS(s->offset), NUMBER(s->size), NUMBER(s->arena == ARENA_HOST), NUMBER(s->program),
            NUMBER(s->first), NUMBER(s->last));
    }
    close_table(e, e->plan->nstorages);
}

/* ── parameters and units ────────────────────────────────────────────────────────────────────────────────────────── */
/* A state that no event touches has no storage. */
static bool placed(const Emit *e, const State *s) {
    return s && s->value && plan_storage(e->plan, s->value) >= 0;
}
static unsigned long long state_at(const Emit *e, const State *s) {
    return placed(e, s) ? emit_value_at(e, s->value) : 0;
}

static const State *buffer_state(const Emit *e, const Param *p) {
    for (int i = 0; i < e->g->states.n; i++)
        if (e->g->states.at[i]->param == p && e->g->states.at[i]->cls == S_BUFFER) return e->g->states.at[i];
    return NULL;
}

static void put_params(const Emit *e) {
    open_table(e, "sc_param_info", "params");
    for (int i = 0; i < e->g->params.n; i++) {
        const Param *p = e->g->params.at[i];
        int64_t shape[MAX_DIMS], numel = param_whole(p, shape);
        row(e, STRING(p->path), STRING(p->owner ? p->owner->path : ""), NAME(c_dtype(p->dtype)), NUMBER(p->dims),
            SHAPE(shape, p->dims), NUMBER(p->unit ? p->unit->id : -1),
            NUMBER(p->reached && p->requires_grad && !p->is_buffer), NUMBER(p->is_buffer), NUMBER(p->flat_offset),
            NUMBER(numel), NUMBER(p->group), ADDRESS(p->is_buffer ? state_at(e, buffer_state(e, p)) : 0),
            NUMBER(p->scales ? p->scales->id + 1 : 0), NUMBER(p->copies ? p->copies->id + 1 : 0), NUMBER(p->internal));
    }
    close_table(e, e->g->params.n);
}

static void put_mesh(const Emit *e) {
    open_table(e, "sc_axis", "axes");
    for (int i = 0; i < e->g->axes.n; i++) {
        const Axis *a = e->g->axes.at[i];
        row(e, STRING(a->name), NUMBER(a->size), NUMBER(a->stride));
    }
    close_table(e, e->g->axes.n);
    open_table(e, "sc_comm_info", "comms");
    for (int i = 0; i < e->g->comms.n; i++) {
        const Comm *c = &e->g->comms.at[i];
        row(e, STRING(c->name), NUMBER(c->axis->id), NUMBER(c->chain));
    }
    close_table(e, e->g->comms.n);
}

static void put_units(const Emit *e) {
    open_table(e, "sc_unit_info", "units");
    for (int i = 0; i < e->g->units.n; i++) {
        const Unit *u = e->g->units.at[i];
        const State *s[] = {u->master, u->wire_shard, u->m, u->v, u->frozen, u->average};
        put(e, "    {%s, %d, %d, %lld, %lld, %s, %s, %s,\n        ", quoted(e, u->module->path), u->shard->id,
            u->expert ? u->expert->id + 1 : 0, (long long)(u->numel / u->shard->size),
            (long long)(u->frozen_numel / u->shard->size), c_dtype(u->dtype), c_dtype(u->wire),
            c_dtype(u->m ? u->m->dtype : FP32));
        for (int k = 0; k < 6; k++) put(e, "0x%llx, ", state_at(e, s[k]));
        for (int k = 0; k < 6; k++) put(e, "%d, ", placed(e, s[k]));
        for (int k = 0; k < 6; k++)
            put(e, "%d%s", placed(e, s[k]) && emit_value_host(e, s[k]->value), k < 5 ? ", " : "");
        if (u->optimizer && u->optimizer->set > 0) put(e, ", %s", quoted(e, u->optimizer->rule->name));
        put(e, "},\n");
    }
    close_table(e, e->g->units.n);
}

/* ── inputs, counts, metrics, groups ─────────────────────────────────────────────────────────────────────────────── */
static unsigned long long input_at(const Emit *e, const Value *v) {
    return v && plan_storage(e->plan, v) >= 0 ? emit_value_at(e, v) : 0;
}

static void put_inputs(const Emit *e) {
    open_table(e, "sc_input_info", "inputs");
    for (int i = 0; i < e->g->inputs.n; i++) {
        const Input *in = e->g->inputs.at[i];
        const Value *s = in->sample_value;
        Dtype stored = in->value ? in->value->dtype : in->dtype;
        row(e, STRING(in->name), STRING(in->from ? in->from : in->name), NAME(c_dtype(stored)), NUMBER(in->dims),
            SHAPE(in->shape, in->dims), NUMBER(in->shift), ADDRESS(input_at(e, in->value)), NUMBER(s != NULL),
            NUMBER(in->limit), ADDRESS(input_at(e, s)), NUMBER(s ? s->dims : 0),
            SHAPE(s ? s->shape : NULL, s ? s->dims : 0), NUMBER(!in->value),
            NUMBER(stored == in->dtype ? 0 : (int)in->dtype + 1), NUMBER(in->tokens));
    }
    close_table(e, e->g->inputs.n);
}

static void put_training(const Emit *e) {
    const Training *t = e->g->training;
    const Optimizer *o = t->optimizer;
    open_table(e, "sc_count_info", "counts");
    for (int i = 0; i < t->counts.n; i++) {
        int input = 0;
        while (input < e->g->inputs.n && e->g->inputs.at[input] != t->counts.at[i].input) input++;
        row(e, NUMBER(input), NUMBER(t->counts.at[i].ignore));
    }
    close_table(e, t->counts.n);
    open_table(e, "char *const", "metrics");
    for (int i = 0; i < t->metrics.n; i++) put(e, "    %s,\n", quoted(e, t->metrics.at[i].name));
    put(e, t->metrics.n ? "};\n\n" : "    NULL};\n\n");
    open_table(e, "sc_group_info", "groups");
    for (int i = 0; i < o->groups.n; i++)
        row(e, NAME(c_float(e->a, o->groups.at[i].lr)), NAME(c_float(e->a, o->groups.at[i].weight_decay)));
    close_table(e, o->groups.n);
    for (int i = 1; i < t->optimizers.n; i++) {
        const Optimizer *x = t->optimizers.at[i];
        if (i == 1) open_table(e, "sc_set_info", "sets");
        row(e, STRING(x->rule->name), NAME(c_float(e->a, x->beta1)), NAME(c_float(e->a, x->beta2)),
            NAME(c_float(e->a, x->eps)), NAME(c_float(e->a, x->momentum)));
        if (i + 1 == t->optimizers.n) close_table(e, i);
    }
    if (!t->schedule.factors) return;
    open_table(e, "float", "factors");
    for (int64_t i = 0; i < t->schedule.total; i++) {
        put_text(e, i % 8 ? " " : "    ");
        put_text(e, c_float(e->a, t->schedule.factors[i]));
        end_row(e, i % 8 == 7 || i + 1 == t->schedule.total ? ",\n" : ",");
    }
    put(e, "};\n\n");
}

static int put_peak(const Emit *e) {
    const Plan *p = e->plan;
    int program = live_largest_program(p), n = 0;
    LiveSet l = program < 0 ? (LiveSet){0} : live_at(p, program, p->programs[program].peak_event);
    open_table(e, "sc_class_info", "peak");
    for (StorageClass c = 0; c < N_CLASSES; c++) {
        if (!l.of[c]) continue;
        row(e, STRING(storage_class_name(c)), NUMBER(l.of[c]));
        n++;
    }
    close_table(e, n);
    return n;
}

/* ── values that --dump can copy out ─────────────────────────────────────────────────────────────────────────────── */
/* A row's name, to which more is added; of other programs than the training step "eval/...". */
static void open_dump(const Emit *e, const PlanProgram *p) {
    put_text(e, "    {\"");
    if (program_trains(p)) return;
    text_in_string(e->out, p->name);
    put_text(e, "/");
}

static void close_dump(const Emit *e, int program, int event, const Value *v) {
    put_number(e, "\", ", program);
    put_number(e, ", ", event);
    put_text(e, ", ");
    text_tensor_initializer(e->out, e, v);
    end_row(e, "},\n");
}

/* "layers.3.mlp.up/e131" */
static void put_dump(const Emit *e, int program, int event, int k) {
    const PlanProgram *p = &e->plan->programs[program];
    const Event *x = &p->events[event];
    const Value *v = x->op_ir->out[k];
    open_dump(e, p);
    if (v->name) {
        text_in_string(e->out, v->name);
    } else {
        text_in_string(e->out, x->module && x->module[0] ? x->module : e->g->name);
        put_text(e, "/");
        text_in_string(e->out, x->id);
        if (k) put_number(e, ".", k);
    }
    close_dump(e, program, event, v);
}

/* The gradient of parameters side by side is copied out as theirs, each by itself: "layers.3.mlp.up.weight.grad". */
static int put_parts(const Emit *e, int program, int event, const Value *v) {
    Value piece = *v;
    for (int k = 0; k < v->fused->n; k++) {
        const Param *p = v->fused->part[k];
        piece.shape[0] = p->shape[0];
        open_dump(e, &e->plan->programs[program]);
        text_in_string(e->out, p->path);
        put_text(e, ".grad");
        close_dump(e, program, event, &piece);
        piece.offset += p->shape[0] * v->stride[0];
    }
    return v->fused->n;
}

/* "computes in bf16, gradients in fp32", each kind of unit once. */
static const char *precision_of(const Emit *e) {
    const char *all = "";
    for (int i = 0; i < e->g->units.n; i++) {
        const Unit *u = e->g->units.at[i];
        if (!u->params.n) continue;
        const char *made =
            u->grad_dtype == u->reduce ? "" : arena_printf(e->a, "%s summed in ", dtype_name(u->grad_dtype));
        const char *one = arena_printf(e->a, "computes in %s, gradients in %s%s", dtype_name(u->computes), made,
                                       dtype_name(u->reduce));
        if (!strstr(all, one)) all = arena_printf(e->a, "%s%s%s", all, *all ? "; " : "", one);
    }
    return all;
}

/* "muon ns 5 x 3.4445 -4.775 2.0315 original": what no option of the program changes. Of a group's optimizer all of it:
 * "adamw betas 0.9 0.95 eps 1e-08". */
static const char *numbers_of(const Emit *e, const Optimizer *o) {
    const char *all = o->name;
    if (o->set > 0 && sc_optimizer_takes(o->rule, "betas"))
        all = arena_printf(e->a, "%s betas %g %g", all, o->beta1, o->beta2);
    if (o->set > 0 && sc_optimizer_takes(o->rule, "eps")) all = arena_printf(e->a, "%s eps %g", all, o->eps);
    if (o->set > 0 && sc_optimizer_takes(o->rule, "momentum"))
        all = arena_printf(e->a, "%s momentum %g%s", all, o->momentum, o->nesterov ? " nesterov" : "");
    if (o->rule->before)
        all = arena_printf(e->a, "%s ns %d x %g %g %g, %s", all, o->ns_steps, o->ns_coefficients[0],
                           o->ns_coefficients[1], o->ns_coefficients[2],
                           o->adjust == ADJUST_ORIGINAL ? "original" : "match_rms_adamw");
    return all;
}

/* "*.bias *norm*: lr x 1, weight_decay x 0" for each group but the first, whose values are options of the program; the
 * others keep their ratio to them. */
static const char *groups_of(const Emit *e) {
    const Optimizer *o = e->g->training->optimizer;
    const char *all = "";
    for (int k = 1; k < o->groups.n; k++) {
        const OptGroup *x = &o->groups.at[k];
        for (int i = 0; i < x->nmatch; i++) all = arena_printf(e->a, "%s%s%s", all, *all ? " " : "", x->match[i]);
        if (x->of != OF_ANY) all = arena_printf(e->a, "%s of %s", all, x->of == OF_MATRICES ? "matrices" : "others");
        if (x->optimizer != o) all = arena_printf(e->a, "%s by %s", all, numbers_of(e, x->optimizer));
        all = arena_printf(e->a, "%s: lr %s%g, weight_decay %s%g%s", all, o->lr != 0 ? "x " : "",
                           o->lr != 0 ? x->lr / o->lr : x->lr, o->weight_decay != 0 ? "x " : "",
                           o->weight_decay != 0 ? x->weight_decay / o->weight_decay : x->weight_decay,
                           k + 1 < o->groups.n ? ";" : "");
    }
    return all;
}

static void mix(uint64_t *h, const void *data, size_t n) { /* FNV-1a */
    for (size_t i = 0; i < n; i++) *h = (*h ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}
static const uint64_t MIX_FROM = 14695981039346656037u;

/* "1000 steps, 5f6d...": tells two tables apart. */
static const char *factors_told(const Emit *e) {
    const LrSchedule *s = &e->g->training->schedule;
    uint64_t h = MIX_FROM;
    mix(&h, s->factors, sizeof *s->factors * (size_t)s->total);
    return arena_printf(e->a, "%lld steps, %016llx", (long long)s->total, (unsigned long long)h);
}

static int put_settings(const Emit *e) {
    const Training *t = e->g->training;
    const GradScaler *scaler = t->scaler;
    const char *scale = !scaler
                            ? "none"
                            : arena_printf(e->a, "grows by %g after %lld steps, backs off by %g", scaler->growth_factor,
                                           (long long)scaler->growth_interval, scaler->backoff_factor);
    const char *const own[][2] = {{"precision", precision_of(e)},
                                  {"loss scale", scale},
                                  {"nesterov", t->optimizer->nesterov ? "true" : "false"},
                                  {"groups of the optimizer", groups_of(e)}};
    enum { OWN = sizeof own / sizeof *own };
    open_table(e, "sc_setting_info", "settings");
    for (int i = 0; i < OWN; i++) row(e, STRING(own[i][0]), STRING(own[i][1]), NUMBER(0));
    if (t->optimizer->rule->before) row(e, STRING("optimizer"), STRING(numbers_of(e, t->optimizer)), NUMBER(0));
    if (t->schedule.factors) row(e, STRING("function of the schedule"), STRING(factors_told(e)), NUMBER(0));
    for (int i = 0; i < t->options.n; i++)
        row(e, STRING(t->options.at[i].name), STRING(t->options.at[i].text), NUMBER(1));
    int n = OWN + t->options.n + (t->schedule.factors != NULL) + (t->optimizer->rule->before != NULL);
    close_table(e, n);
    return n;
}

static int put_adapters(const Emit *e) {
    int n = 0;
    for (int i = 0; i < e->g->params.n; i++) n += e->g->params.at[i]->adapter.a != NULL;
    if (!n) return 0;
    open_table(e, "sc_adapter_info", "adapters");
    for (int i = 0; i < e->g->params.n; i++) {
        const Adapter *a = &e->g->params.at[i]->adapter;
        if (a->a)
            row(e, NUMBER(i), NUMBER(a->a->id), NUMBER(a->b->id), NUMBER(a->lengths ? a->lengths->id : -1),
                NAME(c_float(e->a, a->scale)));
    }
    close_table(e, n);
    return n;
}

static int put_stored(const Emit *e) {
    int n = 0;
    for (int i = 0; i < e->g->params.n; i++) n += e->g->params.at[i]->stored != NULL;
    if (!n) return 0;
    open_table(e, "sc_stored_info", "stored");
    for (int i = 0; i < e->g->params.n; i++) {
        const Param *p = e->g->params.at[i];
        const Stored *s = p->stored;
        if (!s) continue;
        char *base = arena_strdup(e->a, p->path);
        for (int k = 0; k < 1 + s->up && strrchr(base, '.'); k++) *strrchr(base, '.') = 0;
        put(e, "    {%d, %d, %d, %s, {", i, s->first, s->n, quoted(e, base));
        for (int k = 0; k < s->n; k++) put(e, "%s%s", k ? ", " : "", quoted(e, s->name[k]));
        put(e, "}},\n");
    }
    close_table(e, n);
    return n;
}

static int put_dumps(const Emit *e) {
    int n = 0;
    open_table(e, "sc_dump_info", "dumps");
    for (int p = 0; p < e->plan->nprograms; p++)
        for (int i = 0; i < e->plan->programs[p].n; i++) {
            const Op *op = e->plan->programs[p].events[i].op_ir;
            for (int k = 0; k < op->nout; k++) {
                if (op->out[k]->fused) {
                    n += put_parts(e, p, i, op->out[k]);
                } else {
                    put_dump(e, p, i, k);
                    n++;
                }
            }
        }
    close_table(e, n);
    return n;
}

/* ── the build ───────────────────────────────────────────────────────────────────────────────────────────────────── */
/* What a checkpoint must agree with: paths, shapes and dtypes, but neither world nor policies. */
static unsigned long long model_hash(const Graph *g) {
    uint64_t h = MIX_FROM;
    for (int i = 0; i < g->params.n; i++) {
        const Param *p = g->params.at[i];
        if (p->internal) continue;
        int64_t dtype = p->dtype, dims = p->dims, shape[MAX_DIMS];
        param_whole(p, shape);
        mix(&h, p->path, strlen(p->path) + 1);
        mix(&h, &dtype, sizeof dtype);
        mix(&h, &dims, sizeof dims);
        mix(&h, shape, sizeof *shape * (size_t)p->dims);
    }
    return h;
}

static void put_plan_json(const Emit *e) {
    const char *file = c_string(e->a, arena_printf(e->a, "%s.plan.json", e->name));
    put(e, "/* The plan itself, so that every reading command takes the binary too. */\n");
    put(e, "__asm__(\".pushsection .rodata\\n\"\n");
    put(e, "        \".ascii \\\"SHARDC_PLAN_BEGIN\\\\n\\\"\\n\"\n");
    put(e, "        \"sc_plan_json_begin:\\n\"\n");
    put(e, "        \".incbin \\\"\" %s \"\\\"\\n\"\n", file);
    put(e, "        \"sc_plan_json_end:\\n\"\n");
    put(e, "        \".asciz \\\"\\\\nSHARDC_PLAN_END\\\"\\n\"\n");
    put(e, "        \".popsection\\n\");\n");
    put(e, "extern const char sc_plan_json_begin[], sc_plan_json_end[];\n\n");
}

static void put_logits(const Emit *e) {
    const State *s = NULL;
    int program = -1;
    for (int i = 0; i < e->g->states.n; i++)
        if (e->g->states.at[i]->cls == S_OUTPUT) s = e->g->states.at[i];
    for (int i = 0; s && i < e->plan->nprograms; i++)
        if (e->plan->programs[i].ir && e->plan->programs[i].ir->logits) program = i;
    if (program < 0) {
        put(e, "    .logits_program = -1,\n");
        return;
    }
    const Value *v = e->plan->programs[program].ir->logits;
    put(e, "    .logits_program = %d,\n    .logits_at = 0x%llx,\n    .logits_dtype = %s,\n    .logits_shape = {",
        program, state_at(e, s), c_dtype(s->dtype));
    for (int d = 0; d < 3; d++) { /* always [1, seq, vocab], whatever dimensions of one element the model left out */
        int from = v->dims - 3 + d;
        put(e, "%s%lld", d ? ", " : "", from >= 0 ? (long long)v->shape[from] : 1);
    }
    put(e, "},\n");
}

/* What nn.options say, but those that are not set and those that a policy file overrides. Returns how many. */
static int options(const Emit *e) {
    const Plan *p = e->plan;
    int n = 0;
    for (int i = 0; i < p->noptions; i++) {
        const OptionValue *o = &p->options[i];
        if (!*o->text || o->overridden) continue;
        put(e, n++ ? "    {%s, %s},\n" : "static const sc_option_info options[] = {\n    {%s, %s},\n",
            quoted(e, o->name), quoted(e, o->text));
    }
    if (n) put(e, "};\n");
    return n;
}

static void put_build(const Emit *e, int npeak, int ndumps, int nadapters, int nstored, int nsettings) {
    const Plan *p = e->plan;
    const Graph *g = e->g;
    const Training *t = g->training;
    const Optimizer *o = t->optimizer;
    static const char *const schedules[] = {
        [SCHED_CONSTANT] = "constant", [SCHED_LINEAR] = "linear",     [SCHED_COSINE] = "cosine",
        [SCHED_WSD] = "wsd",           [SCHED_FUNCTION] = "function",
    };
    unsigned long long sums = 0; /* a bit each metric */
    double library_bytes = 0;
    for (int i = 0; i < t->metrics.n; i++) sums |= (unsigned long long)t->metrics.at[i].is_sum << i;
    for (int i = 0; i < p->nlibrary; i++) library_bytes += p->library[i].bytes;
    Str policy = {.arena = p->arena};
    for (int i = 0; i < p->npolicies; i++) str_addf(&policy, "%s%s", i ? ", " : "", p->policies[i].name);
    int noptions = options(e);
    put(e, "const sc_build sc_this_build = {\n");
    put(e, "    .name = %s,\n    .model_file = %s,\n    .target = %s,\n", quoted(e, g->name), quoted(e, g->file),
        quoted(e, p->target));
    put(e, "    .compiler = SC_COMPILER,\n");
    if (policy.n) put(e, "    .policy = %s,\n", quoted(e, policy.s));
    if (noptions) put(e, "    .options = options,\n    .noptions = %d,\n", noptions);
    if (!strcmp(p->target, "cuda")) put(e, "    .arch = %s,\n", quoted(e, p->arch));
    put(e, "    .deterministic = %d,\n", g->deterministic);
    put(e, "    .world = %d,\n    .nodes = %d,\n    .threads = %d,\n    .accumulate = %d,\n", p->world,
        p->nodes > 0 ? p->nodes : 1, p->threads > 0 ? p->threads : 1, t->accumulate > 0 ? t->accumulate : 1);
    put(e, "    .arena_bytes = %llu,\n    .host_bytes = %llu,\n", (unsigned long long)p->arena_bytes[ARENA_DEVICE],
        (unsigned long long)p->arena_bytes[ARENA_HOST]);
    if (!strcmp(p->target, "cuda")) put(e, "    .library_bytes = %.0f,\n", library_bytes);
    if (p->device_usable > 0) put(e, "    .usable_bytes = %.0f,\n", p->device_usable);
    put(e, "    .peak = peak,\n    .npeak = %d,\n", npeak);
    put(e, "    .programs = programs,\n    .nprograms = %d,\n    .storages = storages,\n    .nstorages = %d,\n",
        p->nprograms, p->nstorages);
    put(e, "    .params = params,\n    .nparams = %d,\n    .units = units,\n    .nunits = %d,\n", g->params.n,
        g->units.n);
    put(e, "    .axes = axes,\n    .naxes = %d,\n", g->axes.n);
    put(e, "    .comms = comms,\n    .ncomms = %d,\n", g->comms.n);
    put(e, "    .inputs = inputs,\n    .ninputs = %d,\n    .counts = counts,\n    .ncounts = %d,\n", g->inputs.n,
        t->counts.n);
    put(e, "    .metrics = metrics,\n    .nmetrics = %d,\n    .metric_sums = 0x%llx,\n    .metrics_at = 0x%llx,\n",
        t->metrics.n, sums, state_at(e, g->metrics_state));
    put(e, "    .record_at = 0x%llx,\n    .step_at = 0x%llx,\n", state_at(e, g->record), state_at(e, g->step_state));
    if (t->scaler) put(e, "    .has_scaler = 1,\n    .scaler_at = 0x%llx,\n", state_at(e, g->scaler_state));
    if (nadapters) put(e, "    .adapters = adapters,\n    .nadapters = %d,\n", nadapters);
    if (nstored) put(e, "    .stored = stored,\n    .nstored = %d,\n", nstored);
    put(e, "    .dumps = dumps,\n    .ndumps = %d,\n", ndumps);
    put_logits(e);
    put(e, "    .optimizer = %s,\n    .schedule = %s,\n", quoted(e, o->rule->name),
        quoted(e, schedules[t->schedule.kind]));
    put(e, "    .beta1 = %s,\n    .beta2 = %s,\n    .eps = %s,\n", c_float(e->a, o->beta1), c_float(e->a, o->beta2),
        c_float(e->a, o->eps));
    put(e, "    .momentum = %s,\n    .clip = %s,\n", c_float(e->a, o->momentum), c_float(e->a, t->clip_grad_norm));
    put(e, "    .warmup = %lld,\n    .total = %lld,\n    .min_ratio = %s,\n", (long long)t->schedule.warmup,
        (long long)t->schedule.total, c_float(e->a, t->schedule.min_ratio));
    if (t->schedule.decay_steps) put(e, "    .decay_steps = %lld,\n", (long long)t->schedule.decay_steps);
    if (t->schedule.factors) put(e, "    .factors = factors,\n");
    if (t->optimizers.n > 1) put(e, "    .sets = sets,\n    .nsets = %d,\n", t->optimizers.n - 1);
    for (Unused k = 0; k < N_UNUSED; k++)
        if (p->unused[k].n) put(e, "    .unused[%d] = %s,\n", k, quoted(e, plan_unused(p, k)));
    if (g->unproven) put(e, "    .unproven = %s,\n", quoted(e, g->unproven));
    put(e, "    .settings = settings,\n    .nsettings = %d,\n", nsettings);
    put(e, "    .groups = groups,\n    .ngroups = %d,\n    .plan_hash = 0x%llxu,\n", o->groups.n, model_hash(g));
    put(e, "    .plan_json = sc_plan_json_begin,\n    .plan_json_end = sc_plan_json_end,\n};\n");
}

void emit_tables(Emit *e) {
    put(e, "/* ── tables of the build "
           "───────────────────────────────────────────────────────────────────────────────────────────── */\n\n");
    put_programs(e);
    put_storages(e);
    put_params(e);
    put_mesh(e);
    put_units(e);
    put_inputs(e);
    put_training(e);
    int npeak = put_peak(e), ndumps = put_dumps(e), nadapters = put_adapters(e), nstored = put_stored(e),
        nsettings = put_settings(e);
    put_plan_json(e);
    put_build(e, npeak, ndumps, nadapters, nstored, nsettings);
}
