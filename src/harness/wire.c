/* Lines in, messages out, and back. Fuzzed by tests/fuzz/harness_wire.c. */
#include "harness/wire.h"

#include <string.h>

#include "harness/protocol.h"

char *wire_space(struct wire_reader *r, size_t n)
{
    buf_drop(&r->bytes, r->at);
    r->scanned -= r->at;
    r->at = 0;
    buf_reserve(&r->bytes, n);
    return r->bytes.p + r->bytes.n;
}

void wire_added(struct wire_reader *r, size_t n)
{
    r->bytes.n += n;
    r->bytes.p[r->bytes.n] = 0;
}

/* The next line without its LF; false when that is not there yet. */
static bool next_line(struct wire_reader *r, size_t max, struct str *out, err *out_err)
{
    const char *from = r->bytes.p + r->scanned;
    size_t left = r->bytes.n - r->scanned;
    const char *lf = left > 0 ? memchr(from, '\n', left) : NULL;
    size_t end = lf ? (size_t)(lf - r->bytes.p) : r->bytes.n;
    if (end - r->at > max) {
        *out_err = fail(E_INVALID, "the host sent a line of more than %zu bytes", max);
        return false;
    }
    r->scanned = end;
    if (!lf)
        return false;
    *out = (struct str){.p = r->bytes.p + r->at, .n = end - r->at};
    r->at = r->scanned = end + 1;
    return true;
}

static err check_envelope(const json_t *envelope)
{
    int64_t lines = json_get_int(envelope, "lines", 0);
    if (!json_is_object(envelope))
        return fail(E_INVALID, "the host sent an envelope that is no object");
    if (lines < 0 || lines > 1)
        return fail(E_INVALID, "the host sent %lld lines with one message", (long long)lines);
    return 0;
}

static bool take_envelope(struct wire_reader *r, err *out_err)
{
    struct str text;
    if (!next_line(r, HOST_ENVELOPE_MAX, &text, out_err))
        return false;
    *out_err = json_read(text, &r->envelope);
    if (!*out_err)
        *out_err = check_envelope(r->envelope);
    return *out_err == 0;
}

bool wire_take(struct wire_reader *r, json_t **out_envelope, struct str *out_line, err *out_err)
{
    struct str line = {0};
    *out_err = 0;
    if (!r->envelope && !take_envelope(r, out_err))
        return false;
    if (json_get_int(r->envelope, "lines", 0) == 1 && !next_line(r, HOST_LINE_MAX, &line, out_err))
        return false;
    *out_envelope = r->envelope;
    *out_line = line;
    r->envelope = NULL;
    return true;
}

void wire_done(struct wire_reader *r)
{
    json_decref(r->envelope);
    buf_done(&r->bytes);
    *r = (struct wire_reader){0};
}

static int64_t count_lines(struct str lines)
{
    int64_t n = 0;
    for (struct str rest = lines; rest.n > 0; n++) {
        const char *lf = memchr(rest.p, '\n', rest.n);
        size_t used = lf ? (size_t)(lf - rest.p) + 1 : rest.n;
        rest = (struct str){.p = rest.p + used, .n = rest.n - used};
    }
    return n;
}

void wire_build(json_t *envelope, struct str lines, struct buf *out)
{
    if (lines.n > 0)
        json_object_set_new(envelope, "lines", json_integer(count_lines(lines)));
    json_write(envelope, out);
    buf_add_char(out, '\n');
    buf_add_str(out, lines);
    if (lines.n > 0 && lines.p[lines.n - 1] != '\n')
        buf_add_char(out, '\n');
}
