/* Lines of a log by id and parent. */
#include "session/log_tree.h"

#include "base/mem.h"
#include "session/log.h"

static enum line_kind kind_of(const json_t *entry)
{
    static const struct {
        const char *type;
        enum line_kind kind;
    } kinds[] = {{"session", LINE_HEADER},
                 {"model_change", LINE_MODEL},
                 {"thinking_level_change", LINE_THINKING},
                 {"compaction", LINE_COMPACTION}};
    struct str type = json_get_str(entry, "type");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_is(type, kinds[i].type))
            return kinds[i].kind;
    const json_t *message = json_object_get(entry, "message");
    return str_is(json_get_str(message, "role"), "system") ? LINE_SETTING : LINE_OTHER;
}

static const char *copy_member(struct log_tree *t, const json_t *entry, const char *key)
{
    const char *v = json_get_c(entry, key);
    return v ? arena_strdup(t->a, v) : NULL;
}

static void grow(struct log_tree *t)
{
    if (t->n < t->cap)
        return;
    t->cap = t->cap ? t->cap * 2 : 64;
    t->lines = mem_realloc(t->lines, size_mul(t->cap, sizeof *t->lines));
}

static void index_calls(struct log_tree *t, struct tree_line *info, const json_t *entry)
{
    const json_t *message = json_object_get(entry, "message");
    if (str_is(json_get_str(message, "role"), "toolResult"))
        info->answers = copy_member(t, message, "toolCallId");
    if (!str_is(json_get_str(message, "role"), "assistant"))
        return;
    struct str stop = json_get_str(message, "stopReason");
    info->incomplete = str_is(stop, "aborted") || str_is(stop, "error");
    size_t i;
    json_t *block;
    json_array_foreach(json_object_get(message, "content"), i, block)
    {
        const char *id = json_get_c(block, "id");
        if (id == NULL || !str_is(json_get_str(block, "type"), "toolCall"))
            continue;
        if (info->calls == NULL)
            info->calls = json_object();
        json_object_set_new(info->calls, id, json_true());
    }
}

static bool index_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    struct log_tree *t = arg;
    json_t *parsed = NULL;
    grow(t);
    struct tree_line *info = &t->lines[t->n++];
    *info = (struct tree_line){0};
    if (json_read_log(line, &parsed))
        return true; /* damaged: keeps its place, never wanted */
    AUTO_JSON entry = parsed;
    info->kind = kind_of(entry);
    info->id = copy_member(t, entry, "id");
    info->parent = copy_member(t, entry, "parentId");
    info->first_kept = copy_member(t, entry, "firstKeptEntryId");
    index_calls(t, info, entry);
    info->control = str_is(json_get_str(entry, "type"), "custom") &&
                    str_starts(json_get_str(entry, "customType"), STR("pi-managed:"));
    if (info->id && info->kind != LINE_HEADER)
        json_object_set_new(t->by_id, info->id, json_integer((json_int_t)t->n));
    return true;
}

struct tree_line *log_tree_find(const struct log_tree *t, const char *id)
{
    int64_t at = id ? json_get_int(t->by_id, id, 0) : 0;
    return at > 0 ? &t->lines[at - 1] : NULL;
}

/* The last of Pi's lines among the first n. */
static struct tree_line *last_before(const struct log_tree *t, size_t n)
{
    for (size_t i = n; i > 0; i--)
        if (t->lines[i - 1].id && !t->lines[i - 1].control && t->lines[i - 1].kind != LINE_HEADER)
            return &t->lines[i - 1];
    return NULL;
}

struct tree_line *log_tree_leaf(const struct log_tree *t)
{
    return last_before(t, t->n);
}

struct tree_line *log_tree_parent(const struct log_tree *t, const struct tree_line *l)
{
    struct tree_line *parent = log_tree_find(t, l->parent);
    return parent || l->parent == NULL ? parent : last_before(t, (size_t)(l - t->lines));
}

err log_tree_read(const char *logs_dir, const char *tenant, const char *session, struct arena *a,
                  struct log_tree *out)
{
    *out = (struct log_tree){.a = a, .by_id = json_object()};
    err e = log_read(logs_dir, tenant, session, index_line, out);
    if (e)
        log_tree_done(out);
    return e;
}

void log_tree_done(struct log_tree *t)
{
    json_decref(t->by_id);
    for (size_t i = 0; i < t->n; i++)
        json_decref(t->lines[i].calls);
    mem_free(t->lines);
    *t = (struct log_tree){0};
}
