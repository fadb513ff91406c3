#include "broker/sse_reader.h"

void sse_reader_init(struct sse_reader *r, size_t event_max, sse_event_fn on_event, void *arg)
{
    *r = (struct sse_reader){.on_event = on_event, .arg = arg, .event_max = event_max};
}

void sse_reader_done(struct sse_reader *r)
{
    buf_done(&r->line);
    buf_done(&r->type);
    buf_done(&r->data);
    buf_done(&r->id);
}

static void dispatch(struct sse_reader *r)
{
    if (r->too_long) {
        r->dropped++;
    } else if (r->has_data) {
        struct sse_event event = {.type = r->type.n ? buf_str(&r->type) : STR("message"),
                                  .data = {r->data.p, r->data.n - 1}, /* its last LF goes */
                                  .last_id = buf_str(&r->id)};
        r->on_event(r->arg, &event);
    }
    buf_clear(&r->type);
    buf_clear(&r->data);
    r->has_data = r->too_long = false;
}

static void add_data(struct sse_reader *r, struct str value)
{
    if (r->data.n + value.n > r->event_max) {
        r->too_long = true;
        return;
    }
    buf_add_str(&r->data, value);
    buf_add_char(&r->data, '\n');
    r->has_data = true;
}

static void take_field(struct sse_reader *r, struct str name, struct str value)
{
    if (str_is(name, "data")) {
        add_data(r, value);
    } else if (str_is(name, "event")) {
        buf_clear(&r->type);
        buf_add_str(&r->type, value);
    } else if (str_is(name, "id") && !str_has_nul(value)) {
        buf_clear(&r->id);
        buf_add_str(&r->id, value);
    } /* "retry" is for clients that reconnect; the rest is to be ignored */
}

static void take_line(struct sse_reader *r)
{
    struct str line = buf_str(&r->line);
    if (!r->beyond_bom && str_starts(line, STR("\xef\xbb\xbf")))
        line = (struct str){line.p + 3, line.n - 3};
    r->beyond_bom = true;
    const char *colon = line.n ? memchr(line.p, ':', line.n) : NULL;
    if (line.n == 0) {
        dispatch(r);
    } else if (colon == NULL) {
        take_field(r, line, STR(""));
    } else if (colon > line.p) {
        struct str name = {line.p, (size_t)(colon - line.p)};
        struct str value = {colon + 1, line.n - name.n - 1};
        if (value.n && value.p[0] == ' ')
            value = (struct str){value.p + 1, value.n - 1};
        take_field(r, name, value);
    }
    buf_clear(&r->line);
}

static void add_to_line(struct sse_reader *r, struct str part)
{
    if (r->line.n + part.n <= r->event_max) {
        buf_add_str(&r->line, part);
        return;
    }
    /* What is kept of the line is no blank line, so the event ends where the stream says. */
    r->too_long = true;
    buf_clear(&r->line);
    buf_add_char(&r->line, ':');
}

/* The first CR or LF from p on, or end. *lf is the first LF at or behind p, once it was looked for:
   a stream of many CRs is not searched for it again and again. */
static const char *line_end(const char *p, const char *end, const char **lf)
{
    if (*lf == NULL || *lf < p) {
        *lf = memchr(p, '\n', (size_t)(end - p));
        if (*lf == NULL)
            *lf = end;
    }
    const char *cr = memchr(p, '\r', (size_t)(*lf - p));
    return cr ? cr : *lf;
}

void sse_reader_feed(struct sse_reader *r, struct str bytes)
{
    if (bytes.n == 0)
        return;
    const char *p = bytes.p, *end = p + bytes.n;
    if (r->after_cr && *p == '\n')
        p++;
    r->after_cr = false;
    const char *lf = NULL; /* not looked for yet */
    while (p < end) {
        const char *stop = line_end(p, end, &lf);
        add_to_line(r, (struct str){p, (size_t)(stop - p)});
        if (stop == end)
            return;
        take_line(r);
        p = stop + 1;
        r->after_cr = *stop == '\r' && p == end;
        if (*stop == '\r' && p < end && *p == '\n')
            p++;
    }
}
