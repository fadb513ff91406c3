/* src/http/multipart.c: the first byte says where to cut, the second how long the boundary is.
   Whatever the input, one piece and many must read the same; parts nest properly; what is handed
   out adds up to no more than came in. */
/* sources: src/http/multipart.c src/base/arena.c src/base/buf.c src/base/err.c src/base/mem.c src/base/str.c */
#include "http/multipart.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct seen {
    struct buf text;
    bool open;
    size_t data_bytes;
};

static err see_part(void *arg, const struct multipart_part *part)
{
    struct seen *s = arg;
    assert(!s->open && part->name.p && str_is_utf8(part->name) && str_is_utf8(part->filename));
    assert(!str_has_nul(part->name) && !str_has_nul(part->filename));
    s->open = true;
    buf_printf(&s->text, "[%.*s|%.*s|%.*s:", STR_ARG(part->name), STR_ARG(part->filename),
               STR_ARG(part->content_type));
    return 0;
}

static err see_data(void *arg, struct str bytes)
{
    struct seen *s = arg;
    assert(s->open && bytes.n > 0);
    s->data_bytes += bytes.n;
    buf_add_str(&s->text, bytes);
    return 0;
}

static err see_end(void *arg)
{
    struct seen *s = arg;
    assert(s->open);
    s->open = false;
    buf_add_char(&s->text, ']');
    return 0;
}

/* Whether it was read to its end. */
static bool run(struct str type, const char *data, size_t n, size_t step, struct seen *out)
{
    struct multipart_sink sink = {see_part, see_data, see_end, out};
    struct multipart *m;
    if (multipart_new(type, &sink, &m))
        return false;
    err e = 0;
    for (size_t at = 0; !e && at < n; at += step)
        e = multipart_feed(m, (struct str){data + at, n - at < step ? n - at : step});
    bool ok = !e && multipart_end(m) == 0;
    assert(!ok || !out->open);
    multipart_free(m);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 3)
        return 0;
    struct seen whole = {0}, pieces = {0}, typed = {0};
    char type[64] = "multipart/form-data; boundary=b";
    const char *body = (const char *)data + 2;
    size_t step = data[0] ? data[0] : 1;
    if (data[1] % 2)
        snprintf(type, sizeof type, "multipart/form-data; boundary=\"--%.*s\"", data[1] % 8,
                 "-b-b-b-b");
    bool one = run(str_of(type), body, n - 2, n, &whole);
    bool many = run(str_of(type), body, n - 2, step, &pieces);
    assert(one == many && whole.data_bytes <= n);
    assert(!one || str_eq(buf_str(&whole.text), buf_str(&pieces.text)));
    /* The input as a Content-Type. */
    run((struct str){body, n - 2}, "", 0, 1, &typed);
    buf_done(&whole.text);
    buf_done(&pieces.text);
    buf_done(&typed.text);
    return 0;
}
