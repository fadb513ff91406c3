/* Two passes over the log: the first finds which lines are wanted, the second copies them. */
#include "session/context.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "session/log.h"
#include "session/log_tree.h"

#include <stdio.h>

/* What becomes of a line of the tree. */
struct choice {
    bool wanted;
    size_t
        new_parent; /* index + 1 of the line it hangs on in what is handed out; 0 = as it stands */
};

struct scan {
    struct log_tree tree;
    struct choice *choices; /* one a line */
    struct buf *out;
    size_t written;
};

static struct choice *choice_of(struct scan *s, const struct tree_line *l)
{
    return &s->choices[l - s->tree.lines];
}

/* Walks from the leaf to the root and marks. Lines that lose their parent hang on the next wanted
 * one. */
static void choose(struct scan *s)
{
    const char *first_kept = NULL; /* of the compaction nearest the leaf */
    bool compacted = false, below_kept = false, model = false, thinking = false;
    struct tree_line *child = NULL;
    size_t steps = 0;
    for (struct tree_line *l = log_tree_leaf(&s->tree); l && steps <= s->tree.n;
         l = log_tree_parent(&s->tree, l), steps++) {
        bool setting = l->kind == LINE_SETTING || (l->kind == LINE_MODEL && !model) ||
                       (l->kind == LINE_THINKING && !thinking);
        model = model || l->kind == LINE_MODEL;
        thinking = thinking || l->kind == LINE_THINKING;
        if (!below_kept || setting) {
            choice_of(s, l)->wanted = true;
            if (child && (child->parent == NULL || strcmp(child->parent, l->id) != 0))
                choice_of(s, child)->new_parent = (size_t)(l - s->tree.lines) + 1;
            child = l;
        }
        if (l->kind == LINE_COMPACTION && !compacted) {
            compacted = true;
            first_kept = l->first_kept;
        }
        if (first_kept && strcmp(l->id, first_kept) == 0)
            below_kept = true;
    }
    for (size_t i = 0; i < s->tree.n; i++)
        if (s->tree.lines[i].kind == LINE_HEADER)
            s->choices[i].wanted = true;
}

/* A result whose call is not handed out (its line is damaged) makes every provider refuse the
   conversation: it stays behind, and what hangs on it moves up. */
static void drop_orphans(struct scan *s)
{
    AUTO_JSON declared = json_object();
    size_t parent = 0; /* index + 1 of the last line that stays */
    bool dropped = false;
    for (size_t i = 0; i < s->tree.n; i++) {
        struct tree_line *l = &s->tree.lines[i];
        if (!s->choices[i].wanted || l->kind == LINE_HEADER)
            continue;
        if (l->answers && json_object_get(declared, l->answers) == NULL) {
            s->choices[i].wanted = false;
            dropped = true;
            continue;
        }
        json_object_update(declared, l->calls);
        if (dropped && parent)
            s->choices[i].new_parent = parent;
        dropped = false;
        parent = i + 1;
    }
}

static void write_reparented(struct scan *s, struct str line, const struct choice *choice)
{
    json_t *parsed = NULL;
    if (json_read_log(line, &parsed))
        return; /* it parsed in the first pass */
    AUTO_JSON entry = parsed;
    json_object_set_new(entry, "parentId", json_string(s->tree.lines[choice->new_parent - 1].id));
    json_write(entry, s->out);
}

static bool copy_line(void *arg, int64_t number, struct str line)
{
    struct scan *s = arg;
    if ((size_t)number >= s->tree.n)
        return false; /* appended meanwhile */
    const struct choice *choice = &s->choices[number];
    if (!choice->wanted)
        return true;
    if (choice->new_parent)
        write_reparented(s, line, choice);
    else
        buf_add_str(s->out, line);
    buf_add_char(s->out, '\n');
    s->written++;
    return true;
}

err context_lines(const char *logs_dir, const char *tenant, const char *session, struct buf *out,
                  size_t *out_count)
{
    AUTO_ARENA a = arena_new();
    struct scan s = {.out = out};
    TRY(log_tree_read(logs_dir, tenant, session, a, &s.tree));
    s.choices = mem_alloc((s.tree.n + 1) * sizeof *s.choices);
    choose(&s);
    drop_orphans(&s);
    err e = log_read(logs_dir, tenant, session, copy_line, &s);
    mem_free(s.choices);
    log_tree_done(&s.tree);
    if (!e)
        *out_count = s.written;
    return e;
}
