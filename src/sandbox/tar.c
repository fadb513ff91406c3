#include "sandbox/tar.h"

#include <stdio.h>

#define BLOCK 512
#define NAME_MAX_PLAIN 100
#define SIZE_MAX_PLAIN ((uint64_t)8 << 30)
#define TIME_MAX_PLAIN ((int64_t)8 << 30)

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, target[100],
        magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header is one block");

/* Digits with leading zeros fill the field but for its last byte, a NUL. */
static void put_octal(char *field, size_t n, uint64_t value)
{
    for (size_t i = n - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

static void put_text(char *field, size_t n, struct str text)
{
    if (text.n > 0)
        memcpy(field, text.p, text.n < n ? text.n : n);
}

static void add_block(struct buf *out, struct header *h)
{
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    put_text(h->user, sizeof h->user, STR("root"));
    put_text(h->group, sizeof h->group, STR("root"));
    put_octal(h->uid, sizeof h->uid, 0);
    put_octal(h->gid, sizeof h->gid, 0);
    memset(h->checksum, ' ', sizeof h->checksum);
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof *h; i++)
        sum += ((const unsigned char *)h)[i];
    put_octal(h->checksum, 7, sum);
    buf_add(out, h, sizeof *h);
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void add_record(struct buf *records, const char *key, struct str value)
{
    size_t rest = strlen(key) + value.n + 3, n = rest;
    char digits[24];
    for (size_t before = 0; n != before;) {
        before = n;
        n = rest + (size_t)snprintf(digits, sizeof digits, "%zu", before);
    }
    buf_printf(records, "%zu %s=", n, key);
    buf_add_str(records, value);
    buf_add_char(records, '\n');
}

static void add_records(struct buf *out, char type, const struct buf *records)
{
    struct header h = {.type = type};
    put_text(h.name, sizeof h.name, STR("pax"));
    put_octal(h.mode, sizeof h.mode, 0644);
    put_octal(h.size, sizeof h.size, records->n);
    put_octal(h.mtime, sizeof h.mtime, 0);
    add_block(out, &h);
    buf_add_str(out, buf_str(records));
    tar_add_padding(out, records->n);
}

static bool fits(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] >= 0x80)
            return false;
    return name.n <= NAME_MAX_PLAIN;
}

/* What the plain header cannot say. */
static void add_extended(struct buf *out, struct str name, const struct copyout_node *node)
{
    AUTO_BUF records = {0};
    if (!str_is_utf8(name) || !str_is_utf8(node->target))
        add_record(&records, "hdrcharset", STR("BINARY"));
    if (!fits(name))
        add_record(&records, "path", name);
    if (!fits(node->target))
        add_record(&records, "linkpath", node->target);
    if (node->size >= SIZE_MAX_PLAIN) {
        char text[24];
        int n = snprintf(text, sizeof text, "%llu", (unsigned long long)node->size);
        add_record(&records, "size", (struct str){text, (size_t)n});
    }
    if (records.n > 0)
        add_records(out, 'x', &records);
}

void tar_add_header(struct buf *out, struct str path, const struct copyout_node *node)
{
    AUTO_BUF name = {0};
    buf_add_str(&name, path);
    if (node->type == COPYOUT_FOLDER)
        buf_add_char(&name, '/');
    add_extended(out, buf_str(&name), node);
    struct header h = {.type = node->type == COPYOUT_FOLDER ? '5'
                               : node->type == COPYOUT_LINK ? '2'
                                                            : '0'};
    int64_t seconds = node->mtime_ns / 1000000000;
    put_text(h.name, sizeof h.name, buf_str(&name));
    put_text(h.target, sizeof h.target, node->target);
    put_octal(h.mode, sizeof h.mode, node->mode);
    put_octal(h.size, sizeof h.size, node->size < SIZE_MAX_PLAIN ? node->size : 0);
    put_octal(h.mtime, sizeof h.mtime,
              seconds > 0 && seconds < TIME_MAX_PLAIN ? (uint64_t)seconds : 0);
    add_block(out, &h);
}

static void add_zeros(struct buf *out, size_t n)
{
    static const char zeros[BLOCK];
    for (size_t step; n > 0; n -= step) {
        step = n < sizeof zeros ? n : sizeof zeros;
        buf_add(out, zeros, step);
    }
}

void tar_add_padding(struct buf *out, uint64_t size)
{
    add_zeros(out, (BLOCK - size % BLOCK) % BLOCK);
}

void tar_add_comment(struct buf *out, struct str text)
{
    AUTO_BUF records = {0};
    add_record(&records, "comment", text);
    add_records(out, 'g', &records);
}

void tar_add_end(struct buf *out)
{
    add_zeros(out, 2 * (size_t)BLOCK);
}
