#include "base/json.h"

#include "base/arena.h"
#include "base/clock.h"

#include "base/json_scan.h"
#include <math.h>

/* jansson's own limit is 2048; this walk keeps R13's without touching the library. */
static bool too_deep(struct str text)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_DEPTH_MAX)
                return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

err json_read(struct str text, json_t **out)
{
    json_error_t error;
    json_t *j = json_scan_read(text, true);
    if (j == NULL && too_deep(text))
        return fail_as(E_INVALID, "invalid_json", "JSON nested deeper than %d levels",
                       JSON_DEPTH_MAX);
    if (j == NULL) /* the library knows the rest, and what is wrong */
        j = json_loadb(text.p ? text.p : "", text.n,
                       JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (j == NULL)
        return fail_as(E_INVALID, "invalid_json", "not valid JSON: %s (line %d, column %d)",
                       error.text, error.line, error.column);
    *out = j;
    return 0;
}

/* Every \u0000 escape becomes \ufffd. */
static void replace_nul(struct str text, struct buf *out)
{
    buf_add_str(out, text);
    for (size_t i = 0; i + 1 < out->n; i++) {
        if (out->p[i] != '\\')
            continue;
        if (i + 6 <= out->n && memcmp(out->p + i, "\\u0000", 6) == 0)
            memcpy(out->p + i, "\\ufffd", 6);
        i++; /* the escaped character is no backslash that escapes */
    }
}

static json_t *load_log(struct str line, json_error_t *error)
{
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY;
    json_t *j = json_loadb(line.p ? line.p : "", line.n, flags, error);
    if (j == NULL && json_error_code(error) == json_error_numeric_overflow)
        j = json_loadb(line.p, line.n, flags | JSON_DECODE_INT_AS_REAL, error);
    if (j == NULL && json_error_code(error) == json_error_null_byte_in_key) {
        AUTO_BUF clean = {0};
        replace_nul(line, &clean);
        j = json_loadb(clean.p, clean.n, flags | JSON_DECODE_INT_AS_REAL, error);
    }
    return j;
}

err json_read_log(struct str line, json_t **out)
{
    json_error_t error;
    json_t *j = json_scan_read(line, false);
    if (j == NULL)
        j = load_log(line, &error);
    if (j == NULL)
        return fail_as(E_INVALID, "invalid_json", "not valid JSON: %s (column %d)", error.text,
                       error.column);
    *out = j;
    return 0;
}

static int add_chunk(const char *p, size_t n, void *out)
{
    buf_add(out, p, n);
    return 0;
}

static void write_escape(unsigned char c, struct buf *out)
{
    static const char letters[] = {['"'] = '"',  ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f',
                                   ['\n'] = 'n', ['\r'] = 'r',  ['\t'] = 't'};
    if (c < sizeof letters && letters[c]) {
        const char text[] = {'\\', letters[c]};
        buf_add(out, text, sizeof text);
    } else {
        buf_printf(out, "\\u%04X", c);
    }
}

static void write_string(const char *p, size_t n, struct buf *out)
{
    const char *end = p + n, *run = p; /* bytes that stand for themselves */
    buf_add_char(out, '"');
    for (; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_add(out, run, (size_t)(p - run));
        write_escape(c, out);
        run = p + 1;
    }
    buf_add(out, run, (size_t)(end - run));
    buf_add_char(out, '"');
}

/* By hand, as it is in every answer and snprintf takes ten times as long. */
static void write_int(int64_t value, struct buf *out)
{
    char digits[20];
    size_t at = sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        digits[--at] = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (value < 0)
        digits[--at] = '-';
    buf_add(out, digits + at, sizeof digits - at);
}

static void write_object(const json_t *j, struct buf *out)
{
    bool first = true;
    const char *key;
    size_t n;
    json_t *value;
    buf_add_char(out, '{');
    json_object_keylen_foreach((json_t *)j, key, n, value)
    {
        if (!first)
            buf_add_char(out, ',');
        first = false;
        write_string(key, n, out);
        buf_add_char(out, ':');
        json_write(value, out);
    }
    buf_add_char(out, '}');
}

static void write_array(const json_t *j, struct buf *out)
{
    size_t i;
    json_t *value;
    buf_add_char(out, '[');
    json_array_foreach((json_t *)j, i, value)
    {
        if (i > 0)
            buf_add_char(out, ',');
        json_write(value, out);
    }
    buf_add_char(out, ']');
}

/* What jansson's own dump gives, byte for byte, but for its search for cycles, which takes most of
   its time: nobody here makes any. */
void json_write(const json_t *j, struct buf *out)
{
    if (json_is_object(j))
        write_object(j, out);
    else if (json_is_array(j))
        write_array(j, out);
    else if (json_is_string(j))
        write_string(json_string_value(j), json_string_length(j), out);
    else if (json_is_integer(j))
        write_int(json_integer_value(j), out);
    else if (json_is_null(j))
        buf_add(out, "null", 4);
    else if (json_is_true(j))
        buf_add(out, "true", 4);
    else if (json_is_false(j))
        buf_add(out, "false", 5);
    else /* a real */
        json_dump_callback(j, add_chunk, out, JSON_COMPACT | JSON_ENCODE_ANY);
}

struct str json_write_arena(const json_t *j, struct arena *a)
{
    AUTO_BUF b = {0};
    buf_reserve(&b, 1023); /* most fit */
    json_write(j, &b);
    return arena_str(a, buf_str(&b));
}

struct str json_get_str(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v))
        return (struct str){0};
    return (struct str){json_string_value(v), json_string_length(v)};
}

const char *json_get_c(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int64_t json_get_int(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

double json_get_real(const json_t *object, const char *key, double otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

bool json_get_bool(const json_t *object, const char *key, bool otherwise)
{
    const json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_boolean_value(v) : otherwise;
}

json_t *json_str(struct str value)
{
    if (str_is_utf8(value))
        return json_stringn_nocheck(value.p ? value.p : "", value.n);
    AUTO_BUF clean = {0};
    for (size_t i = 0; i < value.n;) {
        size_t n = 0;
        for (size_t len = 1; len <= 4 && i + len <= value.n && n == 0; len++)
            if (str_is_utf8((struct str){value.p + i, len}))
                n = len;
        if (n)
            buf_add(&clean, value.p + i, n);
        else
            buf_add_c(&clean, "\xef\xbf\xbd");
        i += n ? n : 1;
    }
    return json_stringn_nocheck(clean.p, clean.n);
}

void json_set_str(json_t *object, const char *key, struct str value)
{
    json_object_set_new_nocheck(object, key, json_str(value));
}

void json_set_time(json_t *object, const char *key, int64_t wall_ms)
{
    char text[CLOCK_TEXT_MAX];
    json_object_set_new_nocheck(
        object, key, wall_ms < 0 ? json_null() : json_string_nocheck(clock_format(wall_ms, text)));
}

void json_text_key(struct buf *out, const char *key)
{
    size_t n = strlen(key);
    buf_reserve(out, n + 4);
    char *at = out->p + out->n;
    if (out->n > 0 && at[-1] != '{')
        *at++ = ',';
    *at++ = '"';
    memcpy(at, key, n);
    at += n;
    memcpy(at, "\":", 3);
    out->n = (size_t)(at + 2 - out->p);
}

void json_text_raw(struct buf *out, const char *key, const char *json)
{
    json_text_key(out, key);
    buf_add_c(out, json ? json : "null");
}

void json_text_str(struct buf *out, const char *key, const char *utf8)
{
    json_text_key(out, key);
    if (utf8)
        write_string(utf8, strlen(utf8), out);
    else
        buf_add(out, "null", 4);
}

void json_text_int(struct buf *out, const char *key, int64_t value)
{
    json_text_key(out, key);
    write_int(value, out);
}

void json_text_real(struct buf *out, const char *key, double value)
{
    json_text_key(out, key);
    if (value == 0 && !signbit(value)) { /* most are */
        buf_add(out, "0.0", 3);
        return;
    }
    AUTO_JSON j = json_real(value);
    json_write(j, out);
}

void json_text_bool(struct buf *out, const char *key, bool value)
{
    json_text_raw(out, key, value ? "true" : "false");
}

void json_text_time(struct buf *out, const char *key, int64_t wall_ms)
{
    char text[CLOCK_TEXT_MAX];
    json_text_str(out, key, wall_ms < 0 ? NULL : clock_format(wall_ms, text));
}
