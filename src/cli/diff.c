/* pi-managed diff: what a session changed in its sandbox since the image. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/resource.h"
#include "cli/text.h"

static const struct option options[] = {
    REMOTE_OPTIONS,
    {"path", "FOLDER", "/", "only what is below this folder of the sandbox"},
    {"patch", NULL, NULL, "print a patch, for git apply; paths are relative to --path"},
    OPTION_JSON,
    {0},
};

/* ---- for persons ---- */

static void add_name(const json_t *change, struct buf *out)
{
    const char *type = json_get_c(change, "type");
    text_add_line(out, json_get_str(change, "path"), 0);
    if (type && strcmp(type, "folder") == 0)
        buf_add_char(out, '/');
    if (json_get_str(change, "target").p) {
        buf_add_c(out, " -> ");
        text_add_line(out, json_get_str(change, "target"), 0);
    }
}

/* "(0644 → 0755)", "(was a link)" */
static void add_before(const json_t *change, struct buf *out)
{
    const json_t *before = json_object_get(change, "before");
    struct str type = json_get_str(change, "type"), was = json_get_str(before, "type");
    struct str mode = json_get_str(change, "mode"), old = json_get_str(before, "mode");
    if (was.p && !str_eq(type, was))
        buf_printf(out, "  (was a %.*s)", STR_ARG(was));
    else if (was.p && !str_eq(mode, old))
        buf_printf(out, "  (mode %.*s, was %.*s)", STR_ARG(mode), STR_ARG(old));
}

static void print_change(const json_t *change)
{
    static const struct {
        const char *word;
        char mark;
        enum paint paint;
    } kinds[] = {
        {"added", 'A', PAINT_GREEN}, {"changed", 'M', PAINT_YELLOW}, {"removed", 'D', PAINT_RED}};
    AUTO_BUF line = {0};
    struct str kind = json_get_str(change, "change");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!str_is(kind, kinds[i].word))
            continue;
        buf_printf(&line, "%c ", kinds[i].mark);
        add_name(change, &line);
        add_before(change, &line);
        text_paint(stdout, kinds[i].paint, line.p);
        putchar('\n');
    }
}

static void print_summary(const json_t *diff)
{
    const json_t *sum = json_object_get(diff, "summary");
    fprintf(stderr, "%lld added, %lld changed, %lld removed\n",
            (long long)json_get_int(sum, "added", 0), (long long)json_get_int(sum, "changed", 0),
            (long long)json_get_int(sum, "removed", 0));
    if (json_get_int(sum, "leftOut", 0) > 0)
        fprintf(stderr, "%lld folders were not looked into: too deep, or unreadable\n",
                (long long)json_get_int(sum, "leftOut", 0));
    if (json_get_bool(diff, "truncated", false))
        fprintf(stderr, "There are more changes. --path shows those of one folder\n");
}

static err show_changes(struct remote *r, const char *path)
{
    AUTO_JSON diff = NULL;
    TRY(remote_get(r, path, &diff));
    if (remote_json(r)) {
        remote_print(diff);
        return 0;
    }
    size_t i;
    json_t *change;
    const json_t *changes = json_object_get(diff, "changes");
    json_array_foreach(changes, i, change)
    {
        print_change(change);
    }
    fflush(stdout);
    print_summary(diff);
    return 0;
}

/* ---- patches ---- */

/* A patch is for a program, or for eyes: then it is made harmless and coloured. */
static void print_patch_line(struct str line)
{
    AUTO_BUF safe = {0};
    text_add_line(&safe, line, 0);
    buf_add_c(&safe, "");
    char c = line.n ? line.p[0] : ' ';
    bool head = str_starts(line, STR("diff ")) || str_starts(line, STR("+++")) ||
                str_starts(line, STR("---"));
    const char *text = safe.p ? safe.p : "";
    if (head)
        text_paint(stdout, PAINT_BOLD, text);
    else if (c == '+' || c == '-')
        text_paint(stdout, c == '+' ? PAINT_GREEN : PAINT_RED, text);
    else if (c == '@')
        text_paint(stdout, PAINT_CYAN, text);
    else
        fputs(text, stdout);
    putchar('\n');
}

static err show_patch(struct remote *r, const char *path)
{
    AUTO_BUF patch = {0};
    TRY(http_client_get(r->http, path, &patch));
    if (!isatty(STDOUT_FILENO))
        return fd_write_full(STDOUT_FILENO, patch.p, patch.n);
    struct str rest = buf_str(&patch), line;
    while (rest.n > 0 && str_split(&rest, '\n', &line))
        print_patch_line(line);
    return 0;
}

static err show(struct remote *r)
{
    AUTO_BUF path = {0};
    bool patch = option_flag(r->call, "patch");
    if (patch && remote_json(r))
        return fail(E_INVALID, "--patch and --json are two things: choose one");
    TRY(resource_path(r, "/diff?path=", &path));
    remote_escape(&path, option_value(r->call, "path"));
    if (!patch)
        return show_changes(r, path.p);
    buf_add_c(&path, "&format=patch");
    return show_patch(r, path.p);
}

static int run(const struct invocation *call)
{
    return remote_run(call, show);
}

const struct command diff_command = {
    .name = "diff",
    .arguments = "SESSION",
    .summary = "Shows every file that a session added, changed or removed.",
    .details = "Compared with the image of its sandbox. A (added), M (changed), D (removed).",
    .options = options,
    .run = run,
    .resource = &session_resource,
};
