/* One message, one exit code: how the training program ends when something is wrong.
 * Relies on: target.
 * Relied on by: everything in runtime/host. */
#ifndef HOST_DIE_H
#define HOST_DIE_H

#include <stdbool.h>
#include <stddef.h>

enum { EXIT_INPUT = 1, EXIT_USAGE = 2, EXIT_CHECK = 3 };

/* Before ranks start: `name` opens every message. A page that ranks share (or NULL) lets a mistake that they all see be
 * printed once; notes are printed where `speaks`. */
void die_init(const char *name, void *page, bool speaks);
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));       /* exit 1 */
_Noreturn void die_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* exit 2 */
_Noreturn void die_check(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* exit 3 */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));            /* as die, and returns */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));                /* "name: note: ..." on stderr */

void *need(size_t n, size_t size); /* zeroed; dies when memory runs out */
char *need_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
