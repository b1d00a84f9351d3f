/* Figures as people read them: bytes in one unit for a whole report, times, counts with separators.
 * Relies on: base.
 * Relied on by: report/, cli/. */
#include "figures.h"

ByteUnit figure_byte_unit(double bytes) {
    static const ByteUnit units[] = {{1024. * 1024 * 1024, "GiB"}, {1024. * 1024, "MiB"}, {1024, "KiB"}};
    for (int i = 0; i < 3; i++)
        if (bytes >= 0.9995 * units[i].one) return units[i];
    return (ByteUnit){1, "B"};
}

char *figure_in_unit(Arena *a, ByteUnit u, double bytes) {
    return arena_printf(a, u.one > 1 ? "%.1f" : "%.0f", bytes / u.one);
}

char *figure_bytes(Arena *a, double bytes) {
    ByteUnit u = figure_byte_unit(bytes);
    return arena_printf(a, u.one > 1 ? "%.1f%s" : "%.0f%s", bytes / u.one, u.name);
}

char *figure_grouped(Arena *a, double x) {
    char digits[400];
    int n = snprintf(digits, sizeof digits, "%.0f", x);
    Str s = {.arena = a};
    for (int i = 0; i < n; i++)
        str_addf(&s, "%s%c", i && (n - i) % 3 == 0 && digits[i - 1] != '-' ? "," : "", digits[i]);
    return s.s;
}

char *figure_change(Arena *a, double from, double to, int decimals) {
    double percent = 100 * (to / from - 1), least = 1;
    for (int i = 0; i < decimals; i++) least /= 10;
    if (percent == 0) return arena_strdup(a, "0 %");
    if (percent > -least / 2 && percent < least / 2)
        return arena_printf(a, "%c<%.*f %%", percent < 0 ? '-' : '+', decimals, least);
    return arena_printf(a, "%+.*f %%", decimals, percent);
}

char *figure_time(Arena *a, double us) {
    if (us >= 0.9995e6) return arena_printf(a, "%.2f s", us * 1e-6);
    if (us >= 0.9995e3) return arena_printf(a, "%.1f ms", us * 1e-3);
    return arena_printf(a, "%.1f us", us);
}
