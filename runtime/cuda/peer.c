/* Reading another rank's arenas (export, checkpoints on one machine): a thread of that rank copies what it is
 * asked for into memory that all ranks share. The rank itself waits at a barrier meanwhile.
 * Relies on: rank.h.
 * Relied on by: rank.c, runtime/host (sc_read_peer). */
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
    sc_check_thread(r, pthread_create(&r->t->service, NULL, serve, r));
    r->t->serves = true;
}

void sc_peers_free(sc_rank *r) {
    if (!r->t->serves) return;
    atomic_store(&r->t->stop, true);
    sc_flag_add(&r->w->common->mailbox[r->rank].asked, 1);
    pthread_join(r->t->service, NULL);
}

bool sc_reads_peers(void) {
    return sc_one_machine();
}

void sc_read_peer(sc_rank *r, int peer, int host, uint64_t at, void *dst, size_t bytes) {
    sc_check_range(r, "read", host, at, bytes);
    if (peer == r->rank) {
        sc_read(r, host, at, dst, bytes);
        return;
    }
    sc_mailbox *m = &r->w->common->mailbox[peer];
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < SC_PEER_BYTES ? bytes - done : SC_PEER_BYTES;
        pthread_mutex_lock(&m->lock);
        uint32_t answered = atomic_load(&m->answered.value);
        m->host = host;
        m->at = at + done;
        m->bytes = n;
        sc_flag_add(&m->asked, 1);
        sc_flag_wait(&m->answered, answered + 1);
        memcpy((uint8_t *)dst + done, m->data, n);
        pthread_mutex_unlock(&m->lock);
    }
}
