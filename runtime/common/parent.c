/* Is the launcher that started this process still there? A launcher that is killed leaves its ranks behind, and nobody
 * tells them: they look. PR_SET_PDEATHSIG would not do, since it speaks of the thread that forked: launchers written in
 * Python start ranks from threads that end. A parent that ends is no launcher's end where people detach a run: a shell
 * that has started it in the background, setsid, nohup.
 * Relies on: parent.h; /proc. Relied on by: place.c, launch.c. */
#include "parent.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    int pid, parent;
    char state, name[32];
    unsigned long long started; /* tells it from a later process of the same number */
} process;

static struct {
    process is; /* pid 0: nobody is watched */
    bool direct;
} launcher;

/* Nothing is allocated: it is read while ranks train. */
static bool look_at(int pid, process *p) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    char *name = strchr(text, '('), *end = strrchr(text, ')'); /* a name may hold brackets */
    *p = (process){.pid = pid};
    if (!name || !end) return false;
    snprintf(p->name, sizeof p->name, "%.*s", (int)(end - name - 1), name + 1);
    return sscanf(end + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &p->state,
                  &p->parent, &p->started) == 3;
}

/* What stands between a launcher and a rank, or has detached it. */
static bool detaches(const process *p) {
    static const char *const names[] = {"sh",  "bash", "dash", "ash", "busybox", "zsh",
                                        "ksh", "mksh", "fish", "csh", "tcsh",    "setsid"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(p->name, names[i])) return true;
    return false;
}

/* Where a launcher has set its own variables, it is the first of the ancestors that is no shell. Where they were set by
 * hand, or by who takes torchrun's place, it is the parent, if that is no shell, and nohup was not asked for. */
void sc_parent_find(bool certain) {
    struct sigaction hangup;
    process p;
    int pid = getppid();
    bool known = look_at(pid, &p), direct = true;
    while (certain && known && detaches(&p) && p.parent > 1) {
        known = look_at(p.parent, &p);
        direct = false;
    }
    bool ignores = !sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler == SIG_IGN;
    bool watch = pid > 1 && !detaches(&p) && (certain ? known || direct : known && !ignores);
    launcher.is = watch ? p : (process){.pid = 0};
    launcher.direct = direct;
}

int sc_parent_process(void) {
    return launcher.is.pid ? launcher.is.pid : getppid();
}

bool sc_parent_gone(char *who, size_t n) {
    const process *l = &launcher.is;
    process now;
    if (!l->pid) return false;
    bool there =
        launcher.direct ? getppid() == l->pid : look_at(l->pid, &now) && now.started == l->started && now.state != 'Z';
    snprintf(who, n, "%s (process %d)", *l->name ? l->name : "the launcher", l->pid);
    return !there;
}
