/* Objects as files: the key is the path below the root. Written beside (.tmp/), fsynced, renamed,
   and the folder fsynced, so a key shows the old object or the new one, whatever crashes. */
#include "objects/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"

#define FS_MAGIC 0x0b1ec7f5u
#define TMP_FOLDER ".tmp"
#define RENAME_TRIES 8
#define PATH_BYTES (OBJECT_KEY_MAX + 1)

struct fs {
    struct objects base;
    unsigned magic;
    int root;
};

struct fs_put {
    struct object_put base;
    struct fs *fs;
    int fd;
    char tmp[sizeof TMP_FOLDER + ID_MAX + 1], key[PATH_BYTES];
};

struct fs_get {
    struct object_get base;
    int fd;
    uint64_t at, end;
};

static struct fs *fs_of(struct objects *o)
{
    struct fs *fs = (struct fs *)o;
    CHECK(fs, FS_MAGIC);
    return fs;
}

static void close_folder(DIR **d)
{
    if (*d)
        closedir(*d);
}
#define AUTO_DIR __attribute__((cleanup(close_folder))) DIR *

/* NULL with errno. */
static DIR *open_folder(int root, const char *path)
{
    AUTO_FD fd = openat(root, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d)
        fd_take(&fd);
    return d;
}

static err clear_tmp(int root)
{
    if (mkdirat(root, TMP_FOLDER, 0700) < 0 && errno != EEXIST)
        return fail_errno("create " TMP_FOLDER " in the object store");
    AUTO_DIR d = open_folder(root, TMP_FOLDER);
    if (d == NULL)
        return fail_errno("open " TMP_FOLDER " in the object store");
    for (struct dirent *entry; (entry = readdir(d));) {
        if (entry->d_name[0] != '.' && unlinkat(dirfd(d), entry->d_name, 0) < 0)
            return fail_errno("remove a half-written object");
    }
    return 0;
}

static err fs_open(const char *rest, struct objects **out)
{
    AUTO_FD root = open(rest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return fail_errno("open the object store %s", rest);
    TRY(clear_tmp(root));
    struct fs *fs = mem_alloc(sizeof *fs);
    *fs = (struct fs){.base = {&objects_fs}, .magic = FS_MAGIC, .root = fd_take(&root)};
    *out = &fs->base;
    return 0;
}

static void fs_close(struct objects *o)
{
    struct fs *fs = fs_of(o);
    fd_close(&fs->root);
    fs->magic = 0;
    mem_free(fs);
}

/* ---- putting ---- */

static err fs_put_begin(struct objects *o, const char *key, struct object_put **out)
{
    struct fs_put *p = mem_alloc(sizeof *p);
    char id[ID_MAX];
    p->base.engine = &objects_fs;
    p->fs = fs_of(o);
    snprintf(p->tmp, sizeof p->tmp, TMP_FOLDER "/%s", id_new("put", 0, id));
    snprintf(p->key, sizeof p->key, "%s", key);
    p->fd = openat(p->fs->root, p->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (p->fd < 0) {
        err e = fail_errno("create a file in the object store");
        mem_free(p);
        return e;
    }
    *out = &p->base;
    return 0;
}

static err fs_put_write(struct object_put *base, struct str bytes)
{
    return fd_write_full(((struct fs_put *)base)->fd, bytes.p, bytes.n);
}

static void fs_put_abort(struct object_put *base)
{
    struct fs_put *p = (struct fs_put *)base;
    fd_close(&p->fd);
    unlinkat(p->fs->root, p->tmp, 0);
    mem_free(p);
}

/* Everything before the last '/'; "" when there is none. */
static void parent_of(const char *key, char out[PATH_BYTES])
{
    const char *slash = strrchr(key, '/');
    snprintf(out, PATH_BYTES, "%.*s", slash ? (int)(slash - key) : 0, key);
}

static err sync_folder(int root, const char *path)
{
    AUTO_FD fd = openat(root, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return fail_errno("sync a folder of the object store");
    return 0;
}

/* The folders that a key needs; the name of a new one is made durable, too. */
static err make_folders(int root, const char *key)
{
    char path[PATH_BYTES], parent[PATH_BYTES];
    snprintf(path, sizeof path, "%s", key);
    for (char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdirat(root, path, 0700) == 0) {
            parent_of(path, parent);
            TRY(sync_folder(root, parent));
        } else if (errno != EEXIST) {
            return fail_errno("create a folder in the object store");
        }
        *at = '/';
    }
    return 0;
}

/* Again when a delete takes the folder away between the two steps. */
static err rename_into_place(int root, const char *tmp, const char *key)
{
    err e = 0;
    for (int i = 0; i < RENAME_TRIES; i++) {
        e = make_folders(root, key);
        if (!e && renameat(root, tmp, root, key) == 0)
            return 0;
        if (!e)
            e = fail_errno("put %s into the object store", key);
    }
    return e;
}

static err publish(struct fs_put *p)
{
    char folder[PATH_BYTES];
    if (fsync(p->fd) < 0)
        return fail_errno("sync an object");
    TRY(rename_into_place(p->fs->root, p->tmp, p->key));
    parent_of(p->key, folder);
    return sync_folder(p->fs->root, folder);
}

static err fs_put_end(struct object_put *base)
{
    struct fs_put *p = (struct fs_put *)base;
    err e = publish(p);
    if (e) {
        fs_put_abort(base);
        return e;
    }
    fd_close(&p->fd);
    mem_free(p);
    return 0;
}

/* ---- getting ---- */

static err not_found(const char *key)
{
    return fail(E_NOT_FOUND, "the object store has no %s", key);
}

static err open_object(struct fs *fs, const char *key, int *out_fd, uint64_t *out_size)
{
    AUTO_FD fd = openat(fs->root, key, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? not_found(key)
                                                   : fail_errno("open the object %s", key);
    if (fstat(fd, &st) < 0)
        return fail_errno("stat the object %s", key);
    if (!S_ISREG(st.st_mode))
        return not_found(key);
    *out_size = (uint64_t)st.st_size;
    *out_fd = fd_take(&fd);
    return 0;
}

static err fs_get(struct objects *o, const char *key, uint64_t from, uint64_t length,
                  struct object_get **out, uint64_t *out_size)
{
    int fd;
    uint64_t size;
    TRY(open_object(fs_of(o), key, &fd, &size));
    struct fs_get *g = mem_alloc(sizeof *g);
    uint64_t left = from < size ? size - from : 0;
    *g = (struct fs_get){.base = {&objects_fs}, .fd = fd, .at = from};
    g->end = from + (length < left ? length : left);
    *out = &g->base;
    *out_size = size;
    return 0;
}

static err fs_get_read(struct object_get *base, void *out, size_t cap, size_t *out_n)
{
    struct fs_get *g = (struct fs_get *)base;
    uint64_t left = g->end - g->at;
    ssize_t n = 0;
    if (left > 0) {
        do
            n = pread(g->fd, out, left < cap ? (size_t)left : cap, (off_t)g->at);
        while (n < 0 && errno == EINTR);
        if (n < 0)
            return fail_errno("read an object");
        if (n == 0)
            return fail(E_IO, "an object is shorter than it was");
    }
    g->at += (uint64_t)n;
    *out_n = (size_t)n;
    return 0;
}

static void fs_get_close(struct object_get *base)
{
    struct fs_get *g = (struct fs_get *)base;
    fd_close(&g->fd);
    mem_free(g);
}

static err fs_size(struct objects *o, const char *key, uint64_t *out)
{
    AUTO_FD fd = -1;
    return open_object(fs_of(o), key, &fd, out);
}

/* ---- deleting ---- */

/* Folders that are empty now go, too; one that gets a new object meanwhile stays. */
static void remove_empty_parents(int root, const char *key)
{
    char path[PATH_BYTES];
    parent_of(key, path);
    while (path[0] && unlinkat(root, path, AT_REMOVEDIR) == 0) {
        char *slash = strrchr(path, '/');
        *(slash ? slash : path) = 0;
    }
}

static err fs_remove(struct objects *o, const char *key)
{
    struct fs *fs = fs_of(o);
    char folder[PATH_BYTES];
    if (unlinkat(fs->root, key, 0) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : fail_errno("delete the object %s", key);
    parent_of(key, folder);
    TRY(sync_folder(fs->root, folder));
    remove_empty_parents(fs->root, key);
    return 0;
}

/* ---- listing ---- */

/* One folder's names; those of folders end in '/', which is also what puts them in the order of
   the keys' bytes. */
struct names {
    char **items;
    size_t n, cap;
};

static void names_done(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        mem_free(names->items[i]);
    mem_free(names->items);
}
#define AUTO_NAMES __attribute__((cleanup(names_done))) struct names

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_name(struct names *names, const char *name, bool folder)
{
    char text[NAME_MAX + 2];
    if (names->n == names->cap) {
        names->cap = names->cap ? size_mul(names->cap, 2) : 64;
        names->items = mem_realloc(names->items, size_mul(names->cap, sizeof *names->items));
    }
    snprintf(text, sizeof text, "%s%s", name, folder ? "/" : "");
    names->items[names->n++] = mem_strdup(text);
}

static err read_names(int root, const char *path, struct names *out)
{
    AUTO_DIR d = open_folder(root, path);
    if (d == NULL)
        return errno == ENOENT || errno == ENOTDIR ? 0 : fail_errno("list %s", path);
    for (;;) {
        struct stat st;
        errno = 0;
        struct dirent *entry = readdir(d);
        if (entry == NULL)
            break;
        if (entry->d_name[0] == '.')
            continue; /* .tmp and what others left: no keys */
        if (entry->d_type == DT_UNKNOWN &&
            fstatat(dirfd(d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            entry->d_type = S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_LNK;
        if (entry->d_type == DT_REG || entry->d_type == DT_DIR)
            add_name(out, entry->d_name, entry->d_type == DT_DIR);
    }
    if (errno)
        return fail_errno("list %s", path);
    if (out->n)
        qsort(out->items, out->n, sizeof *out->items, compare_names);
    return 0;
}

struct listing {
    int root;
    object_fn fn;
    void *arg;
    bool stopped;
};

/* path: "" or ending in '/'. Keys are short, so the depth is, too. */
static err list_folder(struct listing *l, const char *path)
{
    AUTO_NAMES names = {0};
    TRY(read_names(l->root, path, &names));
    for (size_t i = 0; i < names.n && !l->stopped; i++) {
        char key[PATH_BYTES];
        struct stat st;
        int n = snprintf(key, sizeof key, "%s%s", path, names.items[i]);
        if (n < 0 || (size_t)n >= sizeof key)
            continue; /* nothing that was put here */
        if (key[n - 1] == '/')
            TRY(list_folder(l, key));
        else if (fstatat(l->root, key, &st, AT_SYMLINK_NOFOLLOW) == 0) /* else deleted meanwhile */
            l->stopped = !l->fn(l->arg, key, (uint64_t)st.st_size);
    }
    return 0;
}

static err fs_list(struct objects *o, const char *prefix, object_fn fn, void *arg)
{
    struct listing l = {.root = fs_of(o)->root, .fn = fn, .arg = arg};
    return list_folder(&l, prefix);
}

const struct object_engine objects_fs = {
    .scheme = "file:",
    .open = fs_open,
    .close = fs_close,
    .put_begin = fs_put_begin,
    .put_write = fs_put_write,
    .put_end = fs_put_end,
    .put_abort = fs_put_abort,
    .get = fs_get,
    .get_read = fs_get_read,
    .get_close = fs_get_close,
    .size = fs_size,
    .remove = fs_remove,
    .list = fs_list,
};
