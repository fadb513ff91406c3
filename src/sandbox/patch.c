#include "sandbox/patch.h"

#include "base/line_diff.h"

#define BINARY_LOOK 8000 /* bytes in which git looks for a NUL */

struct side {
    enum copyout_type type;
    unsigned mode; /* as git has it */
    struct str content;
};

static bool needs_quotes(struct str name)
{
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            return true;
    }
    return false;
}

/* prefix is "a/" or "b/". */
static void add_name(struct buf *out, const char *prefix, struct str name)
{
    if (!needs_quotes(name)) {
        buf_add_c(out, prefix);
        buf_add_str(out, name);
        return;
    }
    buf_printf(out, "\"%s", prefix);
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            buf_printf(out, "\\%03o", c);
        else
            buf_add_char(out, (char)c);
    }
    buf_add_char(out, '"');
}

/* A blank in a plain name is told from the end of the name by a TAB. */
static void add_file_line(struct buf *out, const char *mark, const char *prefix, struct str name,
                          bool exists)
{
    buf_add_c(out, mark);
    if (exists)
        add_name(out, prefix, name);
    else
        buf_add_c(out, "/dev/null");
    if (exists && !needs_quotes(name) && memchr(name.p, ' ', name.n))
        buf_add_char(out, '\t');
    buf_add_char(out, '\n');
}

static void add_head(struct buf *out, struct str name, const struct side *before,
                     const struct side *after)
{
    buf_add_c(out, "diff --git ");
    add_name(out, "a/", name);
    buf_add_char(out, ' ');
    add_name(out, "b/", name);
    buf_add_char(out, '\n');
    if (!before->type)
        buf_printf(out, "new file mode %06o\n", after->mode);
    else if (!after->type)
        buf_printf(out, "deleted file mode %06o\n", before->mode);
    else if (before->mode != after->mode)
        buf_printf(out, "old mode %06o\nnew mode %06o\n", before->mode, after->mode);
}

static void add_change(struct buf *out, struct str name, const struct side *before,
                       const struct side *after)
{
    AUTO_BUF hunks = {0};
    line_diff(before->content, after->content, &hunks);
    if (hunks.n == 0 && before->type && after->type && before->mode == after->mode)
        return; /* only bits that git does not keep */
    add_head(out, name, before, after);
    if (hunks.n == 0)
        return;
    add_file_line(out, "--- ", "a/", name, before->type != COPYOUT_NONE);
    add_file_line(out, "+++ ", "b/", name, after->type != COPYOUT_NONE);
    buf_add_str(out, buf_str(&hunks));
}

static void add_remark(struct buf *out, struct str name, const char *why)
{
    buf_printf(out, "# left out, %s: ", why);
    add_name(out, "", name);
    buf_add_char(out, '\n');
}

static bool is_binary(struct str content)
{
    size_t n = content.n < BINARY_LOOK ? content.n : BINARY_LOOK;
    return n > 0 && memchr(content.p, 0, n) != NULL;
}

static struct side side_of(const struct copyout_node *node, struct str content)
{
    if (node->type == COPYOUT_FILE)
        return (struct side){COPYOUT_FILE, node->mode & 0100 ? 0100755u : 0100644u, content};
    if (node->type == COPYOUT_LINK)
        return (struct side){COPYOUT_LINK, 0120000u, node->target};
    return (struct side){.content = STR("")};
}

void patch_add(struct buf *out, const struct copyout_entry *e, struct str before, struct str after,
               bool whole)
{
    const struct side none = {.content = STR("")};
    struct side was = side_of(&e->before, before), is = side_of(&e->now, after);
    if (e->now.type == COPYOUT_OTHER || e->before.type == COPYOUT_OTHER)
        add_remark(out, e->path, "neither file, folder nor link");
    if (!was.type && !is.type)
        return;
    bool large = e->now.size > PATCH_CONTENT_MAX || e->before.size > PATCH_CONTENT_MAX;
    if (large || !whole || is_binary(was.content) || is_binary(is.content)) {
        add_remark(out, e->path,
                   large    ? "too large"
                   : !whole ? "it could not be read, or changed meanwhile"
                            : "binary");
    } else if (was.type && is.type &&
               was.type != is.type) { /* as git has it: one goes, one comes */
        add_change(out, e->path, &was, &none);
        add_change(out, e->path, &none, &is);
    } else {
        add_change(out, e->path, &was, &is);
    }
}
