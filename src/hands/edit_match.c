#include "hands/edit_match.h"

#include "base/buf.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

struct str edit_to_lf(struct str s, struct arena *a)
{
    if (s.n == 0 || !memchr(s.p, '\r', s.n))
        return s;
    char *out = arena_alloc(a, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        bool crlf = s.p[i] == '\r' && i + 1 < s.n && s.p[i + 1] == '\n';
        if (!crlf)
            out[n++] = s.p[i];
        if (!crlf && s.p[i] == '\r')
            out[n - 1] = '\n';
    }
    return (struct str){out, n};
}

static bool is_ascii(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] >= 0x80)
            return false;
    return true;
}

static struct str nfkc(struct str s, struct arena *a)
{
    if (is_ascii(s))
        return s;
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &mapped,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    if (n < 0)
        return s; /* not UTF-8: cannot happen, the content was decoded */
    struct str out = arena_str(a, (struct str){(char *)mapped, (size_t)n});
    free(mapped);
    return out;
}

/* Blank to JavaScript's trimEnd, apart from LF. */
static bool is_js_space(utf8proc_int32_t c)
{
    return c == ' ' || (c >= 9 && c <= 13) || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000 || c == 0xfeff;
}

/* What Pi's tables make of a code point. */
static utf8proc_int32_t plain(utf8proc_int32_t c)
{
    if (c >= 0x2018 && c <= 0x201b)
        return '\'';
    if (c >= 0x201c && c <= 0x201f)
        return '"';
    if ((c >= 0x2010 && c <= 0x2015) || c == 0x2212)
        return '-';
    if (c == 0xa0 || (c >= 0x2002 && c <= 0x200a) || c == 0x202f || c == 0x205f || c == 0x3000)
        return ' ';
    return c;
}

struct str edit_normalize(struct str s, struct arena *a)
{
    s = nfkc(s, a);
    char *out = arena_alloc(a, s.n + 1); /* nothing gets longer from here on */
    size_t n = 0, keep = 0;              /* keep: end of the line without trailing blanks */
    for (size_t i = 0; i < s.n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)s.p + i, (utf8proc_ssize_t)(s.n - i), &c);
        if (used <= 0) {
            c = (unsigned char)s.p[i];
            used = 1;
        }
        if (c == '\n')
            n = keep;
        utf8proc_int32_t p = plain(c);
        if (p < 0x80) {
            out[n++] = (char)p;
        } else {
            memcpy(out + n, s.p + i, (size_t)used);
            n += (size_t)used;
        }
        if (c == '\n' || !is_js_space(c))
            keep = n;
        i += (size_t)used;
    }
    return (struct str){out, keep};
}

/* Offset of the needle, or -1. An empty one is found at 0. */
static ssize_t find(struct str text, struct str needle)
{
    if (needle.n == 0)
        return 0;
    const char *hit = text.n ? memmem(text.p, text.n, needle.p, needle.n) : NULL;
    return hit ? hit - text.p : -1;
}

static size_t utf16_length(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        n += (c & 0xc0) != 0x80;
        n += c >= 0xf0;
    }
    return n;
}

/* As text.split(needle).length - 1 counts. */
static size_t count(struct str text, struct str needle)
{
    if (needle.n == 0)
        return text.n ? utf16_length(text) - 1 : 0;
    size_t n = 0;
    for (ssize_t at; (at = find(text, needle)) >= 0; n++) {
        text.p += (size_t)at + needle.n;
        text.n -= (size_t)at + needle.n;
    }
    return n;
}

struct match {
    ssize_t at; /* -1: none */
    size_t length;
    bool fuzzy;
};

static struct match find_text(struct str content, struct str fuzzy_content, struct str old_text,
                              struct arena *a)
{
    ssize_t at = find(content, old_text);
    if (at >= 0)
        return (struct match){at, old_text.n, false};
    struct str fuzzy_old = edit_normalize(old_text, a);
    return (struct match){find(fuzzy_content, fuzzy_old), fuzzy_old.n, true};
}

static err refuse(struct arena *a, struct str *out_why, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static err refuse(struct arena *a, struct str *out_why, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    *out_why = str_of(arena_vprintf(a, fmt, ap));
    va_end(ap);
    return fail(E_INVALID, "%s", out_why->p);
}

/* What every step of one edit needs. */
struct job {
    struct str content, fuzzy; /* fuzzy: edit_normalize(content) */
    const struct edit *edits;
    size_t n;
    struct str path;
    struct arena *a;
    struct str *out_why;
};

#define PATH(j) STR_ARG((j)->path)

static err refuse_missing(const struct job *j, size_t i)
{
    if (j->n == 1)
        return refuse(j->a, j->out_why,
                      "Could not find the exact text in %.*s. The old text must match exactly "
                      "including all whitespace and newlines.",
                      PATH(j));
    return refuse(j->a, j->out_why,
                  "Could not find edits[%zu] in %.*s. The oldText must match exactly including all "
                  "whitespace and newlines.",
                  i, PATH(j));
}

static err refuse_duplicate(const struct job *j, size_t i, size_t times)
{
    if (j->n == 1)
        return refuse(j->a, j->out_why,
                      "Found %zu occurrences of the text in %.*s. The text must be unique. Please "
                      "provide more context to make it unique.",
                      times, PATH(j));
    return refuse(
        j->a, j->out_why,
        "Found %zu occurrences of edits[%zu] in %.*s. Each oldText must be unique. Please "
        "provide more context to make it unique.",
        times, i, PATH(j));
}

static err refuse_empty(const struct job *j, size_t i)
{
    if (j->n == 1)
        return refuse(j->a, j->out_why, "oldText must not be empty in %.*s.", PATH(j));
    return refuse(j->a, j->out_why, "edits[%zu].oldText must not be empty in %.*s.", i, PATH(j));
}

static err refuse_unchanged(const struct job *j)
{
    if (j->n == 1)
        return refuse(j->a, j->out_why,
                      "No changes made to %.*s. The replacement produced identical content. This "
                      "might indicate an issue with special characters or the text not existing as "
                      "expected.",
                      PATH(j));
    return refuse(j->a, j->out_why,
                  "No changes made to %.*s. The replacements produced identical content.", PATH(j));
}

static int by_place(const void *a, const void *b)
{
    const struct replacement *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->edit < y->edit ? -1 : x->edit > y->edit;
}

static err match_all(const struct job *j, struct str base, struct replacement *r)
{
    for (size_t i = 0; i < j->n; i++) {
        struct match m = find_text(base, j->fuzzy, j->edits[i].old_text, j->a);
        if (m.at < 0)
            return refuse_missing(j, i);
        size_t times = count(j->fuzzy, edit_normalize(j->edits[i].old_text, j->a));
        if (times > 1)
            return refuse_duplicate(j, i, times);
        r[i] = (struct replacement){
            .at = (size_t)m.at, .length = m.length, .text = j->edits[i].new_text, .edit = i};
    }
    qsort(r, j->n, sizeof *r, by_place);
    for (size_t i = 1; i < j->n; i++)
        if (r[i - 1].at + r[i - 1].length > r[i].at)
            return refuse(j->a, j->out_why,
                          "edits[%zu] and edits[%zu] overlap in %.*s. Merge them into one edit or "
                          "target disjoint regions.",
                          r[i - 1].edit, r[i].edit, PATH(j));
    return 0;
}

static struct str splice(struct str text, size_t offset, const struct replacement *r, size_t n,
                         struct arena *a)
{
    AUTO_BUF out = {0};
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        buf_add(&out, text.p + at, r[i].at - offset - at);
        buf_add_str(&out, r[i].text);
        at = r[i].at - offset + r[i].length;
    }
    buf_add(&out, text.p + at, text.n - at);
    return arena_str(a, buf_str(&out));
}

struct lines {
    size_t *ends; /* behind the LF, or the end of the text */
    size_t n;
};

static struct lines split_lines(struct str text, struct arena *a)
{
    size_t n = 1;
    for (size_t i = 0; i < text.n; i++)
        n += text.p[i] == '\n';
    struct lines l = {.ends = arena_alloc(a, size_mul(n, sizeof(size_t)))};
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\n' || i + 1 == text.n)
            l.ends[l.n++] = i + 1;
    return l;
}

static size_t start_of(const struct lines *l, size_t line)
{
    return line ? l->ends[line - 1] : 0;
}

/* Lines [*out_first, *out_end) that a replacement touches. */
static bool line_range(const struct lines *l, const struct replacement *r, size_t *out_first,
                       size_t *out_end)
{
    size_t first = 0;
    while (first < l->n && r->at >= l->ends[first])
        first++;
    size_t last = first;
    while (last < l->n && l->ends[last] < r->at + r->length)
        last++;
    *out_first = first;
    *out_end = last + 1;
    return last < l->n;
}

/* Replacements found in the normalized text become replacements of whole lines of the original:
   those lines are rewritten from the normalized text, all others keep their bytes. In place; *n
   shrinks as lines are shared. */
static err widen_to_lines(const struct job *j, struct replacement *r, size_t *n)
{
    struct lines original = split_lines(j->content, j->a), base = split_lines(j->fuzzy, j->a);
    if (original.n != base.n)
        return refuse(j->a, j->out_why,
                      "Cannot preserve unchanged lines because the base content has a different "
                      "line count.");
    size_t groups = 0;
    for (size_t i = 0; i < *n;) {
        size_t first, end, more = i + 1, next_first, next_end;
        if (!line_range(&base, &r[i], &first, &end))
            return refuse(j->a, j->out_why, "Replacement range is outside the base content.");
        for (; more < *n; more++) {
            if (!line_range(&base, &r[more], &next_first, &next_end))
                return refuse(j->a, j->out_why, "Replacement range is outside the base content.");
            if (next_first >= end)
                break;
            end = next_end > end ? next_end : end;
        }
        size_t from = start_of(&base, first), to = base.ends[end - 1];
        struct str text =
            splice((struct str){j->fuzzy.p + from, to - from}, from, r + i, more - i, j->a);
        size_t at = start_of(&original, first);
        r[groups++] =
            (struct replacement){.at = at, .length = original.ends[end - 1] - at, .text = text};
        i = more;
    }
    *n = groups;
    return 0;
}

static bool any_fuzzy(const struct job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        struct match m = find_text(j->content, j->fuzzy, j->edits[i].old_text, j->a);
        if (m.fuzzy && m.at >= 0)
            return true;
    }
    return false;
}

err edit_apply(struct str content, const struct edit *edits, size_t n, struct str path,
               struct arena *a, struct edit_outcome *out, struct str *out_why)
{
    struct edit *clean = arena_alloc(a, size_mul(n, sizeof *clean));
    struct job j = {
        .content = content, .edits = clean, .n = n, .path = path, .a = a, .out_why = out_why};
    for (size_t i = 0; i < n; i++) {
        clean[i].old_text = edit_to_lf(edits[i].old_text, a);
        clean[i].new_text = edit_to_lf(edits[i].new_text, a);
    }
    for (size_t i = 0; i < n; i++)
        if (clean[i].old_text.n == 0)
            return refuse_empty(&j, i);
    j.fuzzy = edit_normalize(content, a);
    bool fuzzy = any_fuzzy(&j);
    struct replacement *r = arena_alloc(a, size_mul(n, sizeof *r));
    TRY(match_all(&j, fuzzy ? j.fuzzy : content, r));
    if (fuzzy)
        TRY(widen_to_lines(&j, r, &n));
    struct str text = splice(content, 0, r, n, a);
    if (str_eq(text, content))
        return refuse_unchanged(&j);
    *out = (struct edit_outcome){.text = text, .replacements = r, .n = n};
    return 0;
}

/* The line end of the line at `offset`: its own, or that of the line before for a last one without.
   A lone CR counts only where there is no LF at all. */
static struct str line_end_at(struct str s, size_t offset)
{
    const char *lf = offset < s.n ? memchr(s.p + offset, '\n', s.n - offset) : NULL;
    if (lf == NULL && s.n > 0)
        lf = memrchr(s.p, '\n', offset < s.n ? offset + 1 : s.n);
    if (lf == NULL)
        return s.n > 0 && memchr(s.p, '\r', s.n) ? STR("\r") : STR("\n");
    return lf > s.p && lf[-1] == '\r' ? STR("\r\n") : STR("\n");
}

/* A CR before a seam and an LF behind it would become one line break: an LF between them keeps
 * both. */
static void push(struct buf *out, bool *ends_with_cr, struct str part)
{
    if (part.n == 0)
        return;
    if (*ends_with_cr && part.p[0] == '\n')
        buf_add_char(out, '\n');
    buf_add_str(out, part);
    *ends_with_cr = part.p[part.n - 1] == '\r';
}

/* Walks an original text beside its LF form: only CRLF changes the length. */
struct walk {
    struct str s;
    size_t next; /* the next CRLF, or SIZE_MAX */
    size_t seen; /* CRLFs before it */
};

static size_t next_crlf(struct str s, size_t from)
{
    const char *hit = from < s.n ? memmem(s.p + from, s.n - from, "\r\n", 2) : NULL;
    return hit ? (size_t)(hit - s.p) : SIZE_MAX;
}

static size_t to_original(struct walk *w, size_t offset)
{
    while (w->next != SIZE_MAX && w->next - w->seen < offset) {
        w->seen++;
        w->next = next_crlf(w->s, w->next + 2);
    }
    return offset + w->seen;
}

static struct str with_line_end(struct str text, struct str end, struct buf *out)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\n')
            buf_add_str(out, end);
        else
            buf_add_char(out, text.p[i]);
    return buf_str(out);
}

struct str edit_apply_to_original(struct str original, const struct edit_outcome *outcome,
                                  struct arena *a)
{
    struct walk w = {.s = original, .next = next_crlf(original, 0)};
    AUTO_BUF out = {0};
    bool ends_with_cr = false;
    size_t at = 0;
    for (size_t i = 0; i < outcome->n; i++) {
        const struct replacement *r = &outcome->replacements[i];
        size_t start = to_original(&w, r->at);
        push(&out, &ends_with_cr, (struct str){original.p + at, start - at});
        AUTO_BUF text = {0};
        push(&out, &ends_with_cr, with_line_end(r->text, line_end_at(original, start), &text));
        at = to_original(&w, r->at + r->length);
    }
    push(&out, &ends_with_cr, (struct str){original.p + at, original.n - at});
    return arena_str(a, buf_str(&out));
}
