/* The list of what `shardc doctor` has found, and the commands that mend what is missing.
 * Relies on: doctor.h, base/places.h.
 * Relied on by: doctor_machine.c, doctor_cpu.c, doctor_cuda.c. */
#include "../base/places.h"
#include "doctor.h"

#include <unistd.h>

static Fact *add(Doctor *d, Fact f) {
    push(&d->facts, d->a, f);
    return &d->facts.at[d->facts.n - 1];
}

Fact *doctor_found(Doctor *d, Group group, const char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    Fact f = {group, name, arena_vprintf(d->a, fmt, ap), NULL, NULL, FOUND};
    va_end(ap);
    return add(d, f);
}

Fact *doctor_lacks(Doctor *d, Group group, const char *name, const char *without, const char *mend, const char *fmt,
                   ...) {
    va_list ap;
    va_start(ap, fmt);
    Fact f = {group, name, arena_vprintf(d->a, fmt, ap), without, mend, d->needed[group] ? MISSING : ABSENT};
    va_end(ap);
    return add(d, f);
}

const char *doctor_install(Doctor *d, const char *packages) {
    return arena_printf(d->a, "%sapt-get install -y %s", geteuid() ? "sudo " : "", packages);
}

const char *doctor_make(Doctor *d, const char *target) {
    const char *holds, *how = places_library_made(d->a, target, &holds);
    if (!how)
        return arena_printf(d->a, "make%s%s in a checkout of shardc, and set SHARDC_HOME to its folder",
                            *target ? " " : "", target);
    return how[1] && strrchr(how, '`')[1] == 0 ? arena_printf(d->a, "%.*s", (int)strlen(how) - 2, how + 1) : how;
}
