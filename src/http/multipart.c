#include "http/multipart.h"

#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/mem.h"

#define MULTIPART_MAGIC 0x6d756c74u
#define BOUNDARY_MAX 70
#define CODE "invalid_multipart"

enum stage {
    BEFORE,  /* the first boundary, which has no line end before it */
    BEHIND,  /* a boundary: "--" ends all, a line end begins a part */
    HEADERS, /* of a part, up to the empty line */
    CONTENT, /* up to a line end and the boundary */
    OVER     /* what follows the last boundary is nobody's */
};

struct multipart {
    unsigned magic;
    struct multipart_sink sink;
    char delimiter[BOUNDARY_MAX + 5]; /* CR LF "--" boundary */
    size_t delimiter_bytes;
    enum stage stage;
    unsigned parts;
    struct buf held; /* bytes that were not understood yet */
};

static err malformed(const char *what)
{
    return fail_as(E_INVALID, CODE, "the multipart body is malformed: %s", what);
}

static struct str trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (struct str){s.p + 1, s.n - 1};
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static bool same_word(struct str s, const char *word)
{
    return s.n == strlen(word) && strncasecmp(s.p, word, s.n) == 0;
}

/* ---- parameters: `; name=value` and `; name="value"` ---- */

/* A quoted value, `at` behind its first quote; in it `\"` and `\\` are one character each, and
   other backslashes stand for themselves (browsers send paths with them). */
static bool read_quoted(struct str *rest, struct arena *a, struct str *out)
{
    char *text = arena_alloc(a, rest->n + 1);
    size_t n = 0, i = 0;
    for (; i < rest->n && rest->p[i] != '"'; i++) {
        if (rest->p[i] == '\\' && i + 1 < rest->n &&
            (rest->p[i + 1] == '"' || rest->p[i + 1] == '\\'))
            i++;
        text[n++] = rest->p[i];
    }
    if (i == rest->n)
        return false;
    *rest = (struct str){rest->p + i + 1, rest->n - i - 1};
    *out = (struct str){text, n};
    return true;
}

/* The next parameter; false at the end, *out_bad when it is none. */
static bool next_parameter(struct str *rest, struct arena *a, struct str *out_name,
                           struct str *out_value, bool *out_bad)
{
    *rest = trim(*rest);
    if (rest->n == 0)
        return false;
    *out_bad = true;
    if (rest->p[0] != ';')
        return false;
    struct str all = trim((struct str){rest->p + 1, rest->n - 1});
    const char *equals = all.n ? memchr(all.p, '=', all.n) : NULL;
    if (equals == NULL || equals == all.p)
        return false;
    *out_name = trim((struct str){all.p, (size_t)(equals - all.p)});
    all = (struct str){equals + 1, (size_t)(all.p + all.n - equals - 1)};
    if (all.n && all.p[0] == '"') {
        *rest = (struct str){all.p + 1, all.n - 1};
        *out_bad = !read_quoted(rest, a, out_value);
        return !*out_bad;
    }
    const char *end = all.n ? memchr(all.p, ';', all.n) : NULL;
    size_t n = end ? (size_t)(end - all.p) : all.n;
    *out_value = trim((struct str){all.p, n});
    *rest = (struct str){all.p + n, all.n - n};
    *out_bad = false;
    return true;
}

/* Splits "type; parameters". */
static struct str first_word(struct str value, struct str *out_rest)
{
    size_t n = 0;
    while (n < value.n && value.p[n] != ';')
        n++;
    *out_rest = (struct str){value.p + n, value.n - n};
    return trim((struct str){value.p, n});
}

/* ---- the boundary ---- */

static bool is_boundary(struct str s)
{
    static const char marks[] = "'()+_,-./:=? ";
    if (s.n == 0 || s.n > BOUNDARY_MAX || s.p[s.n - 1] == ' ')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c && strchr(marks, c))))
            return false;
    }
    return true;
}

static bool find_boundary(struct str content_type, struct arena *a, struct str *out)
{
    struct str rest, name, value;
    bool bad = false, found = false;
    if (!same_word(first_word(content_type, &rest), "multipart/form-data"))
        return false;
    while (next_parameter(&rest, a, &name, &value, &bad)) {
        if (!same_word(name, "boundary"))
            continue;
        if (found)
            return false;
        found = true;
        *out = value;
    }
    return found && !bad && is_boundary(*out);
}

err multipart_new(struct str content_type, const struct multipart_sink *sink,
                  struct multipart **out)
{
    AUTO_ARENA a = arena_new();
    struct str boundary = {0};
    if (!find_boundary(content_type, a, &boundary))
        return fail(E_MEDIA_TYPE,
                    "the body must be sent as Content-Type: multipart/form-data; boundary=…");
    struct multipart *m = mem_alloc(sizeof *m);
    m->magic = MULTIPART_MAGIC;
    m->sink = *sink;
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary.p, boundary.n);
    m->delimiter_bytes = 4 + boundary.n;
    *out = m;
    return 0;
}

void multipart_free(struct multipart *m)
{
    if (m == NULL)
        return;
    CHECK(m, MULTIPART_MAGIC);
    buf_done(&m->held);
    m->magic = 0;
    mem_free(m);
}

/* ---- a part's headers ---- */

static bool is_clean(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 || c == 0x7f)
            return false;
    }
    return str_is_utf8(s);
}

/* filename*=UTF-8''percent-encoded (RFC 8187), which goes before filename. */
static bool read_extended(struct str value, struct arena *a, struct str *out)
{
    static const char charset[] = "UTF-8'";
    size_t n = sizeof charset - 1;
    if (value.n < n || strncasecmp(value.p, charset, n) != 0)
        return false;
    const char *quote = memchr(value.p + n, '\'', value.n - n);
    if (quote == NULL)
        return false;
    char *text = arena_alloc(a, value.n + 1);
    size_t length = 0;
    for (const char *p = quote + 1, *end = value.p + value.n; p < end; p++) {
        static const char hex[] = "0123456789abcdef";
        if (*p != '%') {
            text[length++] = *p;
            continue;
        }
        const char *high = end - p > 2 && p[1] ? strchr(hex, p[1] | 0x20) : NULL;
        const char *low = end - p > 2 && p[2] ? strchr(hex, p[2] | 0x20) : NULL;
        if (!high || !low)
            return false;
        text[length++] = (char)((high - hex) << 4 | (low - hex));
        p += 2;
    }
    *out = (struct str){text, length};
    return true;
}

static err read_disposition(struct str value, struct arena *a, struct multipart_part *out)
{
    struct str rest, name, text, extended = {0};
    bool bad = false;
    if (!same_word(first_word(value, &rest), "form-data"))
        return malformed("a part that is not form-data");
    while (next_parameter(&rest, a, &name, &text, &bad)) {
        struct str *to = same_word(name, "name")        ? &out->name
                         : same_word(name, "filename")  ? &out->filename
                         : same_word(name, "filename*") ? &extended
                                                        : NULL;
        if (to == NULL)
            continue;
        if (to->p)
            return malformed("a part is named twice");
        *to = text;
    }
    if (bad)
        return malformed("a Content-Disposition that cannot be read");
    if (extended.p && !read_extended(extended, a, &out->filename))
        return malformed("a filename* that cannot be read");
    return 0;
}

static err read_header(struct str line, struct arena *a, struct multipart_part *out)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL || !is_clean((struct str){line.p, (size_t)(colon - line.p)}))
        return malformed("a header line that is none");
    struct str name = {line.p, (size_t)(colon - line.p)};
    struct str value = trim((struct str){colon + 1, line.n - name.n - 1});
    if (same_word(name, "Content-Disposition"))
        return out->name.p ? malformed("a part is named twice") : read_disposition(value, a, out);
    if (same_word(name, "Content-Transfer-Encoding") && !same_word(value, "binary") &&
        !same_word(value, "8bit") && !same_word(value, "7bit"))
        return malformed("a Content-Transfer-Encoding; contents are taken as they are");
    if (same_word(name, "Content-Type"))
        out->content_type = value;
    return 0;
}

/* `lines`: without the empty one, each ending in CR LF. */
static err begin_part(struct multipart *m, struct str lines)
{
    AUTO_ARENA a = arena_new();
    struct multipart_part part = {0};
    if (++m->parts > MULTIPART_PARTS_MAX)
        return malformed("too many parts");
    for (const char *at = lines.p, *over = at + lines.n; at < over;) {
        const char *end = memmem(at, (size_t)(over - at), "\r\n", 2);
        TRY(read_header((struct str){at, (size_t)(end - at)}, a, &part));
        at = end + 2;
    }
    if (part.name.p == NULL)
        return malformed("a part without a name");
    if (!is_clean(part.name) || (part.content_type.p && !is_clean(part.content_type)) ||
        !str_is_utf8(part.filename) || str_has_nul(part.filename))
        return malformed("a part's name that is not plain UTF-8");
    return m->sink.part(m->sink.arg, &part);
}

/* ---- stages: each takes what it understands of `in`; *out_more: it got further ---- */

static void advance(struct str *in, size_t n)
{
    *in = (struct str){in->p + n, in->n - n};
}

static err take_before(struct multipart *m, struct str *in, bool *out_more)
{
    const char *want = m->delimiter + 2; /* there is no line end before the first one … */
    size_t n = m->delimiter_bytes - 2;
    if (in->n && in->p[0] == '\r') { /* … though some send one */
        want -= 2;
        n += 2;
    }
    if (in->n && memcmp(in->p, want, in->n < n ? in->n : n) != 0)
        return malformed("it does not begin with the boundary");
    if (in->n < n)
        return 0;
    advance(in, n);
    m->stage = BEHIND;
    *out_more = true;
    return 0;
}

static err take_behind(struct multipart *m, struct str *in, bool *out_more)
{
    while (in->n && (in->p[0] == ' ' || in->p[0] == '\t')) /* padding, which a gateway may add */
        advance(in, 1);
    if (in->n < 2)
        return 0;
    if (memcmp(in->p, "--", 2) == 0)
        m->stage = OVER;
    else if (memcmp(in->p, "\r\n", 2) == 0)
        m->stage = HEADERS; /* the line end stays: with no header at all it is half of the end */
    else
        return malformed("a boundary goes on");
    *out_more = true;
    return 0;
}

static err take_headers(struct multipart *m, struct str *in, bool *out_more)
{
    const char *end = memmem(in->p, in->n, "\r\n\r\n", 4);
    size_t n = end ? (size_t)(end - in->p) : in->n;
    if (n > MULTIPART_HEADERS_MAX + (end ? 0 : 3)) /* 3: of the end, which counts for nothing */
        return malformed("a part's headers are longer than 8 KiB");
    if (end == NULL)
        return 0;
    TRY(begin_part(m, (struct str){in->p + 2, n}));
    advance(in, n + 4);
    m->stage = CONTENT;
    *out_more = true;
    return 0;
}

/* Holds back as much as could be the beginning of a delimiter. */
static err take_content(struct multipart *m, struct str *in, bool *out_more)
{
    const char *end = memmem(in->p, in->n, m->delimiter, m->delimiter_bytes);
    size_t n = in->n < m->delimiter_bytes ? 0 : in->n - m->delimiter_bytes + 1;
    if (end)
        n = (size_t)(end - in->p);
    if (n > 0)
        TRY(m->sink.data(m->sink.arg, (struct str){in->p, n}));
    advance(in, n);
    if (end == NULL)
        return 0;
    advance(in, m->delimiter_bytes);
    m->stage = BEHIND;
    *out_more = true;
    return m->sink.end(m->sink.arg);
}

static err take_over(struct multipart *m, struct str *in, bool *out_more)
{
    (void)m;
    (void)out_more;
    advance(in, in->n);
    return 0;
}

static err take(struct multipart *m, struct str *in)
{
    static err (*const stages[])(struct multipart * m, struct str * in, bool *out_more) = {
        [BEFORE] = take_before,   [BEHIND] = take_behind, [HEADERS] = take_headers,
        [CONTENT] = take_content, [OVER] = take_over,
    };
    bool more = true;
    while (more) {
        more = false;
        TRY(stages[m->stage](m, in, &more));
    }
    return 0;
}

err multipart_feed(struct multipart *m, struct str bytes)
{
    CHECK(m, MULTIPART_MAGIC);
    struct str in = bytes;
    if (m->held.n > 0) {
        buf_add_str(&m->held, bytes);
        in = buf_str(&m->held);
    }
    TRY(take(m, &in));
    AUTO_BUF left = {0};
    buf_add_str(&left, in); /* a few bytes: a boundary or headers at most */
    buf_clear(&m->held);
    buf_add_str(&m->held, buf_str(&left));
    return 0;
}

err multipart_end(struct multipart *m)
{
    CHECK(m, MULTIPART_MAGIC);
    return m->stage == OVER ? 0 : malformed("it ends before its last boundary");
}
