#include "parent/child.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/log.h"
#include "parent/parent.h"
#include "parent/roles.h"

#define STEADY_MS 30000
#define BACKOFF_FIRST_MS 100

err child_spawn(struct child *c, const struct parent_options *o)
{
    AUTO_FD theirs = -1;
    TRY(peer_open(&c->peer, &theirs));
    struct role_bind binds[] = {
        {.from = o->runtime_dir, .name = "runtime"},
        {.from = o->data->path, .name = "data", .writable = true},
        {.from = o->objects_dir, .name = "objects", .writable = true},
    };
    err e = role_spawn(&(struct role_start){.name = c->name,
                                            .args = o->role_args,
                                            .link = theirs,
                                            .separate = o->separate,
                                            .confined = true,
                                            .uid = o->uid_base + (c->has_data ? 0 : 1),
                                            .binds = binds,
                                            .bind_count = !c->has_data     ? 1
                                                          : o->objects_dir ? 3
                                                                           : 2},
                       &c->pid);
    if (e)
        peer_close(&c->peer);
    return e;
}

void child_sent(struct child *c, err e)
{
    if (e == 0 || e == E_CLOSED)
        return;
    log_error("cannot talk to %s: %s; it is ended", c->name, err_text());
    if (c->pid)
        kill(c->pid, SIGKILL);
}

void child_send(struct child *c, const struct parent_message *m, const int *fds, size_t n)
{
    child_sent(c, peer_send(&c->peer, m, fds, n));
}

void child_reply(struct child *c, struct parent_message *m, err e)
{
    parent_message_outcome(m, e);
    child_send(c, m, NULL, 0);
}

int64_t child_backoff_ms(struct child *c, int64_t now_ms)
{
    if (now_ms - c->started_ms >= STEADY_MS)
        c->failures = 0;
    int64_t wait_ms = c->failures ? BACKOFF_FIRST_MS : 0;
    for (unsigned n = 1; n < c->failures && wait_ms < CHILD_BACKOFF_MAX_MS; n++)
        wait_ms *= 2;
    c->failures++;
    return wait_ms < CHILD_BACKOFF_MAX_MS ? wait_ms : CHILD_BACKOFF_MAX_MS;
}

const char *child_status_text(int status, char *out, size_t cap)
{
    if (WIFSIGNALED(status))
        snprintf(out, cap, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(out, cap, "exit status %d", WEXITSTATUS(status));
    return out;
}
