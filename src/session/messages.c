/* The rules of Pi 1.6.0's session projection, on the lines that a host would be given. Most
   messages are in their line as they are to be shown: their bytes are copied. */
#include "session/messages.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/json_scan.h"
#include "base/mem.h"
#include "session/context.h"
#include "session/log.h"

#define PIECE_BYTES ((size_t)64 << 10)

/* JavaScript's `value ?? otherwise`. */
static json_t *member_or(const json_t *entry, const char *name, json_t *take_otherwise)
{
    json_t *value = json_object_get(entry, name);
    if (value && !json_is_null(value)) {
        json_decref(take_otherwise);
        return json_incref(value);
    }
    return take_otherwise;
}

static json_t *message_with(const char *role, const json_t *entry, const char *const *members)
{
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    for (; *members; members++)
        json_object_set(m, *members, json_object_get(entry, *members)); /* or not, if it has none */
    const char *time = json_get_c(entry, "timestamp");
    int64_t at;
    bool valid = time && clock_parse(time, &at);
    json_object_set_new(m, "timestamp", valid ? json_integer(at) : json_null());
    return m;
}

static bool is_any_of(struct str role, const char *const *roles)
{
    for (; *roles; roles++)
        if (str_is(role, *roles))
            return true;
    return false;
}

/* A message without content is shown with an empty one. */
static json_t *plain_message(const json_t *entry)
{
    static const char *const with_blocks[] = {"user", "assistant", "toolResult", NULL};
    json_t *message = json_object_get(entry, "message");
    json_t *content = json_object_get(message, "content");
    struct str role = json_get_str(message, "role");
    bool blocks = is_any_of(role, with_blocks);
    if ((content && !json_is_null(content)) || (!blocks && !str_is(role, "system")))
        return json_incref(message);
    json_t *m = json_copy(message);
    json_object_set_new(m, "content", blocks ? json_array() : json_string(""));
    return m;
}

static bool has_summary(const json_t *entry)
{
    struct str summary = json_get_str(entry, "summary");
    return summary.p && summary.n > 0;
}

static void add_compaction(json_t *out, const json_t *entry)
{
    static const char *const members[] = {"summary", "tokensBefore", NULL};
    json_t *prompt = json_object_get(entry, "systemMessage");
    if (prompt && !json_is_null(prompt))
        json_array_append(out, prompt);
    json_array_append_new(out, message_with("compactionSummary", entry, members));
}

static void add_entry(json_t *out, const json_t *entry)
{
    static const char *const custom[] = {"customType", "display", "details", NULL};
    static const char *const branch[] = {"summary", "fromId", NULL};
    struct str type = json_get_str(entry, "type");
    if (str_is(type, "message")) {
        json_array_append_new(out, plain_message(entry));
    } else if (str_is(type, "custom_message")) {
        json_t *m = message_with("custom", entry, custom);
        json_object_set_new(m, "content", member_or(entry, "content", json_array()));
        json_array_append_new(out, m);
    } else if (str_is(type, "branch_summary") && has_summary(entry)) {
        json_array_append_new(out, message_with("branchSummary", entry, branch));
    } else if (str_is(type, "compaction")) {
        add_compaction(out, entry);
    }
}

/* context_edit: the newest one for an entry replaces the content of its messages, or with null
   takes them away. */
static void apply_edit(json_t *messages, const json_t *edit)
{
    static const char *const editable[] = {"user", "assistant", "toolResult", "custom", NULL};
    static const char *const with_blocks[] = {"assistant", "toolResult", NULL};
    const json_t *replacement = json_object_get(edit, "replacement");
    if (json_is_null(replacement)) {
        json_array_clear(messages);
        return;
    }
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        struct str role = json_get_str(message, "role");
        if (!is_any_of(role, editable))
            continue;
        json_t *content = json_object_get(replacement, "content");
        json_t *edited = json_copy(message);
        if (json_is_string(content) && is_any_of(role, with_blocks))
            json_object_set_new(edited, "content",
                                json_pack("[{s:s, s:O}]", "type", "text", "text", content));
        else
            json_object_set(edited, "content", content);
        json_array_set_new(messages, i, edited);
    }
}

/* ---- which entries ---- */

struct showing {
    struct context context;
    size_t last;  /* line of the last compaction; LINE_NONE: there is none */
    size_t first; /* of the lines that it kept, or of all */
    json_t *compaction;
    json_t *edits;  /* id of an entry → the context_edit that counts */
    struct buf out; /* not yet written */
    bool any;       /* a message came */
    messages_write_fn write;
    void *arg;
    err failed;
};
#define LINE_NONE SIZE_MAX

static bool is_entry(const struct context *c, size_t line, const char *id)
{
    const struct tree_line *l = &c->tree.lines[line];
    return context_wants(c, line) && l->kind != LINE_HEADER && l->id && strcmp(l->id, id) == 0;
}

/* After the last compaction its own messages come first, then what it kept, then what came after
   it. */
static void find_compaction(struct showing *s)
{
    const struct context *c = &s->context;
    s->last = LINE_NONE;
    s->first = 0;
    for (size_t i = 0; i < c->tree.n; i++)
        if (context_wants(c, i) && c->tree.lines[i].kind == LINE_COMPACTION)
            s->last = i;
    if (s->last == LINE_NONE)
        return;
    const char *kept = c->tree.lines[s->last].first_kept;
    while (s->first < s->last && !(kept && is_entry(c, s->first, kept)))
        s->first++;
}

/* Of what a compaction kept, system messages do not count: it has the prompt itself. Nor do older
   ones: the newest summary has them. */
static bool is_shown(const struct showing *s, size_t i)
{
    const struct tree_line *l = &s->context.tree.lines[i];
    if (i < s->first || !context_wants(&s->context, i) || l->kind == LINE_HEADER)
        return false;
    if (s->last == LINE_NONE)
        return true;
    return l->kind != LINE_COMPACTION && (i > s->last || l->kind != LINE_SETTING);
}

/* ---- writing ---- */

static bool flush(struct showing *s)
{
    if (!s->failed)
        s->failed = s->write(s->arg, buf_str(&s->out));
    buf_clear(&s->out);
    return s->failed == 0;
}

static void next_message(struct showing *s)
{
    if (s->any)
        buf_add_char(&s->out, ',');
    s->any = true;
}

static void write_value(struct showing *s, const json_t *entry, const json_t *edit)
{
    AUTO_JSON messages = json_array();
    add_entry(messages, entry);
    if (edit)
        apply_edit(messages, edit);
    size_t i;
    json_t *message;
    json_array_foreach(messages, i, message)
    {
        next_message(s);
        json_write(message, &s->out);
    }
}

/* The message of a line that shows as it stands: one with content, and not edited. */
static bool find_message(struct str line, struct str *out)
{
    static const char *const names[] = {"type", "message"}, *const content[] = {"content"};
    struct str found[2], inside;
    if (!str_is_utf8(line) || !json_scan_members(line, names, 2, found) ||
        !str_is(found[0], "\"message\"") || found[1].p == NULL ||
        !json_scan_members(found[1], content, 1, &inside))
        return false;
    *out = found[1];
    return inside.p && !str_is(inside, "null");
}

static void write_entry(struct showing *s, const struct tree_line *l, struct str line)
{
    const json_t *edit = l->id ? json_object_get(s->edits, l->id) : NULL;
    struct str message;
    json_t *entry = NULL;
    if (edit == NULL && find_message(line, &message)) {
        next_message(s);
        buf_add_str(&s->out, message);
    } else if (json_read_log(line, &entry) == 0) {
        write_value(s, entry, edit);
        json_decref(entry);
    }
}

static bool show_line(void *arg, int64_t number, struct str line)
{
    struct showing *s = arg;
    if ((size_t)number >= s->context.tree.n)
        return false; /* appended meanwhile */
    if (is_shown(s, (size_t)number))
        write_entry(s, &s->context.tree.lines[number], line);
    return s->out.n < PIECE_BYTES || flush(s);
}

/* ---- what is needed before ---- */

static void keep_edit(struct showing *s, json_t *take_entry)
{
    const char *target = json_get_c(take_entry, "targetId");
    if (target)
        json_object_set(s->edits, target, take_entry);
    json_decref(take_entry);
}

static bool keep_line(void *arg, int64_t number, struct str line)
{
    struct showing *s = arg;
    size_t i = (size_t)number;
    if (i >= s->context.tree.n)
        return false;
    bool edit = s->context.tree.lines[i].kind == LINE_EDIT && is_shown(s, i);
    json_t *entry = NULL;
    if ((!edit && i != s->last) || json_read_log(line, &entry))
        return true;
    if (edit)
        keep_edit(s, entry);
    else
        s->compaction = entry;
    return true;
}

/* The first line that says something about others, or none. */
static size_t find_first_kept_line(const struct showing *s)
{
    for (size_t i = 0; i < s->context.tree.n; i++)
        if (i == s->last || (s->context.tree.lines[i].kind == LINE_EDIT && is_shown(s, i)))
            return i;
    return LINE_NONE;
}

struct place {
    const char *logs_dir, *tenant, *session;
};

static err read_from(const struct place *at, struct showing *s, size_t line, log_line_fn fn)
{
    if (line >= s->context.tree.n)
        return 0;
    return log_read_from(at->logs_dir, at->tenant, at->session, s->context.tree.lines[line].offset,
                         (int64_t)line, fn, s);
}

static err show(const struct place *at, struct showing *s)
{
    find_compaction(s);
    TRY(read_from(at, s, find_first_kept_line(s), keep_line));
    buf_add_char(&s->out, '[');
    if (s->compaction) {
        const char *id = s->context.tree.lines[s->last].id;
        write_value(s, s->compaction, id ? json_object_get(s->edits, id) : NULL);
    }
    TRY(read_from(at, s, s->first, show_line));
    buf_add_char(&s->out, ']');
    flush(s);
    return s->failed;
}

err session_messages(const char *logs_dir, const char *tenant, const char *session,
                     messages_write_fn write, void *arg)
{
    AUTO_ARENA a = arena_new();
    const struct place at = {logs_dir, tenant, session};
    struct showing s = {.write = write, .arg = arg};
    TRY(context_open(logs_dir, tenant, session, a, &s.context));
    s.edits = json_object();
    err e = show(&at, &s);
    json_decref(s.edits);
    json_decref(s.compaction);
    buf_done(&s.out);
    context_close(&s.context);
    return e;
}
