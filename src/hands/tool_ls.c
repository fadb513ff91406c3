/* ls: the names in a folder, sorted and marked as Pi does. */
#include "base/arena.h"
#include "base/mem.h"
#include "hands/collate.h"
#include "hands/paths.h"
#include "hands/text.h"
#include "hands/tools.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_LIMIT 500
#define CANCEL_CHECK 1024 /* entries between two looks at it */

struct entry {
    struct str name; /* as JavaScript decodes it; NUL behind it */
    struct str key;
};

struct listing {
    struct arena *arena;
    struct entry *entries; /* heap */
    size_t n, cap;
};

static void listing_done(struct listing *l)
{
    mem_free(l->entries);
    arena_free(l->arena);
}

static void add_entry(struct listing *l, const char *name)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->entries = mem_realloc(l->entries, size_mul(l->cap, sizeof *l->entries));
    }
    AUTO_BUF decoded = {0}, key = {0};
    text_decode_all(str_of(name), &decoded);
    collate_key(buf_str(&decoded), &key);
    l->entries[l->n++] =
        (struct entry){arena_str(l->arena, buf_str(&decoded)), arena_str(l->arena, buf_str(&key))};
}

/* 0 or an errno. */
static int read_entries(const struct tool_run *run, const char *path, struct listing *l,
                        struct tool_result *out)
{
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno;
    int rc = 0;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(folder);
        if (e == NULL) {
            rc = errno;
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (l->n % CANCEL_CHECK == 0 && tool_aborted(run, out))
            break;
        add_entry(l, e->d_name);
    }
    closedir(folder);
    return rc;
}

/* Names that sort alike stay in the order Node reads them in: by their bytes. */
static int compare(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int order = collate_compare(x->key, y->key);
    return order ? order : strcmp(x->name.p, y->name.p);
}

/* What ls says of its entries; the rest of them is left out. */
struct shown {
    struct buf text;
    size_t n;
    bool limit_reached;
};

static void show(const char *path, const struct listing *l, double limit, struct shown *out)
{
    AUTO_BUF full = {0};
    for (size_t i = 0; i < l->n; i++) {
        const struct entry *e = &l->entries[i];
        if ((double)out->n >= limit) {
            out->limit_reached = true;
            return;
        }
        struct stat st;
        buf_clear(&full);
        buf_add_c(&full, path);
        buf_add_char(&full, '/');
        buf_add_str(&full, e->name);
        if (stat(full.p, &st) != 0)
            continue; /* as Pi does: a dangling link is not shown */
        if (out->n++ > 0)
            buf_add_char(&out->text, '\n');
        buf_add_str(&out->text, e->name);
        if (S_ISDIR(st.st_mode))
            buf_add_char(&out->text, '/');
    }
}

static void report(const struct shown *s, double limit, struct tool_result *out)
{
    if (s->n == 0) {
        tool_text(out, STR("(empty directory)"));
        return;
    }
    struct text_truncation t = text_truncate_head_bytes(buf_str(&s->text));
    AUTO_BUF text = {0};
    buf_add_str(&text, t.content);
    struct tool_notices notices = {.text = &text};
    char a[TEXT_NUMBER_MAX], b[TEXT_NUMBER_MAX], size[TEXT_SIZE_MAX];
    if (s->limit_reached || t.truncated)
        out->details = json_object();
    if (s->limit_reached) {
        tool_notice(&notices, "%s entries limit reached. Use limit=%s for more",
                    text_number(limit, a), text_number(limit * 2, b));
        json_object_set_new(out->details, "entryLimitReached", json_integer((json_int_t)limit));
    }
    if (t.truncated) {
        tool_notice(&notices, "%s limit reached", text_size(TEXT_MAX_BYTES, size));
        json_object_set_new(out->details, "truncation", text_truncation_json(&t));
    }
    tool_notices_end(&notices);
    tool_text(out, buf_str(&text));
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    AUTO_BUF path = {0};
    if (!tool_search_path(run, &path, out) || tool_aborted(run, out))
        return;
    struct stat st;
    if (str_has_nul(buf_str(&path)) || access(path.p, F_OK) != 0 || stat(path.p, &st) != 0) {
        tool_not_found(buf_str(&path), out);
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        tool_error(out, "Not a directory: %s", path.p);
        return;
    }
    struct listing l __attribute__((cleanup(listing_done))) = {.arena = arena_new()};
    int rc = read_entries(run, path.p, &l, out);
    if (rc != 0) {
        AUTO_BUF why = {0};
        tool_errno_text(rc, "scandir", path.p, &why);
        tool_error(out, "Cannot read directory: %s", why.p);
    }
    if (out->content)
        return;
    if (l.n > 0)
        qsort(l.entries, l.n, sizeof *l.entries, compare);
    struct shown shown = {0};
    double limit = tool_limit(run, DEFAULT_LIMIT);
    show(path.p, &l, limit, &shown);
    report(&shown, limit, out);
    buf_done(&shown.text);
}

const struct tool tool_ls = {.name = "ls", .run = run};
