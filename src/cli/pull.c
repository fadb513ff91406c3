/* pi-managed pull: the working directory of a session into a folder here. Everything is downloaded
   and looked at before anything is written. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/place.h"
#include "cli/resource.h"
#include "cli/text.h"
#include "images/stream.h"

#define TAR_BYTES_MAX ((uint64_t)20 << 30) /* the service gives 16 GiB and headers */
#define PROGRESS_BYTES ((uint64_t)4 << 20)
#define REMARK_BYTES (160u << 10) /* at the end of the archive */
#define BLOCK 512

static const struct option options[] = {
    REMOTE_OPTIONS,
    {"to", "DIR", ".", "the folder to write into; made if it is not there"},
    {"path", "FOLDER", "/workspace", "which folder of the sandbox"},
    {"changes", NULL, NULL, "only what was added or changed since the image"},
    {"force", NULL, NULL, "replace files that are there"},
    {"patch", NULL, NULL, "print the changes as a patch instead, for git apply"},
    {0},
};

struct pull {
    struct remote *r;
    int archive; /* a file without a name */
    uint64_t bytes, shown_at;
    err failed; /* of the download's callback */
    struct place place;
};

/* ---- downloading ---- */

static void show_progress(struct pull *p, bool done)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (done)
        fprintf(stderr, "\r\033[K");
    else
        fprintf(stderr, "\r%llu MiB …", (unsigned long long)(p->bytes >> 20));
}

static bool on_bytes(void *arg, struct str bytes)
{
    struct pull *p = arg;
    p->failed = fd_write_full(p->archive, bytes.p, bytes.n);
    p->bytes += bytes.n;
    if (p->bytes > TAR_BYTES_MAX)
        p->failed = fail(E_TOO_LARGE, "the service sends more than it may");
    if (p->bytes - p->shown_at >= PROGRESS_BYTES) {
        p->shown_at = p->bytes;
        show_progress(p, false);
    }
    return !p->failed;
}

static err open_archive(int *out)
{
    const char *folder = getenv("TMPDIR");
    AUTO_BUF name = {0};
    buf_printf(&name, "%s/pi-managed-pull-XXXXXX", folder && folder[0] ? folder : "/tmp");
    int fd = mkostemp(name.p, O_CLOEXEC);
    if (fd < 0)
        return fail_errno("make a temporary file %s", name.p);
    unlink(name.p);
    *out = fd;
    return 0;
}

static err download(struct pull *p)
{
    AUTO_BUF path = {0};
    TRY(open_archive(&p->archive));
    TRY(resource_path(p->r, "/workspace?path=", &path));
    remote_escape(&path, option_value(p->r->call, "path"));
    if (option_flag(p->r->call, "changes"))
        buf_add_c(&path, "&changes=true");
    struct http_stream s = {
        .path = path.p, .download = true, .on_bytes = on_bytes, .arg = p, .wake_fd = -1};
    err e = http_client_stream(p->r->http, &s);
    show_progress(p, true);
    if (e == E_CLOSED)
        return fail(e, "%.300s. Nothing was written", err_text());
    return e ? e : p->failed;
}

/* ---- placing ---- */

static err clean_path(const struct unpack_entry *entry, char out[PATH_MAX])
{
    TRY(unpack_clean_path(entry->path, PATH_MAX - 1, out));
    if (!S_ISREG(entry->mode) && !S_ISDIR(entry->mode) && !S_ISLNK(entry->mode))
        return fail(E_INVALID, "the archive holds something that is no file, folder or link");
    return entry->hard_link ? fail(E_INVALID, "the archive holds a hard link") : 0;
}

static err check_entry(void *arg, struct stream *s, const struct unpack_entry *entry)
{
    struct pull *p = arg;
    char path[PATH_MAX];
    (void)s;
    TRY(clean_path(entry, path));
    return path[0] ? place_check(&p->place, path, entry) : 0;
}

static err write_content(struct stream *s, int fd, int64_t size)
{
    for (;;) {
        const void *bytes;
        size_t n;
        int64_t offset;
        TRY(stream_content(s, &bytes, &n, &offset));
        if (bytes == NULL)
            return ftruncate(fd, size) < 0 ? fail_errno("write the file") : 0;
        if (lseek(fd, offset, SEEK_SET) < 0)
            return fail_errno("write the file");
        TRY(fd_write_full(fd, bytes, n));
    }
}

static void tell_left_out(const struct unpack_entry *entry)
{
    AUTO_BUF text = {0};
    text_add_line(&text, str_of(entry->path), 0);
    buf_add_c(&text, " -> ");
    text_add_line(&text, str_of(entry->target), 0);
    fprintf(stderr, "left out, a link that points elsewhere: %s\n", text.p);
}

static err place_entry(void *arg, struct stream *s, const struct unpack_entry *entry)
{
    struct pull *p = arg;
    char path[PATH_MAX];
    AUTO_FD fd = -1;
    bool left = false;
    TRY(clean_path(entry, path));
    if (path[0] == 0)
        return 0;
    TRY(place_begin(&p->place, path, entry, &fd, &left));
    if (left)
        tell_left_out(entry);
    if (fd < 0)
        return 0;
    TRY(write_content(s, fd, entry->size));
    return place_end(&p->place, path, entry, &fd);
}

static err read_archive(struct pull *p, stream_fn fn)
{
    struct stream_sums sums;
    if (lseek(p->archive, 0, SEEK_SET) < 0)
        return fail_errno("read the archive again");
    return stream_read(p->archive, TAR_BYTES_MAX, fn, p, &sums);
}

static err open_folder(const char *path, int *out)
{
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return fail_errno("make %s", path);
    *out = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *out < 0 ? fail_errno("open %s", path) : 0;
}

/* ---- what the service left out ---- */

/* The comment before the end of the archive (sandbox/tar.h), if there is one. */
static struct str find_remarks(struct str tail)
{
    const size_t end = 2 * (size_t)BLOCK;
    for (size_t at = 0; at + BLOCK + end <= tail.n; at += BLOCK) {
        const char *h = tail.p + at;
        if (memcmp(h + 257, "ustar", 6) != 0 || h[156] != 'g')
            continue;
        size_t n = strtoul(h + 124, NULL, 8), padded = (n + BLOCK - 1) / BLOCK * BLOCK;
        if (n < REMARK_BYTES && at + BLOCK + padded + end == tail.n)
            return (struct str){h + BLOCK, n};
    }
    return (struct str){0};
}

static void tell_remarks(const struct pull *p)
{
    AUTO_BUF tail = {0};
    size_t n = p->bytes < REMARK_BYTES ? (size_t)p->bytes : REMARK_BYTES;
    n -= n % BLOCK;
    buf_reserve(&tail, n);
    ssize_t got = pread(p->archive, tail.p, n, (off_t)(p->bytes - n));
    tail.n = got > 0 ? (size_t)got : 0;
    struct str remarks = find_remarks(buf_str(&tail)), line;
    const char *value = remarks.n ? memchr(remarks.p, '=', remarks.n) : NULL;
    if (value == NULL)
        return;
    struct str rest = {value + 1, remarks.n - (size_t)(value + 1 - remarks.p)};
    while (rest.n > 0 && str_split(&rest, '\n', &line)) {
        AUTO_BUF safe = {0};
        text_add_line(&safe, line, 0);
        if (safe.n)
            fprintf(stderr, "%s\n", safe.p);
    }
}

/* ---- the command ---- */

static err write_all(struct pull *p)
{
    AUTO_FD folder = -1;
    const char *to = option_value(p->r->call, "to");
    TRY(open_folder(to, &folder));
    p->place = (struct place){.folder = folder, .replace = option_flag(p->r->call, "force")};
    err e = read_archive(p, check_entry);
    if (e == E_CONFLICT)
        return fail(e,
                    "%.300s. Nothing was written; --force replaces files, --to names another "
                    "folder",
                    err_text());
    TRY(e);
    TRY(read_archive(p, place_entry));
    tell_remarks(p);
    unsigned long long files = p->place.files, links = p->place.links;
    printf("%s: %llu file%s, %llu link%s\n", to, files, files == 1 ? "" : "s", links,
           links == 1 ? "" : "s");
    return 0;
}

static err print_patch(struct remote *r)
{
    AUTO_BUF path = {0}, patch = {0};
    TRY(resource_path(r, "/diff?format=patch&path=", &path));
    remote_escape(&path, option_value(r->call, "path"));
    TRY(http_client_get(r->http, path.p, &patch));
    return fd_write_full(STDOUT_FILENO, patch.p, patch.n);
}

static err pull(struct remote *r)
{
    struct pull p = {.r = r, .archive = -1};
    if (option_flag(r->call, "patch"))
        return print_patch(r);
    err e = download(&p);
    if (!e)
        e = write_all(&p);
    fd_close(&p.archive);
    return e;
}

static int run(const struct invocation *call)
{
    return remote_run(call, pull);
}

const struct command pull_command = {
    .name = "pull",
    .arguments = "SESSION",
    .summary = "Copies a session's working directory into a folder here.",
    .details = "Nothing is written before all of it is here; nothing that is there is replaced\n"
               "without --force; links that point out of the folder are left out.",
    .options = options,
    .run = run,
    .resource = &session_resource,
};
