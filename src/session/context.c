/* Two passes over the log: the first finds which lines are wanted, the second copies them. */
#include "session/context.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/mem.h"
#include "session/log.h"

#include <stdio.h>

enum line_kind {
    LINE_OTHER,
    LINE_HEADER,
    LINE_SETTING, /* system message: patches build on each other, so all of them stay */
    LINE_MODEL,
    LINE_THINKING,
    LINE_COMPACTION
};

/* Of one line of the log. Ids live in the arena. */
struct line_info {
    const char *id, *parent, *first_kept;
    const char *answers; /* message(toolResult): its call */
    json_t *calls;       /* message(assistant): object of call ids, or NULL */
    enum line_kind kind;
    bool control, wanted;
    size_t
        new_parent; /* index + 1 of the line it hangs on in what is handed out; 0 = as it stands */
};

struct scan {
    struct arena *a;
    struct line_info *lines;
    size_t n, cap;
    json_t *by_id; /* id → index */
    struct buf *out;
    size_t written;
};

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

static const char *copy_member(struct scan *s, const json_t *entry, const char *key)
{
    const char *v = json_get_c(entry, key);
    return v ? arena_strdup(s->a, v) : NULL;
}

static void grow(struct scan *s)
{
    if (s->n < s->cap)
        return;
    s->cap = s->cap ? s->cap * 2 : 64;
    s->lines = mem_realloc(s->lines, size_mul(s->cap, sizeof *s->lines));
}

static void index_calls(struct scan *s, struct line_info *info, const json_t *entry)
{
    const json_t *message = json_object_get(entry, "message");
    if (str_is(json_get_str(message, "role"), "toolResult"))
        info->answers = copy_member(s, message, "toolCallId");
    if (!str_is(json_get_str(message, "role"), "assistant"))
        return;
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
    struct scan *s = arg;
    json_t *parsed = NULL;
    grow(s);
    struct line_info *info = &s->lines[s->n++];
    *info = (struct line_info){0};
    if (json_read_log(line, &parsed))
        return true; /* damaged: keeps its place, never wanted */
    AUTO_JSON entry = parsed;
    info->kind = kind_of(entry);
    info->id = copy_member(s, entry, "id");
    info->parent = copy_member(s, entry, "parentId");
    info->first_kept = copy_member(s, entry, "firstKeptEntryId");
    index_calls(s, info, entry);
    info->control = str_starts(json_get_str(entry, "customType"), STR("pi-managed:"));
    if (info->id && info->kind != LINE_HEADER)
        json_object_set_new(s->by_id, info->id, json_integer((json_int_t)s->n));
    return true;
}

static struct line_info *by_id(struct scan *s, const char *id)
{
    int64_t at = id ? json_get_int(s->by_id, id, 0) : 0;
    return at > 0 ? &s->lines[at - 1] : NULL;
}

/* The last of Pi's lines among the first n. */
static struct line_info *last_before(struct scan *s, size_t n)
{
    for (size_t i = n; i > 0; i--)
        if (s->lines[i - 1].id && !s->lines[i - 1].control && s->lines[i - 1].kind != LINE_HEADER)
            return &s->lines[i - 1];
    return NULL;
}

/* A parent that is not there was on a damaged line: the conversation goes on with the line before.
 */
static struct line_info *parent_of(struct scan *s, const struct line_info *l)
{
    struct line_info *parent = by_id(s, l->parent);
    return parent || l->parent == NULL ? parent : last_before(s, (size_t)(l - s->lines));
}

/* Walks from the leaf to the root and marks. Lines that lose their parent hang on the next wanted
 * one. */
static void choose(struct scan *s)
{
    const char *first_kept = NULL; /* of the compaction nearest the leaf */
    bool compacted = false, below_kept = false, model = false, thinking = false;
    struct line_info *child = NULL;
    size_t steps = 0;
    for (struct line_info *l = last_before(s, s->n); l && steps <= s->n;
         l = parent_of(s, l), steps++) {
        bool setting = l->kind == LINE_SETTING || (l->kind == LINE_MODEL && !model) ||
                       (l->kind == LINE_THINKING && !thinking);
        model = model || l->kind == LINE_MODEL;
        thinking = thinking || l->kind == LINE_THINKING;
        if (!below_kept || setting) {
            l->wanted = true;
            if (child && (child->parent == NULL || strcmp(child->parent, l->id) != 0))
                child->new_parent = (size_t)(l - s->lines) + 1;
            child = l;
        }
        if (l->kind == LINE_COMPACTION && !compacted) {
            compacted = true;
            first_kept = l->first_kept;
        }
        if (first_kept && strcmp(l->id, first_kept) == 0)
            below_kept = true;
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->lines[i].kind == LINE_HEADER)
            s->lines[i].wanted = true;
}

/* A result whose call is not handed out (its line is damaged) makes every provider refuse the
   conversation: it stays behind, and what hangs on it moves up. */
static void drop_orphans(struct scan *s)
{
    AUTO_JSON declared = json_object();
    size_t parent = 0; /* index + 1 of the last line that stays */
    bool dropped = false;
    for (size_t i = 0; i < s->n; i++) {
        struct line_info *l = &s->lines[i];
        if (!l->wanted || l->kind == LINE_HEADER)
            continue;
        if (l->answers && json_object_get(declared, l->answers) == NULL) {
            l->wanted = false;
            dropped = true;
            continue;
        }
        json_object_update(declared, l->calls);
        if (dropped && parent)
            l->new_parent = parent;
        dropped = false;
        parent = i + 1;
    }
}

static void write_reparented(struct scan *s, struct str line, const struct line_info *info)
{
    json_t *parsed = NULL;
    if (json_read_log(line, &parsed))
        return; /* it parsed in the first pass */
    AUTO_JSON entry = parsed;
    json_object_set_new(entry, "parentId", json_string(s->lines[info->new_parent - 1].id));
    json_write(entry, s->out);
}

static bool copy_line(void *arg, int64_t number, struct str line)
{
    struct scan *s = arg;
    if ((size_t)number >= s->n)
        return false; /* appended meanwhile */
    const struct line_info *info = &s->lines[number];
    if (!info->wanted)
        return true;
    if (info->new_parent)
        write_reparented(s, line, info);
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
    struct scan s = {.a = a, .by_id = json_object(), .out = out};
    err e = log_read(logs_dir, tenant, session, index_line, &s);
    if (!e) {
        choose(&s);
        drop_orphans(&s);
        e = log_read(logs_dir, tenant, session, copy_line, &s);
    }
    json_decref(s.by_id);
    for (size_t i = 0; i < s.n; i++)
        json_decref(s.lines[i].calls);
    mem_free(s.lines);
    if (!e)
        *out_count = s.written;
    return e;
}
