/* A thread that does one job at a time: a counter starts a job, another tells that it has ended.
 * Relies on: background.h, die, runtime/common/flag.h.
 * Relied on by: checkpoint. */
#include "background.h"
#include "../common/flag.h"
#include "die.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct Background {
    pthread_t thread;
    sc_flag begun, ended; /* jobs */
    uint32_t jobs;        /* begun, as the owner counts them */
    void (*job)(void *);  /* NULL: end */
    void *arg;
};

static void *serve(void *arg) {
    Background *b = arg;
    for (uint32_t n = 1;; n++) {
        sc_flag_wait(&b->begun, n);
        if (!b->job) return NULL;
        b->job(b->arg);
        sc_flag_add(&b->ended, 1);
    }
}

Background *background_new(void) {
    Background *b = need(1, sizeof *b);
    int error = pthread_create(&b->thread, NULL, serve, b);
    if (!error) return b;
    free(b);
    errno = error;
    return NULL;
}

void background_begin(Background *b, void (*job)(void *), void *arg) {
    background_wait(b);
    b->job = job;
    b->arg = arg;
    b->jobs++;
    sc_flag_add(&b->begun, 1);
}

bool background_busy(Background *b) {
    return !sc_flag_reached(&b->ended, b->jobs);
}

void background_wait(Background *b) {
    sc_flag_wait(&b->ended, b->jobs);
}

void background_free(Background *b) {
    if (!b) return;
    background_begin(b, NULL, NULL);
    pthread_join(b->thread, NULL);
    free(b);
}
