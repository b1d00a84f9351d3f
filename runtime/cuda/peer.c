/* Reading another rank's arenas (export): a thread of that rank copies what it is asked for into memory that the ranks
 * of its machine share. The rank itself waits at a barrier meanwhile. Its host sends it to ranks of other machines.
 * Relies on: rank.h, common/far.h, common/socket.h.
 * Relied on by: rank.c, common/far.c (sc_world_send), runtime/host (sc_read_peer). */
#include "../common/far.h"
#include "../common/socket.h"
#include "rank.h"
#include <string.h>

static void *serve(void *arg) {
    sc_rank *r = arg;
    sc_mailbox *m = &r->w->common->mailbox[r->rank];
    cudaStream_t s;
    SC_CUDA(cudaSetDevice(r->t->cuda.device));
    SC_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (uint32_t n = 1;; n++) { /* the first request may have come before this thread began */
        sc_flag_wait(&m->asked, n);
        if (atomic_load(&r->t->stop)) break;
        SC_CUDA(cudaMemcpyAsync(m->data, r->arena[m->host] + m->at, m->bytes, cudaMemcpyDefault, s));
        SC_CUDA(cudaStreamSynchronize(s));
        sc_flag_add(&m->answered, 1);
    }
    SC_CUDA(cudaStreamDestroy(s));
    return NULL;
}

void sc_peers_new(sc_rank *r) {
    if (r->world == 1) return;
    sc_far_new(r, 0);
    sc_check_thread(r, pthread_create(&r->t->service, NULL, serve, r));
    r->t->serves = true;
}

void sc_peers_free(sc_rank *r) {
    if (!r->t->serves) return;
    atomic_store(&r->t->stop, true);
    sc_flag_add(&r->w->common->mailbox[r->rank].asked, 1);
    pthread_join(r->t->service, NULL);
    sc_far_free(r);
}

/* The mailbox of a rank of this machine, locked, with bytes of its arena; *n: as many as there is room for. */
static sc_mailbox *fetch(const sc_world *w, int rank, int host, uint64_t at, uint64_t *n) {
    sc_mailbox *m = &w->common->mailbox[rank];
    if (*n > SC_PEER_BYTES) *n = SC_PEER_BYTES;
    pthread_mutex_lock(&m->lock);
    uint32_t answered = atomic_load(&m->answered.value);
    m->host = host;
    m->at = at;
    m->bytes = *n;
    sc_flag_add(&m->asked, 1);
    sc_flag_wait(&m->answered, answered + 1);
    return m;
}

bool sc_world_send(const sc_world *w, int fd, int rank, int host, uint64_t at, uint64_t bytes) {
    bool sent = true;
    for (uint64_t done = 0, n; sent && done < bytes; done += n) {
        n = bytes - done;
        sc_mailbox *m = fetch(w, rank, host, at + done, &n);
        sent = sc_socket_send(fd, m->data, n);
        pthread_mutex_unlock(&m->lock);
    }
    return sent;
}

void sc_read_peer(sc_rank *r, int peer, int host, uint64_t at, void *dst, size_t bytes) {
    sc_check_range(r, "read", host, at, bytes);
    if (peer == r->rank) {
        sc_read(r, host, at, dst, bytes);
        return;
    }
    if (sc_is_far(r, peer)) {
        sc_far_ask(r, SC_STREAMS, peer, host, at, bytes);
        sc_far_take(r, SC_STREAMS, peer, dst, bytes);
        return;
    }
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = bytes - done;
        sc_mailbox *m = fetch(r->w, peer, host, at + done, &n);
        memcpy((uint8_t *)dst + done, m->data, n);
        pthread_mutex_unlock(&m->lock);
    }
}
