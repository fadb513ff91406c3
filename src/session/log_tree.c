/* Lines of a log by id and parent. */
#include "session/log_tree.h"

#include "base/json_scan.h"
#include "base/mem.h"
#include "session/log.h"

/* What is wanted of an entry, as it stands in the line or in its value. */
enum part {
    TYPE,
    ID,
    PARENT,
    FIRST_KEPT,
    CUSTOM_TYPE,
    MESSAGE,
    PARTS
};
static const char *const part_names[PARTS] = {
    "type", "id", "parentId", "firstKeptEntryId", "customType", "message"};
enum message_part {
    ROLE,
    ANSWERS,
    STOP_REASON,
    CONTENT,
    MESSAGE_PARTS
};
static const char *const message_names[MESSAGE_PARTS] = {"role", "toolCallId", "stopReason",
                                                         "content"};
struct entry_view {
    struct str entry[PARTS], message[MESSAGE_PARTS]; /* p NULL: absent, or no string */
    json_t *calls;                                   /* of the content; NULL: none */
};

static enum line_kind kind_of(const struct entry_view *v)
{
    static const struct {
        const char *type;
        enum line_kind kind;
    } kinds[] = {{"session", LINE_HEADER},
                 {"model_change", LINE_MODEL},
                 {"thinking_level_change", LINE_THINKING},
                 {"compaction", LINE_COMPACTION},
                 {"context_edit", LINE_EDIT}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_is(v->entry[TYPE], kinds[i].type))
            return kinds[i].kind;
    return str_is(v->message[ROLE], "system") ? LINE_SETTING : LINE_OTHER;
}

static void add_call(struct entry_view *v, struct str type, struct str id)
{
    if (id.p == NULL || !str_is(type, "toolCall"))
        return;
    if (v->calls == NULL)
        v->calls = json_object();
    json_object_setn_new_nocheck(v->calls, id.p, strnlen(id.p, id.n), json_true());
}

/* ---- from the line as it stands ---- */

static bool texts_of(struct str *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (values[i].p && !json_scan_text(values[i], &values[i]))
            return false;
    return true;
}

struct call_scan {
    struct entry_view *view;
    bool plain;
};

static bool scan_block(void *arg, struct str item)
{
    static const char *const names[] = {"type", "id"};
    struct call_scan *scan = arg;
    struct str found[2] = {{0}};
    if (item.n == 0 || item.p[0] != '{')
        return true;
    scan->plain = json_scan_members(item, names, 2, found) && texts_of(found, 2);
    if (scan->plain)
        add_call(scan->view, found[0], found[1]);
    return scan->plain;
}

static bool scan_message(struct entry_view *v, struct str message)
{
    if (message.p[0] != '{')
        return true;
    if (!json_scan_members(message, message_names, MESSAGE_PARTS, v->message) ||
        !texts_of(v->message, CONTENT))
        return false;
    struct str content = v->message[CONTENT];
    if (!str_is(v->message[ROLE], "assistant") || content.p == NULL || content.p[0] != '[')
        return true;
    struct call_scan scan = {.view = v, .plain = true};
    return json_scan_items(content, scan_block, &scan) && scan.plain;
}

static bool scan_line(struct str line, struct entry_view *v)
{
    return str_is_utf8(line) && json_scan_members(line, part_names, PARTS, v->entry) &&
           texts_of(v->entry, MESSAGE) &&
           (v->entry[MESSAGE].p == NULL || scan_message(v, v->entry[MESSAGE]));
}

/* ---- from its value, where the line is not plain ---- */

static void view_value(const json_t *entry, struct entry_view *v)
{
    for (size_t i = 0; i < MESSAGE; i++)
        v->entry[i] = json_get_str(entry, part_names[i]);
    const json_t *message = json_object_get(entry, "message");
    for (size_t i = 0; i < CONTENT; i++)
        v->message[i] = json_get_str(message, message_names[i]);
    if (!str_is(v->message[ROLE], "assistant"))
        return;
    size_t i;
    json_t *block;
    json_array_foreach(json_object_get(message, "content"), i, block)
        add_call(v, json_get_str(block, "type"), json_get_str(block, "id"));
}

/* ---- the tree ---- */

static const char *copy(struct log_tree *t, struct str s)
{
    return s.p ? arena_str(t->a, s).p : NULL;
}

static void fill(struct log_tree *t, struct tree_line *info, const struct entry_view *v)
{
    info->kind = kind_of(v);
    info->id = copy(t, v->entry[ID]);
    info->parent = copy(t, v->entry[PARENT]);
    info->first_kept = copy(t, v->entry[FIRST_KEPT]);
    if (str_is(v->message[ROLE], "toolResult"))
        info->answers = copy(t, v->message[ANSWERS]);
    if (str_is(v->message[ROLE], "assistant"))
        info->incomplete =
            str_is(v->message[STOP_REASON], "aborted") || str_is(v->message[STOP_REASON], "error");
    info->calls = v->calls;
    info->control =
        str_is(v->entry[TYPE], "custom") && str_starts(v->entry[CUSTOM_TYPE], STR("pi-managed:"));
    if (info->id && info->kind != LINE_HEADER)
        json_object_set_new(t->by_id, info->id, json_integer((json_int_t)t->n));
}

static struct tree_line *add_line(struct log_tree *t)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->lines = mem_realloc(t->lines, size_mul(t->cap, sizeof *t->lines));
    }
    t->lines[t->n] = (struct tree_line){.offset = t->bytes};
    return &t->lines[t->n++];
}

static bool index_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    struct log_tree *t = arg;
    struct tree_line *info = add_line(t);
    t->bytes += (int64_t)line.n + 1;
    struct entry_view view = {0};
    if (scan_line(line, &view)) {
        fill(t, info, &view);
        return true;
    }
    json_decref(view.calls);
    view = (struct entry_view){0};
    json_t *parsed = NULL;
    if (json_read_log(line, &parsed))
        return true; /* damaged: keeps its place, never wanted */
    AUTO_JSON entry = parsed;
    view_value(entry, &view);
    fill(t, info, &view);
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
