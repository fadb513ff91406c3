/* read: a file's lines with Pi's notices, or an image. Only what can be shown is kept in memory,
   however large the file is. */
#include "base/fd.h"
#include "hands/calls.h"
#include "hands/file_io.h"
#include "hands/image.h"
#include "hands/paths.h"
#include "hands/text.h"
#include "hands/tools.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#define IMAGE_MAX_BYTES (20u << 20) /* R52 */
#define WHOLE_MAX_BYTES (64u << 20) /* for the odd ranges that need the file at once */
#define STEP_BYTES 65536

/* The lines asked for, as Pi's reader selects them. */
struct selection {
    uint64_t start, end;   /* lines, from 0; end may be UINT64_MAX */
    uint64_t line;         /* the one being read */
    struct buf text;       /* selected lines that truncate_head may look at, LF between them */
    uint64_t stored;       /* how many of them are complete */
    uint64_t stored_bytes; /* and how long they are */
    bool full;             /* enough stored: the rest is counted only */
    uint64_t lines, bytes; /* selected in all */
    uint64_t first_line_bytes, line_bytes;
    bool line_has_text, last_line_empty;
};

/* The outcome both ways of reading share. */
struct lines {
    struct buf text; /* holds what t.content points to */
    struct text_truncation t;
    uint64_t total, first_line_bytes;
};

static bool selected(const struct selection *s)
{
    return s->line >= s->start && s->line < s->end;
}

static void add_to_line(struct selection *s, struct str piece)
{
    if (piece.n == 0)
        return;
    s->line_has_text = true;
    s->bytes += piece.n;
    if (s->full)
        return;
    if (s->line_bytes == 0 && s->stored > 0)
        buf_add_char(&s->text, '\n');
    /* A line over the cap is never shown whole: keep enough of it to know that. */
    if (s->line_bytes <= TEXT_MAX_BYTES)
        buf_add_str(&s->text, piece);
    s->line_bytes += piece.n;
}

static void finish_line(struct selection *s, bool more_follow)
{
    if (!s->full) {
        if (s->lines == 0)
            s->first_line_bytes = s->line_bytes;
        if (s->line_bytes == 0 && s->stored > 0)
            buf_add_char(&s->text, '\n');
        /* One line beyond the caps is stored, so that truncation is decided as for the whole text.
         */
        s->full = s->stored > TEXT_MAX_LINES || s->stored_bytes > TEXT_MAX_BYTES;
        s->stored_bytes = s->text.n;
        s->stored++;
    }
    s->lines++;
    s->last_line_empty = !s->line_has_text;
    s->bytes += more_follow ? 1 : 0; /* its LF lies between two selected lines */
    s->line_bytes = 0;
    s->line_has_text = false;
}

static void select_text(struct selection *s, struct str text)
{
    const char *p = text.p, *end = text.p + text.n;
    for (;;) {
        const char *lf = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        const char *stop = lf ? lf : end;
        if (selected(s))
            add_to_line(s, (struct str){p, (size_t)(stop - p)});
        if (lf == NULL)
            return;
        if (selected(s))
            finish_line(s, s->line + 1 < s->end);
        s->line++;
        p = lf + 1;
    }
}

static void select_end(struct selection *s, struct lines *out)
{
    if (selected(s))
        finish_line(s, false);
    out->text = s->text;
    out->t = text_truncate_head(buf_str(&out->text));
    out->t.total_lines = s->bytes == 0 ? 0 : s->lines - (s->last_line_empty ? 1 : 0);
    out->t.total_bytes = s->bytes;
    out->total = s->line + 1;
    out->first_line_bytes = s->first_line_bytes;
}

static bool read_streamed(const struct tool_run *run, const char *path, uint64_t start,
                          uint64_t limit, struct lines *out, struct tool_result *result)
{
    off_t left;
    AUTO_FD fd = file_open(path, &left);
    if (fd < 0) {
        tool_errno(result, errno, "open", path);
        return false;
    }
    struct selection s = {.start = start, .end = limit == UINT64_MAX ? UINT64_MAX : start + limit};
    struct text_decoder decoder = {0};
    AUTO_BUF text = {0};
    char bytes[STEP_BYTES];
    size_t n = 0;
    enum file_read got;
    while ((got = file_read_some(fd, run, &left, bytes, sizeof bytes, &n)) == FILE_READ_DATA) {
        buf_clear(&text);
        text_decode(&decoder, (struct str){bytes, n}, &text);
        select_text(&s, buf_str(&text));
    }
    buf_clear(&text);
    text_decode_end(&decoder, &text);
    select_text(&s, buf_str(&text));
    select_end(&s, out);
    if (got == FILE_READ_ERROR)
        tool_errno(result, errno, "read", NULL);
    return got == FILE_READ_END || (got == FILE_READ_CANCELLED && !tool_aborted(run, result));
}

static uint64_t count_lf(struct str text)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += text.p[i] == '\n';
    return n;
}

/* Array.prototype.slice's reading of an index. */
static uint64_t slice_index(double index, uint64_t n)
{
    double i = trunc(index);
    if (i < 0)
        i = i + (double)n < 0 ? 0 : i + (double)n;
    return i > (double)n ? n : (uint64_t)i;
}

/* Fractional and negative ranges mean what JavaScript's slice makes of them. */
static bool read_odd(const struct tool_run *run, const char *path, double start, double limit,
                     struct lines *out, struct tool_result *result)
{
    AUTO_BUF raw = {0}, text = {0};
    if (!file_read_whole(path, run, WHOLE_MAX_BYTES, &raw, result))
        return false;
    text_decode_all(buf_str(&raw), &text);
    uint64_t total = count_lf(buf_str(&text)) + 1;
    double end = isnan(limit) ? (double)total : fmin(start + limit, (double)total);
    struct selection s = {.start = slice_index(start, total), .end = slice_index(end, total)};
    select_text(&s, buf_str(&text));
    select_end(&s, out);
    return true;
}

struct range {
    double offset, limit; /* NaN: not given */
};

static double number_or_nan(const json_t *v)
{
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void add_continuation(const struct range *r, double first, const struct lines *l,
                             struct buf *text)
{
    char a[TEXT_NUMBER_MAX], b[TEXT_NUMBER_MAX], c[TEXT_NUMBER_MAX], size[TEXT_SIZE_MAX];
    unsigned long long total = l->total;
    if (l->t.truncated) {
        double last = first + (double)l->t.output_lines - 1;
        buf_printf(text, "\n\n[Showing lines %s-%s of %llu", text_number(first, a),
                   text_number(last, b), total);
        if (l->t.by == TEXT_CUT_BYTES)
            buf_printf(text, " (%s limit)", text_size(TEXT_MAX_BYTES, size));
        buf_printf(text, ". Use offset=%s to continue.]", text_number(last + 1, c));
        return;
    }
    if (isnan(r->limit))
        return;
    double start = first - 1;
    double stop = start + (fmin(start + r->limit, (double)total) - start);
    if (stop < (double)total)
        buf_printf(text, "\n\n[%s more lines in file. Use offset=%s to continue.]",
                   text_number((double)total - stop, a), text_number(stop + 1, b));
}

static void report(const struct range *r, double start, struct str given, const struct lines *l,
                   struct tool_result *out)
{
    char a[TEXT_NUMBER_MAX], size[TEXT_SIZE_MAX], cap[TEXT_SIZE_MAX];
    if (start >= (double)l->total) {
        tool_error(out, "Offset %s is beyond end of file (%llu lines total)",
                   text_number(r->offset, a), (unsigned long long)l->total);
        return;
    }
    AUTO_BUF text = {0};
    if (l->t.first_line_exceeds) {
        text_number(start + 1, a);
        buf_printf(&text, "[Line %s is %s, exceeds %s limit. Use bash: sed -n '%sp' ", a,
                   text_size(l->first_line_bytes, size), text_size(TEXT_MAX_BYTES, cap), a);
        buf_add_str(&text, given);
        buf_printf(&text, " | head -c %zu]", TEXT_MAX_BYTES);
    } else {
        buf_add_str(&text, l->t.content);
        add_continuation(r, start + 1, l, &text);
    }
    if (l->t.truncated) {
        out->details = json_object();
        json_object_set_new(out->details, "truncation", text_truncation_json(&l->t));
    }
    tool_text(out, buf_str(&text));
}

static void read_text(const struct tool_run *run, const char *path, struct str given,
                      struct tool_result *out)
{
    struct range r = {number_or_nan(json_object_get(run->input, "offset")),
                      number_or_nan(json_object_get(run->input, "limit"))};
    double start = !isnan(r.offset) && r.offset > 1 ? r.offset - 1 : 0;
    bool plain = start == trunc(start) && start < 1e15 &&
                 (isnan(r.offset) || r.offset == trunc(r.offset)) &&
                 (isnan(r.limit) || (r.limit >= 0 && r.limit == trunc(r.limit)));
    struct lines l = {0};
    uint64_t limit = isnan(r.limit) || r.limit > 1e15 ? UINT64_MAX : (uint64_t)r.limit;
    bool ok = plain ? read_streamed(run, path, (uint64_t)start, limit, &l, out)
                    : read_odd(run, path, start, r.limit, &l, out);
    if (ok)
        report(&r, start, given, &l, out);
    buf_done(&l.text);
}

/* Looks at the first bytes for an image. Not of pipes and devices: there they would be taken away.
 */
static bool sniff(const char *path, const char **out_mime, struct tool_result *out)
{
    *out_mime = NULL;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return true;
    off_t size;
    AUTO_FD fd = file_open(path, &size);
    if (fd < 0) {
        tool_errno(out, errno, "open", path);
        return false;
    }
    char head[IMAGE_SNIFF_BYTES];
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0 && errno == EISDIR) {
        tool_errno(out, EISDIR, "read", NULL);
        return false;
    }
    if (n > 0)
        *out_mime = image_mime_type((struct str){head, (size_t)n});
    return true;
}

static void omit_image(const char *mime, const char *why, struct tool_result *out)
{
    AUTO_BUF text = {0};
    buf_printf(&text, "Read image file [%s]\n[Image omitted: %s]", mime, why);
    tool_text(out, buf_str(&text));
}

static void read_image(const struct tool_run *run, const char *path, const char *mime,
                       struct tool_result *out)
{
    if (strcmp(mime, "image/bmp") == 0) {
        omit_image(mime, "could not be converted to a supported inline image format.", out);
        return;
    }
    struct stat st;
    if (stat(path, &st) == 0 && st.st_size > (off_t)IMAGE_MAX_BYTES) {
        omit_image(mime, "could not be resized below the inline image size limit.", out);
        return;
    }
    AUTO_BUF bytes = {0}, data = {0}, text = {0};
    if (!file_read_whole(path, run, IMAGE_MAX_BYTES, &bytes, out))
        return;
    image_base64(buf_str(&bytes), &data);
    buf_printf(&text, "Read image file [%s]", mime);
    tool_text(out, buf_str(&text));
    json_t *block = json_object();
    json_object_set_new(block, "type", json_string("image"));
    json_set_str(block, "data", buf_str(&data));
    json_object_set_new(block, "mimeType", json_string(mime));
    json_array_append_new(out->content, block);
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    struct str given;
    AUTO_BUF path = {0};
    if (!tool_path(run, true, &given, &path, out))
        return;
    if (access(path.p, R_OK) != 0) {
        tool_errno(out, errno, "access", path.p);
        return;
    }
    const char *mime;
    if (tool_aborted(run, out) || !sniff(path.p, &mime, out))
        return;
    if (mime)
        read_image(run, path.p, mime, out);
    else
        read_text(run, path.p, given, out);
}

const struct tool tool_read = {.name = "read", .run = run};
