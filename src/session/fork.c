#include "session/fork.h"

#include "base/clock.h"
#include "base/mem.h"
#include "hands/frames.h"
#include "session/log.h"
#include "session/log_tree.h"

#include <sodium.h>
#include <stdio.h>

#define SYNC_BYTES ((size_t)8 << 20) /* of lines held in memory between writes */

struct fork {
    struct fork_request request;
    const char *files_from;
    struct arena *a;
    struct log_tree tree;
    const struct tree_line *at; /* where it forks */
    bool *on_path;              /* one a line */
    bool turn_over;             /* the turn that ended with `at` is over */
    struct session_log *log;
    size_t pending;
    err failed;
};

/* ---- where ---- */

static err find_entry(struct fork *c)
{
    c->at = c->request.entry ? log_tree_find(&c->tree, c->request.entry) : log_tree_leaf(&c->tree);
    if (c->at == NULL && c->request.entry == NULL)
        return fail_as(E_CONFLICT, "nothing_to_fork",
                       "the session has no entries yet: create another one instead");
    if (c->at == NULL || c->at->control || c->at->kind == LINE_HEADER)
        return fail_as(E_NOT_FOUND, "entry_not_found",
                       "the session's log has no entry %.64s that can be forked at",
                       c->request.entry);
    return 0;
}

/* Marks the way to the root; false if it is a circle (an imported log may hold anything). */
static bool mark_path(struct fork *c)
{
    size_t steps = 0;
    for (const struct tree_line *l = c->at; l; l = log_tree_parent(&c->tree, l)) {
        c->on_path[l - c->tree.lines] = true;
        if (++steps > c->tree.n)
            return false;
    }
    return true;
}

/* The last line on the path at which no call is open; `at` itself when all is well. */
static const struct tree_line *last_complete(struct fork *c)
{
    AUTO_JSON open = json_object();
    const struct tree_line *found = NULL;
    for (size_t i = 0; i < c->tree.n; i++) {
        const struct tree_line *l = &c->tree.lines[i];
        if (!c->on_path[i])
            continue;
        if (l->answers)
            json_object_del(open, l->answers);
        if (!l->incomplete)
            json_object_update(open, l->calls);
        if (json_object_size(open) == 0)
            found = l;
    }
    return found;
}

static err check_entry(struct fork *c)
{
    if (!mark_path(c))
        return fail_as(E_CONFLICT, "log_damaged", "the entries of the log form a circle");
    const struct tree_line *complete = last_complete(c);
    if (complete == c->at)
        return 0;
    return fail_as(E_CONFLICT, "open_tool_calls",
                   "at entry %.64s a tool call has no result yet%s%.64s", c->at->id,
                   complete ? "; fork at " : "", complete ? complete->id : "");
}

/* ---- what ---- */

static bool is_on_path(struct fork *c, const struct tree_line *l)
{
    const struct tree_line *parent = log_tree_find(&c->tree, l->parent);
    return l->parent == NULL || (parent && c->on_path[parent - c->tree.lines]);
}

/* Of the lines that hang on the entry itself only those that belong to it: what came after its turn
   is another conversation. */
static bool belongs_to_entry(struct fork *c, const json_t *entry)
{
    static const char *const kept[] = {"span.model_request_end", "session.error", "session.updated",
                                       "session.status_idle", NULL};
    if (c->turn_over || !str_is(json_get_str(entry, "customType"), "pi-managed:event"))
        return false;
    struct str type =
        json_get_str(json_object_get(json_object_get(entry, "data"), "event"), "type");
    c->turn_over = str_is(type, "session.status_idle");
    for (size_t i = 0; kept[i]; i++)
        if (str_is(type, kept[i]))
            return true;
    return false;
}

/* Of one of control's lines on the path. */
static bool wants_control(struct fork *c, const struct tree_line *l, struct str line)
{
    json_t *parsed = NULL;
    if (!is_on_path(c, l) || json_read_log(line, &parsed))
        return false;
    AUTO_JSON entry = parsed;
    /* An older fork is the other session's: here everything before the new one is derived. */
    if (str_is(json_get_str(entry, "customType"), "pi-managed:fork"))
        return false;
    bool at_entry = l->parent && strcmp(l->parent, c->at->id) == 0;
    return !at_entry || belongs_to_entry(c, entry);
}

/* ---- writing ---- */

static bool write_line(struct fork *c, struct str line)
{
    log_append(c->log, line);
    c->pending += line.n + 1;
    if (c->pending < SYNC_BYTES)
        return true;
    c->pending = 0;
    c->failed = log_sync(c->log);
    return c->failed == 0;
}

static bool copy_line(void *arg, int64_t number, struct str line)
{
    struct fork *c = arg;
    if ((size_t)number >= c->tree.n)
        return false; /* came meanwhile */
    const struct tree_line *l = &c->tree.lines[number];
    bool wanted =
        l->control ? wants_control(c, l, line) : l->kind != LINE_HEADER && c->on_path[number];
    return !wanted || write_line(c, line);
}

static void write_json(struct fork *c, json_t *take_line)
{
    AUTO_BUF text = {0};
    json_write(take_line, &text);
    json_decref(take_line);
    write_line(c, buf_str(&text));
}

static void write_header(struct fork *c)
{
    json_t *h = json_pack("{s:s, s:i, s:s}", "type", "session", "version", 3, "id", c->request.to);
    json_set_time(h, "timestamp", c->request.now_ms);
    json_object_set_new(h, "cwd", json_string(SANDBOX_WORKDIR));
    json_object_set_new(h, "parentSession", json_string(c->request.from));
    write_json(c, h);
}

static void write_fork_line(struct fork *c)
{
    uint64_t random;
    char id[24];
    randombytes_buf(&random, sizeof random);
    snprintf(id, sizeof id, "%016llx", (unsigned long long)random);
    json_t *line = json_pack("{s:s, s:s, s:s, s:s}", "type", "custom", "customType",
                             "pi-managed:fork", "id", id, "parentId", c->at->id);
    json_set_time(line, "timestamp", c->request.now_ms);
    json_object_set_new(line, "data",
                        json_pack("{s:s, s:s, s:s}", "fromSessionId", c->request.from,
                                  "fromEntryId", c->at->id, "filesFrom", c->files_from));
    write_json(c, line);
}

static err write_log(struct fork *c)
{
    const struct fork_request *f = &c->request;
    TRY(log_open(f->logs_dir, f->tenant, f->to, &c->log));
    write_header(c);
    err e = log_read(f->logs_dir, f->tenant, f->from, copy_line, c);
    e = e ? e : c->failed;
    if (!e) {
        write_fork_line(c);
        e = log_sync(c->log);
    }
    log_close(c->log);
    return e;
}

err fork_open(const struct fork_request *request, struct fork **out)
{
    struct fork *c = mem_alloc(sizeof *c);
    *c = (struct fork){.request = *request, .a = arena_new()};
    err e = log_tree_read(request->logs_dir, request->tenant, request->from, c->a, &c->tree);
    if (!e) {
        c->on_path = mem_alloc(c->tree.n + 1);
        e = find_entry(c);
    }
    e = e ? e : check_entry(c);
    if (e)
        fork_close(c);
    else
        *out = c;
    return e;
}

const char *fork_entry(const struct fork *c)
{
    return c->at->id;
}

err fork_write(struct fork *c, const char *files_from)
{
    const struct fork_request *f = &c->request;
    c->files_from = files_from;
    err e = write_log(c);
    if (!e)
        return 0;
    struct err_slot why;
    err_save(&why);
    (void)log_remove(f->logs_dir, f->tenant, f->to); /* what failed first is what is told */
    return err_restore(&why);
}

void fork_close(struct fork *c)
{
    if (c == NULL)
        return;
    mem_free(c->on_path);
    log_tree_done(&c->tree);
    arena_free(c->a);
    mem_free(c);
}
