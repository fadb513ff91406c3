/* grep: runs the sandbox's ripgrep with Pi's arguments and shows what it finds as Pi does. */
#include "base/clock.h"
#include "base/fd.h"
#include "hands/child_lines.h"
#include "hands/paths.h"
#include "hands/text.h"
#include "hands/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define DEFAULT_LIMIT 100
#define LINE_MAX_UNITS 500 /* UTF-16 units of a line that are shown */
#define MAX_SAFE_INTEGER 9007199254740991.0
#define ARGS_MAX 16
#define SMALL_TREE 400 /* entries */
#define SMALL_DEPTH 16 /* folders, of which each takes a descriptor meanwhile */
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

struct search {
    const char *path; /* absolute */
    bool is_folder;
    double limit, context;

    struct buf text;
    uint64_t bytes, lines; /* of the whole output; a newline counted after every line */
    double matches;
    bool limit_hit, more_matches, lines_cut;
    struct buf last_file;
    double window_end; /* last line of the last match's context */
};

static int base64_value(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

static void decode_base64(struct str s, struct buf *out)
{
    uint32_t bits = 0;
    int n = 0;
    for (size_t i = 0; i < s.n; i++) {
        int v = base64_value(s.p[i]);
        if (v < 0)
            continue;
        bits = bits << 6 | (uint32_t)v;
        n += 6;
        if (n >= 8) {
            n -= 8;
            buf_add_char(out, (char)(bits >> n & 0xff));
        }
    }
}

/* ripgrep's {"text": …} or, for what is no UTF-8, {"bytes": base64}. False when neither is there.
 */
static bool decode_field(const json_t *field, struct buf *out)
{
    struct str text = json_get_str(field, "text");
    if (text.p) {
        buf_add_str(out, text);
        return text.n > 0;
    }
    AUTO_BUF raw = {0};
    decode_base64(json_get_str(field, "bytes"), &raw);
    text_decode_all(buf_str(&raw), out);
    return out->n > 0;
}

static struct str base_name(struct str path)
{
    const char *slash = path.n ? memrchr(path.p, '/', path.n) : NULL;
    return slash ? (struct str){slash + 1, path.n - (size_t)(slash + 1 - path.p)} : path;
}

/* Relative to the folder searched; of a name that begins with two dots only its last part, as Pi
   takes it for one outside. */
static void add_path(const struct search *s, struct str file, struct buf *out)
{
    AUTO_BUF full = {0};
    path_clean(file, s->path, &full);
    struct str path = buf_str(&full);
    size_t root = strcmp(s->path, "/") == 0 ? 1 : strlen(s->path) + 1;
    bool inside = s->is_folder && path.n > root;
    struct str relative = inside ? (struct str){path.p + root, path.n - root} : STR("..");
    if (str_starts(relative, STR(".."))) {
        buf_add_str(out, base_name(file));
        return;
    }
    size_t from = out->n;
    buf_add_str(out, relative);
    for (size_t i = from; i < out->n; i++)
        if (out->p[i] == '\\')
            out->p[i] = '/';
}

static struct str without_line_end(struct str s)
{
    if (s.n > 0 && s.p[s.n - 1] == '\n')
        s.n--;
    if (s.n > 0 && s.p[s.n - 1] == '\r')
        s.n--;
    return s;
}

/* At most LINE_MAX_UNITS UTF-16 units, no pair split. */
static struct str shown_part(struct str line)
{
    size_t units = 0;
    for (size_t i = 0; i < line.n;) {
        unsigned char c = (unsigned char)line.p[i];
        size_t bytes = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        units += bytes == 4 ? 2 : 1;
        if (units > LINE_MAX_UNITS)
            return (struct str){line.p, i};
        i += bytes;
    }
    return line;
}

static void add_line(struct search *s, struct str file, double number, struct str text,
                     bool is_match)
{
    buf_clear(&s->last_file);
    buf_add_str(&s->last_file, file);
    struct str line = without_line_end(text), shown = shown_part(line);
    char mark = is_match ? ':' : '-', digits[TEXT_NUMBER_MAX];
    AUTO_BUF row = {0};
    add_path(s, file, &row);
    buf_printf(&row, "%c%s%c ", mark, text_number(number, digits), mark);
    buf_add_str(&row, shown);
    if (shown.n < line.n) {
        buf_add_c(&row, "... [truncated]");
        s->lines_cut = true;
    }
    /* Beyond the cap lines are counted only. */
    if (s->bytes <= TEXT_MAX_BYTES + 1) {
        if (s->lines > 0)
            buf_add_char(&s->text, '\n');
        buf_add_str(&s->text, buf_str(&row));
    }
    s->bytes += row.n + 1;
    s->lines++;
}

/* False when nothing further can change the output. */
static bool take_event(struct search *s, struct str file, double number, struct str text,
                       bool is_match)
{
    if (!s->limit_hit) {
        add_line(s, file, number, text, is_match);
        if (!is_match || ++s->matches < s->limit)
            return true;
        s->limit_hit = true;
        s->window_end = number + s->context;
        return true;
    }
    bool in_window = str_eq(file, buf_str(&s->last_file)) && number <= s->window_end;
    if (in_window) /* a match inside the last match's context is shown as context */
        add_line(s, file, number, text, false);
    s->more_matches |= is_match;
    return !s->more_matches || (in_window && number < s->window_end);
}

/* Pi splits ripgrep's output at these two as well, and then understands neither half. */
static bool has_line_separator(struct str s)
{
    return memmem(s.p, s.n, "\u2028", 3) || memmem(s.p, s.n, "\u2029", 3);
}

/* As ripgrep writes them: nothing in them is shown, so they are not worth reading. */
static bool begins_or_ends_a_file(struct str line)
{
    return str_starts(line, STR("{\"type\":\"begin\"")) ||
           str_starts(line, STR("{\"type\":\"end\""));
}

static bool on_line(void *arg, struct str line)
{
    struct search *s = arg;
    json_error_t error;
    if (line.n == 0 || begins_or_ends_a_file(line) || has_line_separator(line))
        return true;
    AUTO_JSON event = json_loadb(line.p, line.n, JSON_ALLOW_NUL, &error);
    struct str type = json_get_str(event, "type");
    bool is_match = str_is(type, "match");
    if (!is_match && !str_is(type, "context"))
        return true;
    const json_t *data = json_object_get(event, "data");
    const json_t *number = json_object_get(data, "line_number");
    AUTO_BUF file = {0}, text = {0};
    if (!decode_field(json_object_get(data, "path"), &file) || !json_is_number(number))
        return true;
    decode_field(json_object_get(data, "lines"), &text);
    return take_event(s, buf_str(&file), json_number_value(number), buf_str(&text), is_match);
}

static void report(const struct search *s, struct tool_result *out)
{
    if (s->matches == 0) {
        tool_text(out, STR("No matches found"));
        return;
    }
    struct text_truncation t = text_truncate_head_bytes(buf_str(&s->text));
    t.total_lines = s->lines;
    t.total_bytes = s->bytes - 1;
    AUTO_BUF text = {0};
    buf_add_str(&text, t.content);
    struct tool_notices notices = {.text = &text};
    char a[TEXT_NUMBER_MAX], b[TEXT_NUMBER_MAX], size[TEXT_SIZE_MAX];
    if (s->more_matches || t.truncated || s->lines_cut)
        out->details = json_object();
    if (s->more_matches) {
        tool_notice(&notices, "%s matches limit reached. Use limit=%s for more, or refine pattern",
                    text_number(s->limit, a), text_number(s->limit * 2, b));
        json_object_set_new(out->details, "matchLimitReached", json_integer((json_int_t)s->limit));
    }
    if (t.truncated) {
        tool_notice(&notices, "%s limit reached", text_size(TEXT_MAX_BYTES, size));
        json_object_set_new(out->details, "truncation", text_truncation_json(&t));
    }
    if (s->lines_cut) {
        tool_notice(&notices, "Some lines truncated to %d chars. Use read tool to see full lines",
                    LINE_MAX_UNITS);
        json_object_set_new(out->details, "linesTruncated", json_true());
    }
    tool_notices_end(&notices);
    tool_text(out, buf_str(&text));
}

static void report_failure(const struct child_lines *c, struct tool_result *out)
{
    AUTO_BUF text = {0};
    text_decode_all(text_trim(buf_str(&c->error_text)), &text);
    if (text.n == 0 && WIFEXITED(c->status))
        buf_printf(&text, "ripgrep exited with code %d", WEXITSTATUS(c->status));
    else if (text.n == 0)
        buf_add_c(&text, "ripgrep exited with code null");
    out->is_error = true;
    tool_text(out, buf_str(&text));
}

static void run_ripgrep(const struct tool_run *run, struct search *s, char *const *argv,
                        struct tool_result *out)
{
    struct child_lines c = {
        .argv = argv, .cwd = s->is_folder ? s->path : run->cwd, .on_line = on_line, .arg = s};
    int rc = child_lines_run(run, &c);
    bool failed = c.end == CHILD_EXITED && !(WIFEXITED(c.status) && WEXITSTATUS(c.status) <= 1);
    if (rc != 0)
        tool_error(out, "Failed to run ripgrep: spawn %s %s", argv[0], tool_errno_name(rc));
    else if (c.end == CHILD_CANCELLED)
        tool_aborted(run, out);
    else if (c.end == CHILD_TIMEOUT)
        tool_error(out,
                   "The search took longer than %lld seconds and was stopped. Search a smaller "
                   "folder, or use glob to leave files out.",
                   (long long)run->timeout_ms / 1000);
    else if (c.end == CHILD_LINE_TOO_LONG)
        tool_error(out, "A matching line is longer than 64.0MB. Use glob to leave its file out.");
    else if (failed)
        report_failure(&c, out);
    else
        report(s, out);
    buf_done(&c.error_text);
}

/* Counts what is in the folder and in those below, until `left` is used up. False when that
   happens, when it goes deeper than `depth`, or nobody knows what something is. Takes the
   descriptor. */
static bool fits(int take_fd, unsigned depth, unsigned *left)
{
    DIR *d = take_fd >= 0 && depth > 0 ? fdopendir(take_fd) : NULL;
    if (d == NULL) {
        fd_close(&take_fd);
        return false;
    }
    bool fit = true;
    for (const struct dirent *e; fit && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        fit = (*left)-- > 1 && e->d_type != DT_UNKNOWN;
        if (fit && e->d_type == DT_DIR)
            fit = fits(openat(dirfd(d), e->d_name, FOLDER_FLAGS), depth - 1, left);
    }
    closedir(d);
    return fit;
}

/* One thread is done with a small tree before others have started. */
static bool is_small(const char *path)
{
    unsigned left = SMALL_TREE;
    return fits(open(path, FOLDER_FLAGS), SMALL_DEPTH, &left);
}

/* "./src/x" is never matched by ripgrep: the "./" goes, behind a "!" too. */
static void clean_glob(struct str glob, struct buf *out)
{
    if (str_starts(glob, STR("!"))) {
        buf_add_char(out, '!');
        glob = (struct str){glob.p + 1, glob.n - 1};
    }
    while (str_starts(glob, STR("./")))
        glob = (struct str){glob.p + 2, glob.n - 2};
    buf_add_str(out, glob);
    buf_add(out, "", 1);
}

/* Node refuses such arguments before it starts a program; i counts as in its text. */
static bool no_nul(struct str value, size_t i, struct tool_result *out)
{
    if (!str_has_nul(value))
        return true;
    AUTO_BUF text = {0};
    buf_printf(&text, "The argument 'args[%zu]' must be a string without null bytes. Received ", i);
    text_inspect(value, &text);
    out->is_error = true;
    tool_text(out, buf_str(&text));
    return false;
}

static void search(const struct tool_run *run, struct search *s, struct str pattern,
                   struct tool_result *out)
{
    char *argv[ARGS_MAX] = {(char *)tool_rg_path,    (char *)"--no-config",   (char *)"--json",
                            (char *)"--line-number", (char *)"--color=never", (char *)"--hidden"};
    size_t n = 6;
    char context[TEXT_NUMBER_MAX];
    AUTO_BUF glob = {0};
    struct str given = json_get_str(run->input, "glob");
    if (json_get_bool(run->input, "ignoreCase", false))
        argv[n++] = (char *)"--ignore-case";
    if (json_get_bool(run->input, "literal", false))
        argv[n++] = (char *)"--fixed-strings";
    if (given.n > 0) {
        clean_glob(given, &glob);
        argv[n++] = (char *)"--glob";
        argv[n++] = glob.p;
        if (!no_nul((struct str){glob.p, glob.n - 1}, n - 2, out))
            return;
    }
    if (s->context > 0) {
        argv[n++] = (char *)"--context";
        argv[n++] = (char *)text_number(s->context, context);
    }
    if (!no_nul(pattern, n, out)) /* behind the "--" that follows; Pi has no --threads */
        return;
    if (s->is_folder && is_small(s->path))
        argv[n++] = (char *)"--threads=1";
    argv[n++] = (char *)"--";
    argv[n++] = (char *)pattern.p;
    argv[n++] = s->is_folder ? (char *)"." : (char *)s->path;
    run_ripgrep(run, s, argv, out);
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    struct str pattern;
    AUTO_BUF path = {0};
    if (!tool_arg(run, "pattern", &pattern, out) || !tool_search_path(run, &path, out) ||
        tool_aborted(run, out))
        return;
    struct stat st;
    if (str_has_nul(buf_str(&path)) || stat(path.p, &st) != 0) {
        tool_not_found(buf_str(&path), out);
        return;
    }
    double context = floor(json_get_real(run->input, "context", 0));
    struct search s = {.path = path.p,
                       .is_folder = S_ISDIR(st.st_mode),
                       .limit = tool_limit(run, DEFAULT_LIMIT),
                       .context = context > 0 ? fmin(context, MAX_SAFE_INTEGER) : 0};
    search(run, &s, pattern, out);
    buf_done(&s.text);
    buf_done(&s.last_file);
}

const struct tool tool_grep = {.name = "grep", .run = run};
