/* Two passes over the log: the first finds which lines are wanted, the second copies them. */
#include "session/context.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "session/log.h"
#include "session/log_tree.h"

#include <stdio.h>

/* What becomes of a line of the tree. */
struct context_choice {
    bool wanted;
    size_t
        new_parent; /* index + 1 of the line it hangs on in what is handed out; 0 = as it stands */
};

struct copy {
    struct context context;
    struct buf *out;
    size_t written;
};

static struct context_choice *choice_of(struct context *c, const struct tree_line *l)
{
    return &c->choices[l - c->tree.lines];
}

/* Walks from the leaf to the root and marks. Lines that lose their parent hang on the next wanted
 * one. */
static void choose(struct context *c)
{
    const char *first_kept = NULL; /* of the compaction nearest the leaf */
    bool compacted = false, below_kept = false, model = false, thinking = false;
    struct tree_line *child = NULL;
    size_t steps = 0;
    for (struct tree_line *l = log_tree_leaf(&c->tree); l && steps <= c->tree.n;
         l = log_tree_parent(&c->tree, l), steps++) {
        bool setting = l->kind == LINE_SETTING || (l->kind == LINE_MODEL && !model) ||
                       (l->kind == LINE_THINKING && !thinking);
        model = model || l->kind == LINE_MODEL;
        thinking = thinking || l->kind == LINE_THINKING;
        if (!below_kept || setting) {
            choice_of(c, l)->wanted = true;
            if (child && (child->parent == NULL || strcmp(child->parent, l->id) != 0))
                choice_of(c, child)->new_parent = (size_t)(l - c->tree.lines) + 1;
            child = l;
        }
        if (l->kind == LINE_COMPACTION && !compacted) {
            compacted = true;
            first_kept = l->first_kept;
        }
        if (first_kept && strcmp(l->id, first_kept) == 0)
            below_kept = true;
    }
    for (size_t i = 0; i < c->tree.n; i++)
        if (c->tree.lines[i].kind == LINE_HEADER)
            c->choices[i].wanted = true;
}

/* A result whose call is not handed out (its line is damaged) makes every provider refuse the
   conversation: it stays behind, and what hangs on it moves up. */
static void drop_orphans(struct context *c)
{
    AUTO_JSON declared = json_object();
    size_t parent = 0; /* index + 1 of the last line that stays */
    bool dropped = false;
    for (size_t i = 0; i < c->tree.n; i++) {
        struct tree_line *l = &c->tree.lines[i];
        if (!c->choices[i].wanted || l->kind == LINE_HEADER)
            continue;
        if (l->answers && json_object_get(declared, l->answers) == NULL) {
            c->choices[i].wanted = false;
            dropped = true;
            continue;
        }
        json_object_update(declared, l->calls);
        if (dropped && parent)
            c->choices[i].new_parent = parent;
        dropped = false;
        parent = i + 1;
    }
}

err context_open(const char *logs_dir, const char *tenant, const char *session, struct arena *a,
                 struct context *out)
{
    *out = (struct context){0};
    TRY(log_tree_read(logs_dir, tenant, session, a, &out->tree));
    out->choices = mem_alloc(size_mul(out->tree.n + 1, sizeof *out->choices));
    choose(out);
    drop_orphans(out);
    return 0;
}

void context_close(struct context *c)
{
    mem_free(c->choices);
    log_tree_done(&c->tree);
    c->choices = NULL;
}

bool context_wants(const struct context *c, size_t line)
{
    return c->choices[line].wanted;
}

/* ---- copying ---- */

static void write_reparented(struct copy *x, struct str line, const struct context_choice *choice)
{
    json_t *parsed = NULL;
    if (json_read_log(line, &parsed))
        return; /* it parsed in the first pass */
    AUTO_JSON entry = parsed;
    const char *parent = x->context.tree.lines[choice->new_parent - 1].id;
    json_object_set_new(entry, "parentId", json_string(parent));
    json_write(entry, x->out);
}

static bool copy_line(void *arg, int64_t number, struct str line)
{
    struct copy *x = arg;
    if ((size_t)number >= x->context.tree.n)
        return false; /* appended meanwhile */
    const struct context_choice *choice = &x->context.choices[number];
    if (!choice->wanted)
        return true;
    if (choice->new_parent)
        write_reparented(x, line, choice);
    else
        buf_add_str(x->out, line);
    buf_add_char(x->out, '\n');
    x->written++;
    return true;
}

err context_lines(const char *logs_dir, const char *tenant, const char *session, struct buf *out,
                  size_t *out_count)
{
    AUTO_ARENA a = arena_new();
    struct copy x = {.out = out};
    TRY(context_open(logs_dir, tenant, session, a, &x.context));
    err e = log_read(logs_dir, tenant, session, copy_line, &x);
    context_close(&x.context);
    if (!e)
        *out_count = x.written;
    return e;
}
