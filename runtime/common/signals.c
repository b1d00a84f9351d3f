/* What signals ask of a run. SIGINT, SIGTERM and SIGHUP (a lost terminal) ask it to stop between two steps, a second
 * one to stop at once; SIGUSR1 asks it to save between two steps. One request may reach the launcher, one rank or all
 * of them; it is kept in memory that all share, and the ranks agree on the step. Relies on: rank.h. Relied on by:
 * launch.c, nodes.c, runtime/host (sc_heed, sc_asked). */
#include "rank.h"
#include <signal.h>

/* A terminal, `timeout`, and launchers send one request to several processes, or twice to the same one. */
enum { SAME_MS = 1000 };

static struct {
    _Atomic uint64_t stop; /* when it was asked for (ms) << 8 | the signal; 0: not */
    _Atomic int at_once;
    _Atomic uint64_t save_ms; /* when the last one was asked for */
    _Atomic int saves;
} * asked; /* never unmapped: a signal may come at any time */

bool sc_signals_new(void) {
    asked = sc_map_shared(sizeof *asked);
    return asked != NULL;
}

/* ── what has come ───────────────────────────────────────────────────────────────────────────────────────────────────
 */
static uint64_t now_ms(void) {
    return (uint64_t)(sc_now_s() * 1000) + 2 * SAME_MS; /* 0 is long ago even soon after the machine's start */
}

static void ask_to_stop(int signal) {
    if (sc_signals_ask(signal)) return;
    if (now_ms() > (atomic_load(&asked->stop) >> 8) + SAME_MS) atomic_store(&asked->at_once, 1);
}

static void take(int signal) { /* in any thread, at any time: atomics only */
    uint64_t now = now_ms(), last = atomic_load(&asked->save_ms);
    if (signal != SIGUSR1)
        ask_to_stop(signal);
    else if (now - last > SAME_MS && atomic_compare_exchange_strong(&asked->save_ms, &last, now))
        atomic_fetch_add(&asked->saves, 1);
}

/* A signal that was ignored when this process started, as a shell or nohup has it, stays ignored. */
void sc_signals_listen(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    struct sigaction ours = {.sa_handler = take, .sa_flags = SA_RESTART}, before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &ours, &before);
        if (signals[i] != SIGUSR1 && before.sa_handler == SIG_IGN) sigaction(signals[i], &before, NULL);
    }
}

sc_signals sc_signals_seen(void) {
    return (sc_signals){sc_signals_stop(), atomic_load(&asked->at_once), atomic_load(&asked->saves)};
}

void sc_signals_hear(const sc_signals *s) {
    int saves = atomic_load(&asked->saves);
    if (s->stop && !sc_signals_stop()) ask_to_stop(s->stop);
    if (s->at_once) atomic_store(&asked->at_once, 1);
    if (s->saves <= saves) return;
    atomic_store(&asked->save_ms, now_ms());
    atomic_compare_exchange_strong(&asked->saves, &saves, s->saves);
}

bool sc_signals_ask(int signal) {
    uint64_t none = 0;
    return atomic_compare_exchange_strong(&asked->stop, &none, now_ms() << 8 | (uint64_t)signal);
}

/* ── the launcher's view ─────────────────────────────────────────────────────────────────────────────────────────────
 */
int sc_signals_stop(void) {
    return (int)(atomic_load(&asked->stop) & 0xff);
}

/* Before the first step there is nothing to finish. */
bool sc_signals_at_once(const sc_world *w) {
    bool all = true;
    for (int k = 0; k < w->world; k++) all &= atomic_load(&w->ranks[k].stands) || atomic_load(&w->ranks[k].passed);
    return !all || atomic_load(&asked->at_once);
}

bool sc_signals_last(void) {
    return now_ms() > (atomic_load(&asked->stop) >> 8) + SAME_MS;
}

/* ── the ranks' ──────────────────────────────────────────────────────────────────────────────────────────────────────
 */
static bool pending(const sc_rank *r, bool only_stop) {
    return sc_signals_stop() || (!only_stop && atomic_load(&asked->saves) != r->saves);
}

bool sc_asked(const sc_rank *r) {
    return pending(r, false);
}

/* true: all ranks stand at this turn. false: one has passed it unaware of the request; then all pass it, and meet at a
 * later one. No two ranks can see different answers: the first rank to pass a turn has not stood at it, and a rank that
 * stands passes only after another has, or after all stand. The order in which ranks' words arrive does not matter, so
 * a mirror between machines serves (nodes.c). */
static bool all_stand(sc_rank *r, int64_t turn) {
    sc_shared_rank *ranks = r->w->ranks;
    int n = 0;
    atomic_store(&ranks[r->rank].stands, turn);
    atomic_store(&ranks[r->rank].at_barrier, 1); /* for the watchdog */
    for (bool passed = false; !passed && n < r->world; usleep(1000)) {
        n = 0;
        for (int k = 0; k < r->world; k++) {
            int64_t stands = atomic_load(&ranks[k].stands);
            passed |= stands > turn || atomic_load(&ranks[k].passed) >= turn;
            n += stands == turn;
        }
    }
    atomic_store(&ranks[r->rank].at_barrier, 0);
    return n == r->world;
}

/* Where nobody asks it costs a few loads and a store. */
int sc_heed(sc_rank *r, bool only_stop) {
    int64_t turn = ++r->turn;
    int signal = 0;
    if (pending(r, only_stop) && all_stand(r, turn)) { /* all do what rank 0 has seen */
        double stop = sc_host_sum(r, r->rank ? 0 : sc_signals_stop());
        r->saves = (int)sc_host_sum(r, r->rank ? 0 : atomic_load(&asked->saves));
        signal = stop > 0 ? (int)stop : SIGUSR1;
    }
    atomic_store(&r->w->ranks[r->rank].passed, turn);
    return signal;
}
