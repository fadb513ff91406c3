#include "base/walk.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define OPEN_MAX_LEVELS                                                                            \
    200 /* folders above the one at hand that stay open; deeper ones are opened anew */

struct level {
    int fd; /* -1: closed for now */
    struct stat st;
    struct buf names; /* each with its NUL */
    size_t at;
};

struct walking {
    const struct walk *w;
    struct level *levels;
    size_t depth, cap; /* depth: of the folder at hand, 1 for the top */
};

static err read_names(int dir, struct buf *out)
{
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d) {
        fd_close(&again);
        return fail_errno("read a folder");
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            buf_add(out, e->d_name, strlen(e->d_name) + 1);
    }
    closedir(d);
    return 0;
}

static struct level *at_hand(struct walking *k)
{
    return &k->levels[k->depth - 1];
}

/* Takes fd. */
static err push(struct walking *k, int take_fd)
{
    struct level new = {.fd = take_fd};
    err e = fstat(take_fd, &new.st) < 0 ? fail_errno("look at a folder") : 0;
    if (!e)
        e = read_names(take_fd, &new.names);
    if (e) {
        buf_done(&new.names);
        fd_close(&take_fd);
        return e;
    }
    if (k->depth > OPEN_MAX_LEVELS)
        fd_close(&at_hand(k)->fd);
    if (k->depth == k->cap) {
        k->cap = k->cap ? k->cap * 2 : 16;
        k->levels = mem_realloc(k->levels, size_mul(k->cap, sizeof *k->levels));
    }
    k->levels[k->depth++] = new;
    return 0;
}

static void drop(struct walking *k)
{
    struct level *l = at_hand(k);
    fd_close(&l->fd);
    buf_done(&l->names);
    k->depth--;
}

static err open_again(struct walking *k, int below)
{
    struct level *l = at_hand(k);
    struct stat st;
    AUTO_FD fd = openat(below, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_errno("return to a folder");
    if (st.st_dev != l->st.st_dev || st.st_ino != l->st.st_ino)
        return fail(E_CONFLICT, "a deep folder was moved while it was read");
    l->fd = fd_take(&fd);
    return 0;
}

static err leave(struct walking *k)
{
    struct level *l = at_hand(k);
    if (k->w->leave && k->depth > 1)
        TRY(k->w->leave(k->w->arg, l->fd, &l->st));
    AUTO_FD below = fd_take(&l->fd);
    bool top = k->depth == 1;
    drop(k);
    return top || at_hand(k)->fd >= 0 ? 0 : open_again(k, below);
}

static err enter(struct walking *k, const char *name, const struct stat *st)
{
    int fd = openat(at_hand(k)->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0
                                                                     : fail_errno("open a folder");
    if (st->st_dev != k->levels[0].st.st_dev) {
        close(fd);
        return 0;
    }
    err e = k->w->enter ? k->w->enter(k->w->arg, fd, name) : 0;
    if (e) {
        close(fd);
        return e;
    }
    return push(k, fd);
}

/* The next entry of the folder at hand. */
static err step(struct walking *k)
{
    struct level *l = at_hand(k);
    const char *name = l->names.p + l->at;
    struct stat st;
    l->at += strlen(name) + 1;
    if (fstatat(l->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_errno("look at a file");
    TRY(k->w->entry(k->w->arg, l->fd, name, &st));
    return S_ISDIR(st.st_mode) ? enter(k, name, &st) : 0;
}

err walk_folder(int top, const struct walk *w)
{
    struct walking k = {.w = w};
    int fd = fcntl(top, F_DUPFD_CLOEXEC, 0);
    err e = fd < 0 ? fail_errno("open a folder") : push(&k, fd);
    while (!e && k.depth > 0)
        e = at_hand(&k)->at < at_hand(&k)->names.n ? step(&k) : leave(&k);
    while (k.depth > 0)
        drop(&k);
    mem_free(k.levels);
    return e;
}

/* Each name of a file counts for its share. */
static err add_size(void *arg, int dir, const char *name, const struct stat *st)
{
    (void)dir, (void)name;
    uint64_t bytes = (uint64_t)st->st_blocks * 512;
    *(uint64_t *)arg += S_ISDIR(st->st_mode) || st->st_nlink < 2 ? bytes : bytes / st->st_nlink;
    return 0;
}

err walk_measure(const char *path, uint64_t *out_bytes)
{
    AUTO_FD top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (top < 0 && errno == ENOENT) {
        *out_bytes = 0;
        return 0;
    }
    struct stat st;
    if (top < 0 || fstat(top, &st) < 0)
        return fail_errno("open %s", path);
    uint64_t sum = (uint64_t)st.st_blocks * 512;
    TRY(walk_folder(top, &(struct walk){.entry = add_size, .arg = &sum}));
    *out_bytes = sum;
    return 0;
}
