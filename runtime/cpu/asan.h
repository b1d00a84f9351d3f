/* AddressSanitizer's word on bytes that may not be touched, nothing in other builds.
 * Relies on: gcc's sanitizer headers, where they are built in.
 * Relied on by: debug.c, tests/unit/test_runtime_cpu.c. */
#ifndef SC_ASAN_H
#define SC_ASAN_H

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define ASAN 1
#else
#define ASAN 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#endif
