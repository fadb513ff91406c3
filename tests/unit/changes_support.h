/* For tests of sandboxes: what differs from their image, as pi-hands tells it. */
#ifndef CHANGES_SUPPORT_H
#define CHANGES_SUPPORT_H

#include "base/buf.h"
#include "sandbox/copyout.h"

static inline err changes_begin(void *arg, const struct copyout_entry *e)
{
    const struct copyout_node *node = e->now.type ? &e->now : &e->before;
    buf_printf(arg, "%c%c %o %.*s\n", "=AMD"[e->change], "-fdlo"[node->type], node -> mode,
               STR_ARG(e->path));
    return 0;
}

static inline err changes_end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    (void)arg;
    (void)now;
    (void)before;
    return 0;
}

/* Lines like "Af 644 workspace/f"; or why there are none. */
static inline void changes_of(const char *socket, struct buf *out)
{
    struct copyout_request r = {.root = "/", .changes = true};
    struct copyout_sink sink = {.begin = changes_begin, .end = changes_end, .arg = out};
    struct copyout_summary s;
    buf_add_c(out, "");
    if (copyout_run(socket, &r, &sink, &s))
        buf_add_c(out, err_text());
}

#endif
