/* A sink that writes down what it is told of a copy, for the suites sandbox_copyout*.c. Header
 * only. */
#ifndef TESTS_UNIT_COPYOUT_SUPPORT_H
#define TESTS_UNIT_COPYOUT_SUPPORT_H

#include "base/buf.h"
#include "sandbox/copyout.h"

struct notes {
    struct buf text; /* "change type mode path [-> target] [= content] [trouble]\n" */
    struct buf now, before;
    uint64_t entries, bytes, content_calls;
    bool count_only, tell_before;
    err refuse; /* from the second entry on */
    enum copyout_trouble trouble;
};

static inline void notes_done(struct notes *n)
{
    buf_done(&n->text);
    buf_done(&n->now);
    buf_done(&n->before);
}
#define AUTO_NOTES __attribute__((cleanup(notes_done))) struct notes

static inline err note_begin(void *arg, const struct copyout_entry *e)
{
    struct notes *n = arg;
    if (n->entries++ > 0 && n->refuse)
        return (fail)(n->refuse, "enough");
    buf_clear(&n->now);
    buf_clear(&n->before);
    if (n->count_only)
        return 0;
    const struct copyout_node *node = e->now.type ? &e->now : &e->before;
    buf_printf(&n->text, "%c%c %03o %.*s", "=AMD"[e->change], "-fdlo"[node->type], node -> mode,
               STR_ARG(e->path));
    if (node->type == COPYOUT_LINK)
        buf_printf(&n->text, " -> %.*s", STR_ARG(node->target));
    return 0;
}

static inline err note_content(void *arg, enum copyout_side side, struct str bytes)
{
    struct notes *n = arg;
    n->bytes += bytes.n;
    n->content_calls++;
    if (!n->count_only)
        buf_add_str(side == COPYOUT_NOW ? &n->now : &n->before, bytes);
    return 0;
}

static inline err note_end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    struct notes *n = arg;
    (void)before;
    if (n->count_only)
        return 0;
    if (n->tell_before && n->before.n)
        buf_printf(&n->text, " was %.*s", STR_ARG(buf_str(&n->before)));
    if (n->now.n)
        buf_printf(&n->text, " = %.*s", STR_ARG(buf_str(&n->now)));
    if (now)
        buf_printf(&n->text, " trouble %d", (int)now);
    buf_add_char(&n->text, '\n');
    return 0;
}

static inline struct copyout_sink sink_of(struct notes *n)
{
    return (struct copyout_sink){
        .begin = note_begin, .content = note_content, .end = note_end, .arg = n};
}

#endif
