/* The rules of Pi 1.6.0's session projection, on the lines that a host would be given. */
#include "session/messages.h"

#include "base/clock.h"
#include "base/mem.h"
#include "session/context.h"

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

static bool is_system(const json_t *entry)
{
    return str_is(json_get_str(json_object_get(entry, "message"), "role"), "system");
}

/* The entries whose messages count: after the last compaction that one first, then what it kept
   (without system messages: it has the prompt itself), then what came after. */
static json_t *context_entries(const json_t *path)
{
    size_t n = json_array_size(path), last = n, i;
    json_t *entry;
    json_array_foreach(path, i, entry) if (str_is(json_get_str(entry, "type"), "compaction")) last =
        i;
    if (last == n)
        return json_incref((json_t *)path);
    json_t *out = json_array();
    const json_t *compaction = json_array_get(path, last);
    struct str first_kept = json_get_str(compaction, "firstKeptEntryId");
    bool kept = false;
    json_array_append(out, json_array_get(path, last));
    for (i = 0; i < last; i++) {
        entry = json_array_get(path, i);
        kept = kept || (first_kept.p && str_eq(json_get_str(entry, "id"), first_kept));
        if (kept && !is_system(entry))
            json_array_append(out, entry);
    }
    for (i = last + 1; i < n; i++)
        json_array_append(out, json_array_get(path, i));
    return out;
}

static json_t *edits_of(const json_t *entries)
{
    json_t *edits = json_object();
    size_t i;
    json_t *entry;
    json_array_foreach(entries, i, entry)
    {
        const char *target = json_get_c(entry, "targetId");
        if (target && str_is(json_get_str(entry, "type"), "context_edit"))
            json_object_set(edits, target, entry);
    }
    return edits;
}

static json_t *messages_of(const json_t *path)
{
    AUTO_JSON entries = context_entries(path);
    AUTO_JSON edits = edits_of(entries);
    json_t *out = json_array();
    size_t i;
    json_t *entry;
    json_array_foreach(entries, i, entry)
    {
        if (i > 0 && str_is(json_get_str(entry, "type"), "compaction"))
            continue; /* an older one: the newest summary has it */
        AUTO_JSON own = json_array();
        add_entry(own, entry);
        const char *id = json_get_c(entry, "id");
        const json_t *edit = id ? json_object_get(edits, id) : NULL;
        if (edit)
            apply_edit(own, edit);
        json_array_extend(out, own);
    }
    return out;
}

err session_messages(const char *logs_dir, const char *tenant, const char *session, json_t **out)
{
    AUTO_BUF lines = {0};
    size_t n = 0;
    TRY(context_lines(logs_dir, tenant, session, &lines, &n));
    AUTO_JSON path = json_array();
    struct str rest = buf_str(&lines), line;
    while (rest.n && str_split(&rest, '\n', &line)) {
        json_t *entry = NULL;
        TRY(json_read_log(line, &entry));
        if (str_is(json_get_str(entry, "type"), "session"))
            json_decref(entry);
        else
            json_array_append_new(path, entry);
    }
    *out = messages_of(path);
    return 0;
}
