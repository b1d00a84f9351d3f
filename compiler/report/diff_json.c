/* A difference of two plans as JSON: every figure, every row, every event and storage that differs.
 * Relies on: diff.h, json_writer.h. Relied on by: cli/diff.c. */
#include "../plan/json_writer.h"
#include "diff.h"

static void put_rows(Json *j, const char *key, const DiffRow *rows, int n) {
    json_open(j, key, '[');
    for (int i = 0; i < n; i++) {
        json_open_line(j, NULL, '{');
        json_str(j, "name", rows[i].name);
        json_real(j, "a", rows[i].a);
        json_real(j, "b", rows[i].b);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_line(j);
}

static void put_words(Json *j, unsigned set, int n, bool events) {
    json_open(j, "changes", '[');
    for (int c = 0; c < n; c++)
        if (set >> c & 1)
            json_str(j, NULL, events ? diff_event_change((EventChange)c) : diff_storage_change((StorageChange)c));
    json_close(j, ']');
}

static void put_event(Json *j, const DiffEvent *e) {
    json_open_line(j, NULL, '{');
    json_str(j, "id", (e->b ? e->b : e->a)->id);
    put_words(j, e->changes, N_EVENT_CHANGES, true);
    if (e->places) json_int(j, "places", e->places);
    for (int side = 0; side < 2; side++) {
        const Event *x = side ? e->b : e->a;
        if (!x) continue;
        json_open(j, side ? "b" : "a", '{');
        json_str(j, "op", x->op);
        json_str(j, "stream", stream_name(x->stream));
        json_str(j, "phase", phase_name(x->phase));
        json_str(j, "module", x->module);
        json_time(j, "duration_us", x->duration_us);
        json_close(j, '}');
    }
    json_close(j, '}');
}

static void put_storage(Json *j, const DiffStorage *s) {
    json_open_line(j, NULL, '{');
    json_str(j, "name", (s->b ? s->b : s->a)->name);
    put_words(j, s->changes, N_STORAGE_CHANGES, false);
    for (int side = 0; side < 2; side++) {
        const Storage *x = side ? s->b : s->a;
        if (!x) continue;
        json_open(j, side ? "b" : "a", '{');
        json_str(j, "class", storage_class_name(x->cls));
        json_str(j, "owner", x->owner);
        json_str(j, "arena", x->arena == ARENA_HOST ? "host" : "device");
        json_int(j, "size", x->size);
        json_close(j, '}');
    }
    json_close(j, '}');
}

static void put_side(Json *j, const char *key, const PlanProgram *p) {
    json_open(j, key, '{');
    json_int(j, "events", p->n);
    json_int(j, "peak", p->peak[ARENA_DEVICE]);
    json_real(j, "step_us", p->step_us);
    json_real(j, "exposed_us", p->exposed_us);
    json_close(j, '}');
}

static void put_program(Json *j, const DiffProgram *g) {
    json_open_line(j, NULL, '{');
    json_str(j, "name", *g->name ? g->name : NULL);
    if (g->a) put_side(j, "a", g->a);
    if (g->b) put_side(j, "b", g->b);
    json_open(j, "events", '[');
    for (int i = 0; i < g->events.n; i++) put_event(j, &g->events.at[i]);
    json_close(j, ']');
    json_open(j, "storages", '[');
    for (int i = 0; i < g->storages.n; i++) put_storage(j, &g->storages.at[i]);
    json_close(j, ']');
    json_close(j, '}');
}

void diff_json(FILE *f, Arena *a, const Diff *d) {
    Json j = {.f = f, .s = {.arena = a}};
    json_start(&j, "shardc-diff", 1);
    json_bool(&j, "same", d->same);
    json_open_line(&j, "settings", '[');
    for (int i = 0; i < d->settings.n; i++) {
        json_open_line(&j, NULL, '{');
        json_str(&j, "name", d->settings.at[i].name);
        json_str(&j, "a", d->settings.at[i].a);
        json_str(&j, "b", d->settings.at[i].b);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_line(&j);
    put_rows(&j, "figures", d->figures, N_FIGURES);
    put_rows(&j, "peak_classes", d->peak_classes.at, d->peak_classes.n);
    put_rows(&j, "peak_modules", d->peak_modules.at, d->peak_modules.n);
    put_rows(&j, "time_classes", d->time_classes.at, d->time_classes.n);
    put_rows(&j, "time_modules", d->time_modules.at, d->time_modules.n);
    put_rows(&j, "exposed_modules", d->exposed_modules.at, d->exposed_modules.n);
    json_open(&j, "programs", '[');
    for (int i = 0; i < d->programs.n; i++) put_program(&j, &d->programs.at[i]);
    json_close(&j, ']');
    json_end(&j);
}
