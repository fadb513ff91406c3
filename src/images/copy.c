#include "images/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "images/unpack.h"

#define DEPTH_MAX 200 /* a descriptor each */
#define PIECE (128 * 1024)

struct copying {
    struct unpack *u;
    crypto_hash_sha256_state sum;
    struct stat top, store;
    copy_tick tick;
    void *arg;
    char path[PATH_MAX]; /* of the entry at hand, from the top */
    size_t path_n;
    char piece[PIECE];
};

static void add_to_sum(struct copying *c, const struct stat *st, const char *target)
{
    AUTO_BUF line = {0};
    buf_printf(&line, "%o %u %u %lld %lld.%09ld %s", st->st_mode, st->st_uid, st->st_gid,
               S_ISREG(st->st_mode) ? (long long)st->st_size : 0LL, (long long)st->st_mtim.tv_sec,
               st->st_mtim.tv_nsec, c->path);
    buf_add(&line, "", 1);
    buf_add_c(&line, target);
    buf_add(&line, "", 1);
    crypto_hash_sha256_update(&c->sum, (const unsigned char *)line.p, line.n);
}

static err copy_content(struct copying *c, int in, int out, int64_t size)
{
    int64_t at = 0;
    for (;;) {
        ssize_t n = read(in, c->piece, sizeof c->piece);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno("read it");
        if (n == 0)
            break;
        crypto_hash_sha256_update(&c->sum, (const unsigned char *)c->piece, (size_t)n);
        TRY(unpack_write(c->u, out, c->piece, (size_t)n, at));
        at += n;
    }
    return at == size ? 0 : fail(E_CONFLICT, "it changed while it was read");
}

static err copy_file(struct copying *c, int folder, const char *name, const struct stat *st,
                     struct unpack_entry *e)
{
    AUTO_FD in = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    AUTO_FD out = -1;
    struct stat now;
    if (in < 0 || fstat(in, &now) < 0)
        return fail_errno("open it");
    if (now.st_ino != st->st_ino || now.st_dev != st->st_dev)
        return fail(E_CONFLICT, "it changed while it was read");
    TRY(unpack_entry(c->u, e, &out));
    TRY(copy_content(c, in, out, e->size));
    return unpack_end_file(c->u, e, &out);
}

static err copy_link(struct copying *c, int folder, const char *name, const struct stat *st,
                     struct unpack_entry *e)
{
    char target[PATH_MAX];
    int none;
    ssize_t n = readlinkat(folder, name, target, sizeof target - 1);
    if (n < 0)
        return fail_errno("read the link");
    target[n] = 0;
    add_to_sum(c, st, target);
    e->target = target;
    return unpack_entry(c->u, e, &none);
}

static err copy_tree(struct copying *c, int folder, int depth);

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static err copy_sub(struct copying *c, int folder, const char *name, const struct stat *st,
                    const struct unpack_entry *e, int depth)
{
    int none;
    if (same(st, &c->store))
        return fail(E_INVALID, "the folder holds the image store itself");
    TRY(unpack_entry(c->u, e, &none));
    if (st->st_dev != c->top.st_dev)
        return 0;
    if (depth >= DEPTH_MAX)
        return fail(E_TOO_LARGE, "it is more than %d folders deep", DEPTH_MAX);
    AUTO_FD sub = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0)
        return fail_errno("open it");
    return copy_tree(c, sub, depth + 1);
}

static err copy_kind(struct copying *c, int folder, const char *name, const struct stat *st,
                     int depth)
{
    int none;
    struct unpack_entry e = {.path = c->path,
                             .mode = st->st_mode,
                             .uid = st->st_uid,
                             .gid = st->st_gid,
                             .mtime = st->st_mtim,
                             .size = st->st_size};
    if (S_ISLNK(st->st_mode))
        return copy_link(c, folder, name, st, &e);
    if (S_ISDIR(st->st_mode) || S_ISREG(st->st_mode) || S_ISFIFO(st->st_mode))
        add_to_sum(c, st, "");
    if (S_ISREG(st->st_mode))
        return copy_file(c, folder, name, st, &e);
    if (S_ISDIR(st->st_mode))
        return copy_sub(c, folder, name, st, &e, depth);
    return unpack_entry(c->u, &e, &none);
}

static err copy_entry(struct copying *c, int folder, const char *name, int depth)
{
    struct stat st;
    char shown[IMAGE_SHOWN_MAX];
    size_t before = c->path_n, n = strlen(name);
    if (before + n + 2 > sizeof c->path)
        return fail(E_TOO_LARGE, "a name in the folder has more than %d bytes", PATH_MAX - 1);
    c->path_n += (size_t)snprintf(c->path + before, sizeof c->path - before, "%s%s",
                                  before ? "/" : "", name);
    err e = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0
                ? fail_errno("look at it")
                : copy_kind(c, folder, name, &st, depth);
    /* Once, where it happened: callers above have a path that is cut. */
    if (e && c->path_n != SIZE_MAX) {
        e = fail(e, "\"%s\": %s", image_shown(c->path, shown), err_text());
        c->path_n = SIZE_MAX;
    }
    if (e)
        return e;
    c->path_n = before;
    c->path[before] = 0;
    return c->tick(c->arg);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *d)
{
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

static err copy_tree(struct copying *c, int folder, int depth)
{
    struct dirent **names;
    int n = scandirat(folder, ".", &names, no_dots, by_name);
    if (n < 0)
        return fail_errno("read it");
    err e = 0;
    for (int i = 0; i < n; i++) {
        if (!e)
            e = copy_entry(c, folder, names[i]->d_name, depth);
        free(names[i]);
    }
    free(names);
    return e;
}

static err copy_top(struct copying *c, const char *path, int store)
{
    int none;
    AUTO_FD top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || fstat(top, &c->top) < 0 || fstat(store, &c->store) < 0)
        return fail_errno("open the folder %s", path);
    if (same(&c->top, &c->store))
        return fail(E_INVALID, "the folder is the image store itself");
    const struct unpack_entry e = {.path = ".",
                                   .mode = c->top.st_mode,
                                   .uid = c->top.st_uid,
                                   .gid = c->top.st_gid,
                                   .mtime = c->top.st_mtim};
    add_to_sum(c, &c->top, "");
    TRY(unpack_entry(c->u, &e, &none));
    return copy_tree(c, top, 1);
}

err copy_folder(const char *path, int store, struct unpack *u, copy_tick tick, void *arg,
                char out_digest[IMAGE_DIGEST_MAX + 1])
{
    struct copying *c = mem_alloc(sizeof *c);
    unsigned char sum[crypto_hash_sha256_BYTES];
    c->u = u;
    c->tick = tick;
    c->arg = arg;
    crypto_hash_sha256_init(&c->sum);
    err e = copy_top(c, path, store);
    if (!e) {
        crypto_hash_sha256_final(&c->sum, sum);
        sodium_bin2hex(out_digest, IMAGE_DIGEST_MAX + 1, sum, sizeof sum);
    }
    mem_free(c);
    return e;
}
