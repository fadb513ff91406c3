#include "hands/ignore.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "hands/glob.h"
#include "hands/process.h"
#include "hands/text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)4 << 20) /* of an ignore file; what is longer has no rules */

enum verdict {
    NO_RULE,
    LEFT_OUT,
    KEPT /* by a rule with ! */
};

struct rule {
    struct glob *glob;
    bool keeps, folders_only;
};

struct rules {
    struct rule *items;
    size_t n, cap;
};

/* The kinds of rules in the order they are asked: the first kind with an answer wins. */
enum kind {
    KIND_FD,
    KIND_IGNORE,
    KIND_GIT,
    KIND_EXCLUDE,
    KIND_COUNT
};

struct level {
    size_t path_n; /* length of the folder's path; 0 for / */
    struct rules rules[KIND_COUNT];
    bool has_git;
};

struct ignore {
    struct level *levels;
    size_t n, cap;
    bool needs_git;
    struct rules global_git, global_fd;
    char *cwd; /* NULL for / */
};

static void rules_done(struct rules *r)
{
    for (size_t i = 0; i < r->n; i++)
        glob_free(r->items[i].glob);
    mem_free(r->items);
}

static void add_rule(struct rules *r, struct rule rule)
{
    if (r->n == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 8;
        r->items = mem_realloc(r->items, size_mul(r->cap, sizeof *r->items));
    }
    r->items[r->n++] = rule;
}

static struct str rest(struct str s, size_t from)
{
    return (struct str){s.p + from, s.n - from};
}

/* ! and a leading / are taken off; true when the glob is rooted in the file's folder. */
static bool take_marks(struct str *line, struct rule *rule)
{
    if (str_starts(*line, STR("\\!")) || str_starts(*line, STR("\\#"))) {
        *line = rest(*line, 1);
        return false;
    }
    if (str_starts(*line, STR("!"))) {
        rule->keeps = true;
        *line = rest(*line, 1);
    }
    if (!str_starts(*line, STR("/")))
        return false;
    *line = rest(*line, 1);
    return true;
}

/* A line that is no valid glob says nothing. */
static void add_line(struct rules *r, struct str line)
{
    if (str_starts(line, STR("#")))
        return;
    if (!str_ends(line, STR("\\ ")))
        line = text_trim_end(line);
    if (line.n == 0)
        return;
    struct rule rule = {0};
    bool rooted = take_marks(&line, &rule);
    if (str_ends(line, STR("/"))) {
        rule.folders_only = true;
        line.n--;
        if (str_ends(line, STR("\\")))
            line.n--;
    }
    AUTO_BUF glob = {0};
    bool anywhere = !rooted && (line.n == 0 || !memchr(line.p, '/', line.n));
    if (anywhere && !str_starts(line, STR("**/")) && !str_is(line, "**"))
        buf_add_c(&glob, "**/");
    buf_add_str(&glob, line);
    if (str_ends(buf_str(&glob), STR("/**")))
        buf_add_c(&glob, "/*");
    rule.glob = glob_new(buf_str(&glob), (struct glob_options){.open_class_literal = true}, NULL);
    if (rule.glob)
        add_rule(r, rule);
}

static void read_rules(const char *path, struct rules *out)
{
    struct stat st;
    AUTO_BUF text = {0};
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        fd_read_file(path, FILE_MAX_BYTES, &text) != 0)
        return;
    struct str s = buf_str(&text), line;
    if (str_starts(s, STR("\xef\xbb\xbf")))
        s = rest(s, 3);
    while (s.n > 0) {
        const char *lf = memchr(s.p, '\n', s.n);
        line = (struct str){s.p, lf ? (size_t)(lf - s.p) : s.n};
        s = rest(s, lf ? line.n + 1 : line.n);
        if (!str_is_utf8(line))
            return; /* the rest is not looked at */
        if (str_ends(line, STR("\r")))
            line.n--;
        add_line(out, line);
    }
}

static void read_in(const char *folder, const char *name, struct rules *out)
{
    AUTO_BUF path = {0};
    buf_printf(&path, "%s/%s", folder, name);
    read_rules(path.p, out);
}

static bool exists_in(const char *folder, const char *name)
{
    AUTO_BUF path = {0};
    buf_printf(&path, "%s/%s", folder, name);
    return access(path.p, F_OK) == 0;
}

/* First line of a small file, without its line end. */
static bool first_line(const char *path, struct buf *out)
{
    if (fd_read_file(path, FILE_MAX_BYTES, out) != 0)
        return false;
    const char *lf = out->n ? memchr(out->p, '\n', out->n) : NULL;
    if (lf)
        out->n = (size_t)(lf - out->p);
    if (out->n > 0 && out->p[out->n - 1] == '\r')
        out->n--;
    buf_add(out, "", 1);
    return true;
}

/* Where the exclude file is: .git, or for a linked worktree what its .git file leads to. */
static bool git_folder(const char *folder, bool needs_git, struct buf *out)
{
    struct stat st;
    buf_printf(out, "%s/.git", folder);
    if (!needs_git || stat(out->p, &st) != 0 || !S_ISREG(st.st_mode))
        return true;
    AUTO_BUF line = {0}, common = {0}, path = {0};
    if (!first_line(out->p, &line) || !str_starts(buf_str(&line), STR("gitdir: ")))
        return false;
    const char *real = line.p + 8;
    buf_printf(&path, "%s/commondir", real);
    if (!first_line(path.p, &common))
        return false;
    buf_clear(out);
    if (common.p[0] == '.')
        buf_printf(out, "%s/%s", real, common.p);
    else
        buf_add_c(out, common.p);
    return true;
}

void ignore_push(struct ignore *g, const char *folder)
{
    if (g->n == g->cap) {
        g->cap = g->cap ? g->cap * 2 : 16;
        g->levels = mem_realloc(g->levels, size_mul(g->cap, sizeof *g->levels));
    }
    struct level *l = &g->levels[g->n++];
    const char *base = strcmp(folder, "/") == 0 ? "" : folder;
    *l = (struct level){.path_n = strlen(base)};
    read_in(base, ".fdignore", &l->rules[KIND_FD]);
    read_in(base, ".ignore", &l->rules[KIND_IGNORE]);
    read_in(base, ".gitignore", &l->rules[KIND_GIT]);
    AUTO_BUF git = {0};
    if (exists_in(base, ".git") && git_folder(base, g->needs_git, &git))
        read_in(git.p, "info/exclude", &l->rules[KIND_EXCLUDE]);
    l->has_git = g->needs_git && (exists_in(base, ".git") || exists_in(base, ".jj"));
}

static void level_done(struct level *l)
{
    for (int kind = 0; kind < KIND_COUNT; kind++)
        rules_done(&l->rules[kind]);
}

void ignore_pop(struct ignore *g)
{
    level_done(&g->levels[--g->n]);
}

/* The value of excludesfile in a git configuration, as ripgrep looks for it: by its line alone. */
static bool excludes_file(const char *config, struct buf *out)
{
    AUTO_BUF text = {0};
    if (fd_read_file(config, FILE_MAX_BYTES, &text) != 0)
        return false;
    struct str s = buf_str(&text), line;
    while (s.n > 0) {
        const char *lf = memchr(s.p, '\n', s.n);
        line = text_trim((struct str){s.p, lf ? (size_t)(lf - s.p) : s.n});
        s = rest(s, lf ? (size_t)(lf - s.p) + 1 : s.n);
        if (line.n < 12 || strncasecmp(line.p, "excludesfile", 12) != 0)
            continue;
        line = text_trim(rest(line, 12));
        if (!str_starts(line, STR("=")))
            continue;
        line = text_trim(rest(line, 1));
        if (str_starts(line, STR("\"")))
            line = text_trim(rest(line, 1));
        if (str_ends(line, STR("\"")))
            line.n--;
        if (str_starts(line, STR("~"))) {
            buf_add_c(out, process_home());
            line = rest(line, 1);
        }
        buf_add_str(out, line);
        buf_add(out, "", 1);
        return true;
    }
    return false;
}

static void read_global(struct ignore *g)
{
    const char *given = getenv("XDG_CONFIG_HOME");
    AUTO_BUF config = {0}, home = {0}, path = {0}, file = {0};
    if (given && given[0])
        buf_add_c(&config, given);
    else
        buf_printf(&config, "%s/.config", process_home());
    buf_printf(&home, "%s/.gitconfig", process_home());
    buf_printf(&path, "%s/git/config", config.p);
    if (excludes_file(home.p, &file) || excludes_file(path.p, &file) ||
        excludes_file("/etc/gitconfig", &file))
        read_rules(file.p, &g->global_git);
    else
        read_in(config.p, "git/ignore", &g->global_git);
    read_in(config.p, "fd/ignore", &g->global_fd);
}

struct ignore *ignore_new(const char *root, bool needs_git, const char *cwd)
{
    struct ignore *g = mem_alloc(sizeof *g);
    g->needs_git = needs_git;
    g->cwd = mem_strdup(strcmp(cwd, "/") == 0 ? "" : cwd);
    read_global(g);
    if (strcmp(root, "/") == 0)
        return g;
    ignore_push(g, "/");
    for (const char *slash = strchr(root + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char *parent = mem_copy(root, (size_t)(slash - root));
        ignore_push(g, parent);
        mem_free(parent);
    }
    return g;
}

void ignore_free(struct ignore *g)
{
    if (g == NULL)
        return;
    while (g->n > 0)
        ignore_pop(g);
    rules_done(&g->global_git);
    rules_done(&g->global_fd);
    mem_free(g->levels);
    mem_free(g->cwd);
    mem_free(g);
}

/* The last rule that fits decides. */
static enum verdict judge(const struct rules *r, struct str path, bool is_folder)
{
    for (size_t i = r->n; i-- > 0;) {
        const struct rule *rule = &r->items[i];
        if ((!rule->folders_only || is_folder) && glob_matches(rule->glob, path))
            return rule->keeps ? KEPT : LEFT_OUT;
    }
    return NO_RULE;
}

static enum verdict judge_global(const struct ignore *g, struct str path, bool is_folder)
{
    size_t n = strlen(g->cwd);
    bool below = path.n > n && memcmp(path.p, g->cwd, n) == 0 && path.p[n] == '/';
    return judge(&g->global_git, rest(path, below ? n + 1 : 1), is_folder);
}

bool ignore_matches(const struct ignore *g, struct str path, bool is_folder)
{
    enum verdict found[KIND_COUNT] = {NO_RULE};
    bool git_counts = !g->needs_git, beyond_repository = false;
    for (size_t i = 0; i < g->n; i++)
        git_counts |= g->levels[i].has_git;
    for (size_t i = g->n; i-- > 0;) {
        const struct level *l = &g->levels[i];
        struct str relative = rest(path, l->path_n + 1);
        for (int kind = 0; kind < KIND_COUNT; kind++) {
            bool of_git = kind == KIND_GIT || kind == KIND_EXCLUDE;
            if (found[kind] == NO_RULE && (!of_git || (git_counts && !beyond_repository)))
                found[kind] = judge(&l->rules[kind], relative, is_folder);
        }
        beyond_repository |= l->has_git;
    }
    for (int kind = 0; kind < KIND_COUNT; kind++)
        if (found[kind] != NO_RULE)
            return found[kind] == LEFT_OUT;
    enum verdict last = git_counts ? judge_global(g, path, is_folder) : NO_RULE;
    if (last == NO_RULE)
        last = judge(&g->global_fd, rest(path, 1), is_folder);
    return last == LEFT_OUT;
}
