/* Sanitizer settings of the test program: arenas are freed by the end of the process, and huge requests must fail
 * politely. Relies on: the address sanitizer, which looks this function up. Relied on by: make test with
 * -fsanitize=address. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0:allocator_may_return_null=1";
}
