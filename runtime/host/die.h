/* One message, one exit code: how the training program ends when something is wrong.
 * Relies on: the C library.
 * Relied on by: everything in runtime/host. */
#ifndef HOST_DIE_H
#define HOST_DIE_H

#include <stdbool.h>
#include <stddef.h>

enum { EXIT_INPUT = 1, EXIT_USAGE = 2, EXIT_CHECK = 3 };

/* Before ranks start: `name` opens every message; ranks share a page so that a mistake they all see is printed once. */
void die_init(const char *name);
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));       /* exit 1 */
_Noreturn void die_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* exit 2 */
_Noreturn void die_check(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* exit 3 */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));                /* "name: note: ..." on stderr */

void *need(size_t n, size_t size); /* zeroed; dies when memory runs out */
char *need_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
