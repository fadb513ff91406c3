#include "cli/resource.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "cli/text.h"

#define BODY_MAX (1u << 20)
#define SEARCHED_MAX 1000 /* how many of the newest are looked through for what was meant */
#define NEAR_MAX 5
#define LABEL_COLUMNS 40
#define BEGINNING_MIN 4 /* characters of an id */

const struct resource_filter resource_archived_filter[] = {
    {.option = "archived", .query = "includeArchived", .flag = true},
    {0},
};
const struct option resource_list_options[] = {
    {"archived", NULL, NULL, "show archived ones too"},
    OPTION_LIMIT,
    OPTION_JSON_LINES,
    REMOTE_OPTIONS,
    {0},
};
const struct option resource_one_options[] = {OPTION_JSON, REMOTE_OPTIONS, {0}};

/* ---- finding ---- */

static const char *label_of(const struct resource *resource, const json_t *row)
{
    return json_get_c(row, resource->label);
}

static err take_id(const json_t *row, char out_id[ID_MAX])
{
    const char *id = json_get_c(row, "id");
    if (id == NULL || strlen(id) >= ID_MAX)
        return fail(E_INTERNAL, "the service sent something without an id");
    snprintf(out_id, ID_MAX, "%s", id);
    return 0;
}

/* With or without the prefix: "agent_01M8" or "01M8"; not so little that it fits by chance. */
static bool begins_id(const struct resource *resource, const json_t *row, const char *word)
{
    struct str id = json_get_str(row, "id"), start = str_of(word);
    size_t skip = strlen(resource->id_prefix) + 1;
    if (id.n <= skip)
        return false;
    struct str bare = {id.p + skip, id.n - skip};
    return (start.n >= skip + BEGINNING_MIN && str_starts(id, start)) ||
           (start.n >= BEGINNING_MIN && str_starts(bare, start));
}

static bool is_called(const struct resource *resource, const json_t *row, const char *word)
{
    const char *label = label_of(resource, row);
    return label && strcmp(label, word) == 0;
}

static void add_near(const struct resource *resource, const json_t *row, struct buf *out)
{
    const char *label = label_of(resource, row);
    buf_printf(out, "%s%s", out->n ? ", " : "", json_get_c(row, "id"));
    if (label) {
        buf_add_c(out, " (");
        text_add_line(out, str_of(label), LABEL_COLUMNS);
        buf_add_char(out, ')');
    }
}

struct matches {
    size_t n;
    const json_t *one;
    struct buf words; /* the first NEAR_MAX */
};

static void search(const struct resource *resource, const json_t *rows, const char *word,
                   bool (*fits)(const struct resource *, const json_t *, const char *),
                   struct matches *out)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!fits(resource, row, word))
            continue;
        out->one = row;
        if (out->n++ < NEAR_MAX)
            add_near(resource, row, &out->words);
    }
}

/* Names that begin alike, else the one spelt nearly so: to be offered, never taken. */
static void suggest(const struct resource *resource, const json_t *rows, const char *word,
                    struct buf *out)
{
    const char *names[SEARCHED_MAX + 1] = {0};
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(rows) && n < SEARCHED_MAX; i++) {
        const char *label = label_of(resource, json_array_get(rows, i));
        if (label == NULL)
            continue;
        names[n++] = label;
        if (word[0] && strncasecmp(label, word, strlen(word)) == 0 && out->n < LABEL_COLUMNS * 3) {
            buf_add_c(out, out->n ? ", " : "");
            text_add_line(out, str_of(label), LABEL_COLUMNS);
        }
    }
    const char *near = out->n ? NULL : nearest_name(word, names);
    if (near)
        text_add_line(out, str_of(near), LABEL_COLUMNS);
}

static err not_found(const struct resource *resource, const json_t *rows, const char *word)
{
    AUTO_BUF near = {0};
    suggest(resource, rows, word, &near);
    return fail(E_NOT_FOUND, "there is no %s %.60s%s%s%s (pi-managed %s list shows them)",
                resource->noun, word, near.n ? "; do you mean " : "", near.n ? near.p : "",
                near.n ? "?" : "", resource->noun);
}

static err choose(const struct resource *resource, const json_t *rows, const char *word,
                  char out_id[ID_MAX])
{
    struct matches found = {0};
    search(resource, rows, word, is_called, &found);
    if (found.n == 0)
        search(resource, rows, word, begins_id, &found);
    AUTO_BUF words = found.words;
    if (found.n == 0)
        return not_found(resource, rows, word);
    if (found.n > 1)
        return fail(E_CONFLICT, "%.60s may be any of %zu %s: %.300s%s. Give more of the id", word,
                    found.n, resource->plural, words.p, found.n > NEAR_MAX ? ", …" : "");
    return take_id(found.one, out_id);
}

err resource_find(struct remote *r, const struct resource *resource, const char *word,
                  char out_id[ID_MAX])
{
    AUTO_JSON rows = NULL;
    AUTO_BUF path = {0};
    if (id_valid(str_of(word), resource->id_prefix)) {
        snprintf(out_id, ID_MAX, "%s", word);
        return 0;
    }
    bool last = strcmp(word, "last") == 0;
    if (resource->has_unique_label && !last) {
        buf_printf(&path, "%s?%sname=", resource->path,
                   resource->is_never_archived ? "" : "includeArchived=true&");
        remote_escape(&path, word);
        TRY(remote_list(r, path.p, 1, &rows));
        if (json_array_size(rows) == 1)
            return take_id(json_array_get(rows, 0), out_id);
        json_decref(rows);
        rows = NULL;
    }
    TRY(remote_list(r, resource->path, last ? 1 : SEARCHED_MAX, &rows));
    if (!last)
        return choose(resource, rows, word, out_id);
    return json_array_size(rows) ? take_id(json_array_get(rows, 0), out_id)
                                 : fail(E_NOT_FOUND, "there are no %s yet", resource->plural);
}

err resource_path(struct remote *r, const char *rest, struct buf *out)
{
    char id[ID_MAX];
    const struct resource *resource = r->call->command->resource;
    TRY(resource_find(r, resource, r->call->arguments[0], id));
    buf_printf(out, "%s/%s%s", resource->path, id, rest);
    return 0;
}

/* ---- bodies and answers ---- */

static err read_standard_input(struct buf *out)
{
    char piece[4096];
    for (size_t n; (n = fread(piece, 1, sizeof piece, stdin)) > 0;) {
        if (out->n + n > BODY_MAX)
            return fail(E_TOO_LARGE, "standard input is larger than %u bytes", BODY_MAX);
        buf_add(out, piece, n);
    }
    return ferror(stdin) ? fail_errno("read standard input") : 0;
}

err resource_read_file(const char *file, struct buf *out)
{
    buf_add_c(out, "");
    if (strcmp(file, "-") == 0)
        return read_standard_input(out);
    err e = fd_read_file(file, BODY_MAX, out);
    return e == E_NOT_FOUND ? fail(e, "there is no file %s", file) : e;
}

err resource_body(struct remote *r, json_t **out)
{
    const char *file = option_value(r->call, "from");
    if (file == NULL) {
        *out = json_object();
        return 0;
    }
    AUTO_BUF text = {0};
    AUTO_JSON j = NULL;
    TRY(resource_read_file(file, &text));
    err e = json_read(buf_str(&text), &j);
    if (e)
        return fail(e, "--from %s: %.300s", file, err_text());
    if (!json_is_object(j))
        return fail(E_INVALID, "--from %s: it must hold a JSON object", file);
    *out = json_incref(j);
    return 0;
}

err resource_number(const char *option, const char *text, json_t **out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0 && value < 1e9))
        return fail(E_INVALID, "--%s %.40s: give a number", option, text);
    int64_t whole = (int64_t)value;
    *out = (double)whole < value ? json_real(value) : json_integer(whole);
    return 0;
}

static void show(const struct remote *r, const json_t *object)
{
    if (remote_json(r))
        remote_print(object);
    else
        table_card(object);
}

void resource_say(const struct remote *r, const char *verb, const json_t *object)
{
    const struct resource *resource = r->call->command->resource;
    const char *label = label_of(resource, object);
    AUTO_BUF name = {0};
    if (remote_json(r)) {
        remote_print(object);
        return;
    }
    text_add_line(&name, str_of(label ? label : ""), LABEL_COLUMNS);
    printf("%s %s%s%s\n", json_get_c(object, "id"), name.n ? name.p : "", name.n ? " " : "", verb);
}

/* ---- verbs ---- */

static err read_limit(struct remote *r, size_t *out)
{
    const char *text = option_value(r->call, "limit");
    uint64_t n = SIZE_MAX - 1;
    if (strcmp(text, "all") != 0 && (!str_to_u64(str_of(text), &n) || n == 0 || n >= SIZE_MAX))
        return fail(E_INVALID, "--limit %s: give a number from 1, or all", text);
    *out = n;
    return 0;
}

static err add_filters(struct remote *r, struct buf *path)
{
    const struct resource_filter *f = r->call->command->resource->filters;
    for (; f && f->option; f++) {
        char id[ID_MAX];
        const char *value = option_value(r->call, f->option);
        if (value == NULL || (f->flag && !option_flag(r->call, f->option)))
            continue;
        if (f->resource) {
            TRY(resource_find(r, f->resource, value, id));
            value = id;
        }
        buf_printf(path, "%c%s=", memchr(path->p, '?', path->n) ? '&' : '?', f->query);
        remote_escape(path, f->flag ? "true" : value);
    }
    return 0;
}

static err list_work(struct remote *r)
{
    const struct resource *resource = r->call->command->resource;
    AUTO_BUF path = {0};
    AUTO_JSON rows = NULL;
    size_t limit = 0;
    TRY(read_limit(r, &limit));
    buf_add_c(&path, resource->path);
    TRY(add_filters(r, &path));
    r->on_page = resource->on_page;
    TRY(remote_list(r, path.p, limit + 1, &rows));
    bool more = json_array_size(rows) > limit;
    if (more)
        json_array_remove(rows, limit);
    for (size_t i = 0; remote_json(r) && i < json_array_size(rows); i++)
        remote_print(json_array_get(rows, i));
    if (!remote_json(r))
        table_print(rows, resource->columns);
    if (more)
        fprintf(stderr, "There are more: --limit all shows them.\n");
    else if (json_array_size(rows) == 0)
        fprintf(stderr, "No %s.\n", resource->plural);
    return 0;
}

int resource_list(const struct invocation *call)
{
    return remote_run(call, list_work);
}

static err get_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON object = NULL;
    TRY(resource_path(r, "", &path));
    TRY(remote_get(r, path.p, &object));
    show(r, object);
    return 0;
}

int resource_get(const struct invocation *call)
{
    return remote_run(call, get_work);
}

static err archive_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON object = NULL;
    TRY(resource_path(r, "/archive", &path));
    TRY(remote_send(r, "POST", path.p, NULL, &object));
    resource_say(r, "archived", object);
    return 0;
}

int resource_archive(const struct invocation *call)
{
    return remote_run(call, archive_work);
}

static err delete_work(struct remote *r)
{
    const struct resource *resource = r->call->command->resource;
    AUTO_BUF path = {0};
    char id[ID_MAX];
    TRY(resource_find(r, resource, r->call->arguments[0], id));
    buf_printf(&path, "%s/%s", resource->path, id);
    if (resource->purge && option_flag(r->call, resource->purge))
        buf_printf(&path, "?%s=true", resource->purge);
    TRY(remote_send(r, "DELETE", path.p, NULL, NULL));
    if (remote_json(r)) {
        AUTO_JSON said = json_pack("{s:s, s:b}", "id", id, "deleted", 1);
        remote_print(said);
    } else {
        printf("%s deleted\n", id);
    }
    return 0;
}

int resource_delete(const struct invocation *call)
{
    return remote_run(call, delete_work);
}
