#include "hands/output.h"

#include "base/fd.h"
#include "base/mem.h"
#include "hands/frames.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_KEEP (2 * TEXT_MAX_BYTES)

void output_init(struct output *o)
{
    *o = (struct output){.file = -1};
}

void output_done(struct output *o)
{
    buf_done(&o->tail);
    buf_done(&o->raw);
    fd_close(&o->file);
    mem_free(o->path);
}

static uint64_t total_lines(const struct output *o)
{
    return o->complete_lines + (o->open_line ? 1 : 0);
}

static bool needs_file(const struct output *o)
{
    return o->raw_bytes > TEXT_MAX_BYTES || o->bytes > TEXT_MAX_BYTES ||
           total_lines(o) > TEXT_MAX_LINES;
}

static bool create_in(struct output *o, const char *folder)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return false;
    char path[256];
    snprintf(path, sizeof path, "%s/pi-bash-%016llx.log", folder, (unsigned long long)random);
    /* O_EXCL never follows a link that someone put there. */
    o->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (o->file < 0)
        return false;
    o->path = mem_strdup(path);
    return true;
}

static void file_add(struct output *o, struct str bytes)
{
    if (o->file < 0)
        return;
    uint64_t room = OUTPUT_FILE_MAX - o->file_bytes;
    size_t n = bytes.n < room ? bytes.n : (size_t)room;
    if (fd_write_full(o->file, bytes.p, n) != 0) {
        snprintf(o->trouble, sizeof o->trouble, "incomplete: %s", err_text());
        fd_close(&o->file);
        return;
    }
    o->file_bytes += n;
    if (n == bytes.n)
        return;
    static const char note[] = "\n[Output cut here: only the first 64.0MB are kept]\n";
    fd_write_full(o->file, note, sizeof note - 1); /* a failure costs the note only */
    snprintf(o->trouble, sizeof o->trouble, "only the first 64.0MB of it");
    fd_close(&o->file);
}

static void ensure_file(struct output *o)
{
    if (o->path || o->trouble[0])
        return;
    mkdir(SANDBOX_TOOL_OUTPUT, 0755); /* its parent is the sandbox's; without that, /tmp serves */
    if (!create_in(o, SANDBOX_TOOL_OUTPUT) && !create_in(o, "/tmp")) {
        snprintf(o->trouble, sizeof o->trouble, "not kept: %s", strerror(errno));
        buf_done(&o->raw);
        return;
    }
    file_add(o, buf_str(&o->raw));
    buf_done(&o->raw);
}

/* Decoded text at tail.p + from is new: counts it. */
static void count_new(struct output *o, size_t from)
{
    const char *p = o->tail.p + from, *end = o->tail.p + o->tail.n;
    o->bytes += (size_t)(end - p);
    while (p < end) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        if (lf == NULL) {
            o->open_line_bytes += (size_t)(end - p);
            o->open_line = true;
            return;
        }
        o->complete_lines++;
        o->open_line_bytes = 0;
        o->open_line = false;
        p = lf + 1;
    }
}

static void trim_tail(struct output *o)
{
    if (o->tail.n <= 2 * TAIL_KEEP)
        return;
    size_t start = o->tail.n - TAIL_KEEP;
    while (start < o->tail.n && ((unsigned char)o->tail.p[start] & 0xc0) == 0x80)
        start++;
    o->tail_cut_line = o->tail.p[start - 1] != '\n';
    buf_drop(&o->tail, start);
}

/* A TextDecoder drops a byte order mark at the very start. */
static void decoded(struct output *o, size_t from)
{
    if (!o->started && o->tail.n >= 3) {
        o->started = true;
        if (memcmp(o->tail.p, "\xef\xbb\xbf", 3) == 0)
            buf_drop(&o->tail, 3);
    }
    o->started |= o->tail.n > 0;
    count_new(o, from);
    trim_tail(o);
}

void output_add(struct output *o, struct str bytes)
{
    size_t before = o->tail.n;
    o->raw_bytes += bytes.n;
    text_decode(&o->decoder, bytes, &o->tail);
    decoded(o, before);
    bool in_file = o->path || o->trouble[0];
    if (!in_file)
        buf_add_str(&o->raw, bytes);
    else
        file_add(o, bytes);
    if (!in_file && needs_file(o))
        ensure_file(o);
}

void output_end(struct output *o)
{
    size_t before = o->tail.n;
    text_decode_end(&o->decoder, &o->tail);
    decoded(o, before);
    if (needs_file(o))
        ensure_file(o);
    fd_close(&o->file);
}

static struct str shown_text(const struct output *o)
{
    struct str text = buf_str(&o->tail);
    const char *lf = o->tail_cut_line && text.n ? memchr(text.p, '\n', text.n) : NULL;
    if (lf == NULL || lf + 1 == text.p + text.n)
        return text; /* the end of one over-long line is better than nothing */
    return (struct str){lf + 1, text.n - (size_t)(lf + 1 - text.p)};
}

struct text_truncation output_snapshot(struct output *o)
{
    struct text_truncation t = text_truncate_tail(shown_text(o));
    t.truncated = total_lines(o) > TEXT_MAX_LINES || o->bytes > TEXT_MAX_BYTES;
    if (!t.truncated)
        t.by = TEXT_CUT_NONE;
    else if (t.by == TEXT_CUT_NONE)
        t.by = o->bytes > TEXT_MAX_BYTES ? TEXT_CUT_BYTES : TEXT_CUT_LINES;
    t.total_lines = total_lines(o);
    t.total_bytes = o->bytes;
    return t;
}

void output_where(const struct output *o, struct buf *out)
{
    if (o->path && o->trouble[0])
        buf_printf(out, "%s (%s)", o->path, o->trouble);
    else
        buf_add_c(out, o->path ? o->path : o->trouble);
}
