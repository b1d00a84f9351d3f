/* The program that a compiled model is.
 * Relies on: run.h, and sc_this_build, which the compiler wrote.
 * Relied on by: nothing. */
#include "run.h"

int main(int argc, char **argv) {
    return host_main(&sc_this_build, argc, argv);
}
