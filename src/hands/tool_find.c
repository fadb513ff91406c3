/* find: names that match a glob, found as Pi does with fd. The walk is sorted, so that of more
   results than the limit the first ones are shown; what fd shows of them is up to its threads. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "hands/calls.h"
#include "hands/glob.h"
#include "hands/ignore.h"
#include "hands/text.h"
#include "hands/tools.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_LIMIT 1000
#define ARGUMENTS_BEFORE_LIMIT 3 /* of fd: --color=never --hidden --glob */

struct entry {
    struct str name; /* NUL behind it */
    bool is_folder;
};

/* A folder being read. */
struct folder {
    struct arena *arena;
    struct entry *entries;
    size_t n, cap, next;
    size_t path_n, real_n; /* lengths of the walk's paths while in it */
};

struct walk {
    const struct tool_run *run;
    struct glob *glob;
    bool full_path;
    double limit, entries;
    struct ignore *ignore;
    struct buf path; /* of the folder as searched, */
    struct buf real; /* and canonical: what the ignore rules go by */
    size_t root_n;   /* length of the searched path and its slash */
    struct folder *folders;
    size_t n, cap;
    int64_t timeout_at;
    bool timed_out;

    struct buf text; /* lines within the limit, up to the first beyond the cap on bytes */
    double lines;
    uint64_t bytes;
    bool limit_reached;
};

static bool is_folder(const struct walk *w, const struct dirent *e)
{
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    AUTO_BUF path = {0};
    struct stat st;
    buf_add_str(&path, buf_str(&w->path));
    buf_add_char(&path, '/');
    buf_add_c(&path, e->d_name);
    return lstat(path.p, &st) == 0 && S_ISDIR(st.st_mode);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name.p, ((const struct entry *)b)->name.p);
}

static void read_folder(struct walk *w, struct folder *f)
{
    DIR *d = opendir(w->path.n > 0 ? w->path.p : "/");
    if (d == NULL)
        return; /* what cannot be read is passed over, as fd does */
    const struct dirent *e;
    while ((e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (f->n == f->cap) {
            f->cap = f->cap ? f->cap * 2 : 32;
            f->entries = mem_realloc(f->entries, size_mul(f->cap, sizeof *f->entries));
        }
        f->entries[f->n++] =
            (struct entry){arena_str(f->arena, str_of(e->d_name)), is_folder(w, e)};
    }
    closedir(d);
    if (f->n > 0)
        qsort(f->entries, f->n, sizeof *f->entries, compare);
}

static void enter(struct walk *w)
{
    if (w->n == w->cap) {
        w->cap = w->cap ? w->cap * 2 : 16;
        w->folders = mem_realloc(w->folders, size_mul(w->cap, sizeof *w->folders));
    }
    struct folder *f = &w->folders[w->n++];
    *f = (struct folder){.arena = arena_new(), .path_n = w->path.n, .real_n = w->real.n};
    ignore_push(w->ignore, w->real.n > 0 ? w->real.p : "/");
    read_folder(w, f);
}

static void leave(struct walk *w)
{
    struct folder *f = &w->folders[--w->n];
    mem_free(f->entries);
    arena_free(f->arena);
    ignore_pop(w->ignore);
}

static void cut(struct buf *path, size_t n)
{
    path->n = n;
    buf_reserve(path, 1);
    path->p[n] = 0;
}

static void append(struct buf *path, struct str name)
{
    buf_add_char(path, '/');
    buf_add_str(path, name);
}

/* Where Node's readline and Pi's trim end one line of fd's output: names may hold such characters,
   and then are shown in pieces. */
static size_t line_length(struct str s, size_t *out_end)
{
    for (size_t i = 0; i < s.n; i++) {
        size_t end = 0;
        if (s.p[i] == '\n' || s.p[i] == '\r')
            end = 1;
        else if (s.n - i >= 3 && memcmp(s.p + i, "\xe2\x80", 2) == 0 &&
                 ((unsigned char)s.p[i + 2] & 0xfe) == 0xa8)
            end = 3;
        if (end == 0)
            continue;
        if (end == 1 && s.p[i] == '\r' && i + 1 < s.n && s.p[i + 1] == '\n')
            end = 2;
        *out_end = i + end;
        return i;
    }
    *out_end = s.n;
    return s.n;
}

static void add_line(struct walk *w, struct str line)
{
    if (line.n == 0)
        return;
    if (w->lines >= w->limit) {
        w->limit_reached = true;
        return;
    }
    if (w->bytes <= TEXT_MAX_BYTES + 1) {
        if (w->lines > 0)
            buf_add_char(&w->text, '\n');
        buf_add_str(&w->text, line);
    }
    w->lines++;
    w->bytes += line.n + 1;
}

/* The first line begins with the searched path, whose part is cut off; the trailing slash stays. */
static void add_result(struct walk *w, struct str relative, bool folder)
{
    AUTO_BUF name = {0}, decoded = {0};
    buf_add_str(&name, relative);
    if (folder)
        buf_add_char(&name, '/');
    text_decode_all(buf_str(&name), &decoded);
    struct str s = buf_str(&decoded);
    for (bool first = true; s.n > 0; first = false) {
        size_t end, n = line_length(s, &end);
        struct str line = {s.p, n};
        add_line(w, first ? text_trim_end(line) : text_trim(line));
        s = (struct str){s.p + end, s.n - end};
    }
}

static bool matches(const struct walk *w, struct str name)
{
    if (w->full_path)
        return glob_matches(w->glob, buf_str(&w->path));
    return glob_matches(w->glob, name);
}

/* The entry's path is in w->path and w->real. */
static void visit(struct walk *w, const struct entry *e)
{
    if (ignore_matches(w->ignore, buf_str(&w->real), e->is_folder))
        return;
    if (matches(w, e->name)) {
        w->entries++;
        add_result(w, (struct str){w->path.p + w->root_n, w->path.n - w->root_n}, e->is_folder);
    }
    if (e->is_folder)
        enter(w);
}

static bool must_stop(struct walk *w)
{
    w->timed_out = clock_monotonic_ms(clock_real()) >= w->timeout_at;
    return w->timed_out || call_cancelled(w->run->call, NULL) || w->entries > w->limit;
}

static void walk(struct walk *w)
{
    enter(w);
    while (w->n > 0 && !must_stop(w)) {
        struct folder *f = &w->folders[w->n - 1];
        cut(&w->path, f->path_n);
        cut(&w->real, f->real_n);
        if (f->next == f->n) {
            leave(w);
            continue;
        }
        const struct entry e = f->entries[f->next++];
        append(&w->path, e.name);
        append(&w->real, e.name);
        visit(w, &e);
    }
    while (w->n > 0)
        leave(w);
}

static void report(const struct walk *w, struct tool_result *out)
{
    if (w->lines == 0) {
        tool_text(out, STR("No files found matching pattern"));
        return;
    }
    struct text_truncation t = text_truncate_head_bytes(buf_str(&w->text));
    t.total_lines = (uint64_t)w->lines;
    t.total_bytes = w->bytes - 1;
    AUTO_BUF text = {0};
    buf_add_str(&text, t.content);
    struct tool_notices notices = {.text = &text};
    char a[TEXT_NUMBER_MAX], b[TEXT_NUMBER_MAX], size[TEXT_SIZE_MAX];
    if (w->limit_reached || t.truncated)
        out->details = json_object();
    if (w->limit_reached) {
        tool_notice(&notices, "%s results limit reached. Use limit=%s for more, or refine pattern",
                    text_number(w->limit, a), text_number(w->limit * 2, b));
        json_object_set_new(out->details, "resultLimitReached", json_integer((json_int_t)w->limit));
    }
    if (t.truncated) {
        tool_notice(&notices, "%s limit reached", text_size(TEXT_MAX_BYTES, size));
        json_object_set_new(out->details, "truncation", text_truncation_json(&t));
    }
    tool_notices_end(&notices);
    tool_text(out, buf_str(&text));
}

/* fd's pattern for what the model asked: without "./"; one with a slash is rooted in the path. */
static bool prepare_pattern(struct str given, const char *path, struct buf *out)
{
    while (str_starts(given, STR("./")))
        given = (struct str){given.p + 2, given.n - 2};
    bool full = given.n > 0 && memchr(given.p, '/', given.n);
    if (full && given.p[0] != '/') {
        for (const char *p = strcmp(path, "/") == 0 ? "" : path; *p; p++) {
            if (strchr("\\*?[]{}", *p))
                buf_add_char(out, '\\');
            buf_add_char(out, *p);
        }
        buf_add_char(out, '/');
    }
    buf_add_str(out, given);
    return full;
}

static bool in_repository(struct str path)
{
    AUTO_BUF at = {0};
    for (size_t n = path.n;; n--) {
        if (n > 0 && n < path.n && path.p[n] != '/')
            continue;
        buf_clear(&at);
        buf_add(&at, path.p, n);
        buf_add_c(&at, "/.git");
        if (access(at.p, F_OK) == 0)
            return true;
        if (n == 0)
            return false;
    }
}

/* Node refuses NUL before fd is started; the number is that of fd's argument. */
static bool no_nul(struct str pattern, struct str path, size_t before, struct tool_result *out)
{
    struct str value = str_has_nul(pattern) ? pattern : path;
    if (!str_has_nul(value))
        return true;
    AUTO_BUF text = {0};
    buf_printf(&text, "The argument 'args[%zu]' must be a string without null bytes. Received ",
               before + (str_has_nul(pattern) ? 0 : 1));
    text_inspect(value, &text);
    out->is_error = true;
    tool_text(out, buf_str(&text));
    return false;
}

static bool is_lower(struct str s)
{
    AUTO_BUF lower = {0};
    text_lower(s, &lower);
    return str_eq(buf_str(&lower), s);
}

/* The glob of a search, with fd's smart case; NULL with the result. */
static struct glob *prepare_glob(struct str given, struct str pattern, bool rooted,
                                 struct tool_result *out)
{
    AUTO_BUF why = {0};
    if (pattern.n == 0)
        return glob_new(STR("**"), (struct glob_options){0}, &why);
    struct glob *g = glob_new(pattern, (struct glob_options){0}, &why);
    bool ignore_case = g && (rooted ? is_lower(given) : !glob_has_capital(g));
    if (ignore_case) {
        glob_free(g);
        g = glob_new(pattern, (struct glob_options){.ignore_case = true}, &why);
    }
    if (g == NULL) {
        AUTO_BUF text = {0};
        buf_add_c(&text, "[fd error]: ");
        buf_add_str(&text, buf_str(&why));
        out->is_error = true;
        tool_text(out, buf_str(&text));
    }
    return g;
}

static void finish(struct walk *w, struct tool_result *out)
{
    if (tool_aborted(w->run, out))
        return;
    if (w->timed_out)
        tool_error(out,
                   "The search took longer than %lld seconds and was stopped. Search a smaller "
                   "folder.",
                   (long long)w->run->timeout_ms / 1000);
    else
        report(w, out);
}

static void search(struct walk *w, const char *path, bool repository, struct tool_result *out)
{
    char *real = realpath(path, NULL);
    struct stat st;
    if (real == NULL || stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        tool_error(out,
                   "[fd error]: Search path '%s' is not a directory.\n"
                   "[fd error]: No valid search paths given.",
                   path);
        free(real);
        return;
    }
    w->ignore = ignore_new(real, repository, w->run->cwd);
    buf_add_c(&w->path, strcmp(path, "/") == 0 ? "" : path);
    buf_add_c(&w->real, strcmp(real, "/") == 0 ? "" : real);
    free(real);
    w->root_n = w->path.n + 1;
    w->timeout_at =
        w->run->timeout_ms > 0 ? clock_monotonic_ms(clock_real()) + w->run->timeout_ms : INT64_MAX;
    walk(w);
    finish(w, out);
    ignore_free(w->ignore);
    mem_free(w->folders);
    buf_done(&w->path);
    buf_done(&w->real);
    buf_done(&w->text);
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    struct str given;
    AUTO_BUF path = {0}, pattern = {0};
    if (!tool_arg(run, "pattern", &given, out) || !tool_search_path(run, &path, out) ||
        tool_aborted(run, out))
        return;
    bool repository = !str_has_nul(buf_str(&path)) && in_repository(buf_str(&path));
    struct walk w = {.run = run, .limit = tool_limit(run, DEFAULT_LIMIT)};
    w.full_path = prepare_pattern(given, path.p, &pattern);
    while (str_starts(given, STR("./")))
        given = (struct str){given.p + 2, given.n - 2};
    bool rooted = w.full_path && given.p[0] != '/';
    size_t before = ARGUMENTS_BEFORE_LIMIT + 2 + (repository ? 0 : 1) + (w.full_path ? 1 : 0) +
                    (rooted && is_lower(given) ? 1 : 0) + 1;
    if (!no_nul(buf_str(&pattern), buf_str(&path), before, out))
        return;
    w.glob = prepare_glob(given, buf_str(&pattern), rooted, out);
    if (w.glob)
        search(&w, path.p, repository, out);
    glob_free(w.glob);
}

const struct tool tool_find = {.name = "find", .run = run};
