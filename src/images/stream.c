/* Two readers of libarchive, one behind the other: the first undoes the compression, the second
   reads the tar. Between them and before them every byte passes through a sha256. */
#include "images/stream.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"

#define PIECE (64 * 1024)
#define HEADER_ROOM 4096 /* of an entry: headers, extended headers, padding */

struct stream {
    int fd;                     /* borrowed */
    struct archive *file, *tar; /* file: undoes the compression */
    crypto_hash_sha256_state file_sum, tar_sum;
    uint64_t file_bytes, tar_bytes, max_tar_bytes;
    bool failed;
    struct err_slot why; /* when `failed`: what the callbacks cannot return */
    char in[PIECE], plain[PIECE];
};

uint64_t stream_max_bytes(const struct image_limits *limits)
{
    const uint64_t most = UINT64_MAX / 4;
    if (limits->entries > most / HEADER_ROOM || limits->bytes > most)
        return most;
    return limits->bytes + (limits->entries + 16) * HEADER_ROOM;
}

static ssize_t give_up(struct stream *s, struct archive *a)
{
    if (!s->failed)
        err_save(&s->why);
    s->failed = true;
    archive_set_error(a, EIO, "%s", "stopped");
    return -1;
}

static ssize_t read_file(struct archive *a, void *arg, const void **out)
{
    struct stream *s = arg;
    ssize_t n;
    do {
        n = read(s->fd, s->in, sizeof s->in);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        fail_errno("read the archive");
        return give_up(s, a);
    }
    crypto_hash_sha256_update(&s->file_sum, (const unsigned char *)s->in, (size_t)n);
    s->file_bytes += (uint64_t)n;
    *out = s->in;
    return n;
}

static err bad_archive(struct stream *s, struct archive *a, const char *what)
{
    if (s->failed)
        return err_restore(&s->why);
    const char *text = archive_error_string(a);
    return fail(E_INVALID, "%s: %s", what, text ? text : "it is damaged");
}

static ssize_t read_plain(struct archive *a, void *arg, const void **out)
{
    struct stream *s = arg;
    ssize_t n = archive_read_data(s->file, s->plain, sizeof s->plain);
    if (n < 0) {
        bad_archive(s, s->file, "the archive cannot be decompressed");
        return give_up(s, a);
    }
    if ((uint64_t)n > s->max_tar_bytes - s->tar_bytes) {
        fail(E_TOO_LARGE, "the archive unpacks to more than %llu bytes (--max-mib, --max-entries)",
             (unsigned long long)s->max_tar_bytes);
        return give_up(s, a);
    }
    crypto_hash_sha256_update(&s->tar_sum, (const unsigned char *)s->plain, (size_t)n);
    s->tar_bytes += (uint64_t)n;
    *out = s->plain;
    return n;
}

/* What libarchive was built without it would leave to a program: then it is not supported. */
static void support(struct archive *a, int (*filter)(struct archive *))
{
    struct archive *trial = archive_read_new();
    bool built_in = trial && filter(trial) == ARCHIVE_OK;
    archive_read_free(trial);
    if (built_in)
        filter(a);
}

static err open_file(struct stream *s)
{
    struct archive_entry *entry;
    support(s->file, archive_read_support_filter_gzip);
    support(s->file, archive_read_support_filter_zstd);
    support(s->file, archive_read_support_filter_xz);
    archive_read_support_format_raw(s->file);
    archive_read_support_format_empty(s->file);
    if (archive_read_open2(s->file, s, NULL, read_file, NULL, NULL) != ARCHIVE_OK)
        return bad_archive(s, s->file, "the archive cannot be read");
    int r = archive_read_next_header(s->file, &entry);
    if (r == ARCHIVE_EOF)
        return fail(E_INVALID, "the archive is empty");
    return r < ARCHIVE_WARN ? bad_archive(s, s->file, "the archive cannot be read") : 0;
}

static err open_tar(struct stream *s)
{
    archive_read_support_format_tar(s->tar);
    if (archive_read_open2(s->tar, s, NULL, read_plain, NULL, NULL) != ARCHIVE_OK)
        return bad_archive(s, s->tar, "it is no tar archive");
    return 0;
}

err stream_content(struct stream *s, const void **out_p, size_t *out_n, int64_t *out_offset)
{
    la_int64_t offset = 0;
    int r = archive_read_data_block(s->tar, out_p, out_n, &offset);
    *out_offset = offset;
    if (r == ARCHIVE_EOF)
        *out_p = NULL;
    return r < ARCHIVE_WARN && r != ARCHIVE_EOF ? bad_archive(s, s->tar, "its content is damaged")
                                                : 0;
}

err stream_unpack(struct stream *s, struct unpack *u, const struct unpack_entry *entry)
{
    AUTO_FD fd = -1;
    TRY(unpack_entry(u, entry, &fd));
    while (fd >= 0) {
        const void *p;
        size_t n;
        int64_t offset;
        TRY(stream_content(s, &p, &n, &offset));
        if (p)
            TRY(unpack_write(u, fd, p, n, offset));
        else
            TRY(unpack_end_file(u, entry, &fd));
    }
    return 0;
}

static struct unpack_entry describe(struct archive_entry *from)
{
    const char *hard = archive_entry_hardlink(from);
    return (struct unpack_entry){
        .path = archive_entry_pathname(from),
        .mode = archive_entry_mode(from),
        .uid = archive_entry_uid(from),
        .gid = archive_entry_gid(from),
        .mtime = {.tv_sec = archive_entry_mtime(from), .tv_nsec = archive_entry_mtime_nsec(from)},
        .target = hard ? hard : archive_entry_symlink(from),
        .hard_link = hard != NULL,
        .size = archive_entry_size(from),
    };
}

static err take_entry(struct stream *s, struct archive_entry *from, stream_fn fn, void *arg)
{
    const struct unpack_entry entry = describe(from);
    char shown[IMAGE_SHOWN_MAX];
    if (entry.path == NULL)
        return fail(E_INVALID, "an entry has a name that cannot be read");
    err e = fn(arg, s, &entry);
    return e ? fail(e, "the entry \"%s\": %s", image_shown(entry.path, shown), err_text()) : 0;
}

static err read_entries(struct stream *s, stream_fn fn, void *arg)
{
    for (;;) {
        struct archive_entry *entry;
        int r = archive_read_next_header(s->tar, &entry);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r == ARCHIVE_RETRY)
            continue;
        if (r < ARCHIVE_WARN)
            return bad_archive(s, s->tar, "it is no tar archive or a damaged one");
        TRY(take_entry(s, entry, fn, arg));
    }
}

/* What stands behind the end of the tar belongs to both sums; what stands behind the compressed
   stream to the file's. */
static err read_rest(struct stream *s)
{
    const void *ignored;
    ssize_t n;
    do {
        n = read_plain(s->tar, s, &ignored);
    } while (n > 0);
    while (n == 0 && (n = read_file(s->file, s, &ignored)) > 0)
        n = 0;
    return n < 0 ? err_restore(&s->why) : 0;
}

static void write_sum(crypto_hash_sha256_state *state, char out[IMAGE_DIGEST_MAX + 1])
{
    unsigned char sum[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(state, sum);
    sodium_bin2hex(out, IMAGE_DIGEST_MAX + 1, sum, sizeof sum);
}

static err read_all(struct stream *s, stream_fn fn, void *arg)
{
    TRY(open_file(s));
    TRY(open_tar(s));
    TRY(read_entries(s, fn, arg));
    return read_rest(s);
}

err stream_read(int fd, uint64_t max_tar_bytes, stream_fn fn, void *arg, struct stream_sums *out)
{
    struct stream *s = mem_alloc(sizeof *s);
    s->fd = fd;
    s->max_tar_bytes = max_tar_bytes;
    crypto_hash_sha256_init(&s->file_sum);
    crypto_hash_sha256_init(&s->tar_sum);
    s->file = archive_read_new();
    s->tar = archive_read_new();
    err e = s->file && s->tar ? read_all(s, fn, arg) : fail(E_INTERNAL, "out of memory");
    archive_read_free(s->tar);
    archive_read_free(s->file);
    if (!e) {
        out->file_bytes = s->file_bytes;
        write_sum(&s->file_sum, out->file);
        write_sum(&s->tar_sum, out->tar);
    }
    mem_free(s);
    return e;
}
