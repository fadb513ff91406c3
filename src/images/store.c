#include "images/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/tree.h"
#include "images/meta.h"

#define TAG_FILE_MAX 128
#define NEW_PREFIX ".new-"
#define OLD_PREFIX ".old-"

/* A path of the store, cut nowhere. */
static err path_of(char out[PATH_MAX], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static err path_of(char out[PATH_MAX], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, PATH_MAX, fmt, ap);
    va_end(ap);
    return n >= PATH_MAX ? fail(E_INVALID, "the path of the image store is too long") : 0;
}

static err lock_store(const char *images, int *out)
{
    char path[PATH_MAX];
    TRY(path_of(path, "%s/.lock", images));
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "there is no image store %s", images)
                               : fail_errno("open %s", path);
    while (flock(fd, LOCK_EX) < 0) { /* held for renames only */
        if (errno != EINTR)
            return fail_errno("lock %s", path);
    }
    *out = fd_take(&fd);
    return 0;
}

static bool is_digest(const char *name)
{
    return image_digest_valid(str_of(name));
}

static bool is_name(const char *name)
{
    struct image_name ignored;
    return strchr(name, ':') == NULL && image_name_parse(name, &ignored) == 0;
}

static bool is_tag(const char *tag)
{
    struct image_name ignored;
    char ref[NAME_MAX + 4];
    snprintf(ref, sizeof ref, "x:%s", tag);
    return image_name_parse(ref, &ignored) == 0;
}

/* Calls fn for the sorted entries of a folder that `want` accepts; none if it is not there. */
typedef bool (*want_fn)(const char *name);
typedef err (*each_fn)(void *arg, const char *name);

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static err for_each(const char *path, want_fn want, each_fn fn, void *arg)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, by_name);
    if (n < 0)
        return errno == ENOENT ? 0 : fail_errno("read %s", path);
    err e = 0;
    for (int i = 0; i < n; i++) {
        if (!e && want(names[i]->d_name))
            e = fn(arg, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return e;
}

static bool no_dots(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static err add_one(void *arg, const char *name)
{
    (void)name;
    ++*(uint64_t *)arg;
    return 0;
}

static err count_holders(const char *images, const char *name, const char *digest, uint64_t *out)
{
    char path[PATH_MAX];
    uint64_t n = 0;
    TRY(path_of(path, "%s/%s/%s/used", images, name, digest));
    TRY(for_each(path, no_dots, add_one, &n));
    *out = n;
    return 0;
}

/* ---- resolving ---- */

/* E_NOT_FOUND without the tag. */
static err read_tag(const char *images, const struct image_name *n, char out[IMAGE_DIGEST_MAX + 1])
{
    char path[PATH_MAX];
    AUTO_BUF text = {0};
    TRY(path_of(path, "%s/%s/tags/%s", images, n->name, n->tag));
    TRY(fd_read_file(path, TAG_FILE_MAX, &text));
    struct str digest = buf_str(&text);
    if (digest.n > 0 && digest.p[digest.n - 1] == '\n')
        digest.n--;
    if (!image_digest_valid(digest))
        return fail(E_INTERNAL, "%s does not hold a digest: import the image again", path);
    memcpy(out, digest.p, digest.n);
    out[digest.n] = 0;
    return 0;
}

static err describe(const char *images, const struct image_name *n, const char *digest,
                    struct image *out)
{
    struct image image = {.name = *n};
    struct stat st;
    snprintf(image.digest, sizeof image.digest, "%s", digest);
    TRY(path_of(image.folder, "%s/%s/%s", images, n->name, digest));
    TRY(path_of(image.rootfs, "%s/%s/%s/rootfs", images, n->name, digest));
    if (lstat(image.rootfs, &st) < 0)
        return errno == ENOENT
                   ? fail(E_NOT_FOUND, "the files of image %s are gone: import it again", n->name)
                   : fail_errno("look at %s", image.rootfs);
    *out = image;
    return 0;
}

static err parse(const char *ref, struct image_name *out)
{
    TRY(image_name_check(ref));
    return image_name_parse(ref, out);
}

err image_resolve(const char *images, const char *ref, struct image *out)
{
    struct image_name n;
    char digest[IMAGE_DIGEST_MAX + 1];
    TRY(parse(ref, &n));
    err e = read_tag(images, &n, digest);
    if (e == E_NOT_FOUND)
        return fail_as(E_NOT_FOUND, "image_not_found",
                       "there is no image %s:%s in the image store. See `pi-managed image list`, "
                       "or get it there: pi-managed image import %s:%s SOURCE",
                       n.name, n.tag, n.name, n.tag);
    TRY(e);
    return describe(images, &n, digest, out);
}

/* ---- holding ---- */

struct search {
    const char *images, *name, *holder;
    char digest[IMAGE_DIGEST_MAX + 1]; /* "": not found */
};

static err look_for_mark(void *arg, const char *digest)
{
    struct search *s = arg;
    char path[PATH_MAX];
    TRY(path_of(path, "%s/%s/%s/used/%s", s->images, s->name, digest, s->holder));
    if (access(path, F_OK) == 0)
        snprintf(s->digest, sizeof s->digest, "%s", digest);
    return 0;
}

static err check_holder(const char *holder)
{
    return holder[0] == 0 || holder[0] == '.' || strchr(holder, '/') || strlen(holder) > 100
               ? fail(E_INVALID, "a holder of an image needs an id")
               : 0;
}

err image_held(const char *images, const char *ref, const char *holder, struct image *out)
{
    struct image_name n;
    char path[PATH_MAX];
    TRY(check_holder(holder));
    TRY(parse(ref, &n));
    struct search s = {.images = images, .name = n.name, .holder = holder};
    TRY(path_of(path, "%s/%s", images, n.name));
    TRY(for_each(path, is_digest, look_for_mark, &s));
    if (s.digest[0] == 0)
        return fail(E_NOT_FOUND, "%s holds no image %s", holder, n.name);
    n.tag[0] = 0;
    return describe(images, &n, s.digest, out);
}

static err mark(const char *images, const struct image *image, const char *holder)
{
    char path[PATH_MAX];
    TRY(path_of(path, "%s/%s/%s/used/%s", images, image->name.name, image->digest, holder));
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? fail_errno("mark the image as used (%s)", path) : 0;
}

err image_hold(const char *images, const char *ref, const char *holder, struct image *out)
{
    struct image image;
    AUTO_FD lock = -1;
    err e = lock_store(images, &lock);
    if (e == E_NOT_FOUND)
        return image_resolve(images, ref, out); /* says what is missing */
    TRY(e);
    e = image_held(images, ref, holder, out);
    if (e != E_NOT_FOUND)
        return e;
    TRY(image_resolve(images, ref, &image));
    TRY(mark(images, &image, holder));
    *out = image;
    return 0;
}

err image_hold_same(const char *images, const char *ref, const char *other, const char *holder)
{
    struct image image;
    AUTO_FD lock = -1;
    TRY(check_holder(holder));
    TRY(lock_store(images, &lock));
    TRY(image_held(images, ref, other, &image));
    return mark(images, &image, holder);
}

/* ---- removing ---- */

/* Images that nothing keeps, moved aside while the lock is held and removed afterwards. */
struct pruning {
    const char *images;
    char name[IMAGE_NAME_MAX + 1];
    const char *digest; /* of the tag that is compared */
    bool tagged;
    const char *holder; /* whose marks go, or NULL */
};

static err compare_tag(void *arg, const char *tag)
{
    struct pruning *p = arg;
    struct image_name n = {0};
    char digest[IMAGE_DIGEST_MAX + 1];
    memcpy(n.name, p->name, sizeof n.name);
    snprintf(n.tag, sizeof n.tag, "%s", tag);
    /* A damaged tag might be this one's: then it stays. */
    if (read_tag(p->images, &n, digest) || strcmp(digest, p->digest) == 0)
        p->tagged = true;
    return 0;
}

static void random_path(const char *images, const char *prefix, char out[PATH_MAX])
{
    unsigned char r[8];
    rand_bytes(r, sizeof r);
    snprintf(out, PATH_MAX, "%s/%s%02x%02x%02x%02x%02x%02x%02x%02x", images, prefix, r[0], r[1],
             r[2], r[3], r[4], r[5], r[6], r[7]);
}

static err prune_digest(void *arg, const char *digest)
{
    struct pruning *p = arg;
    char path[PATH_MAX], old[PATH_MAX];
    if (p->holder) {
        TRY(path_of(path, "%s/%s/%s/used/%s", p->images, p->name, digest, p->holder));
        if (unlink(path) < 0 && errno != ENOENT)
            return fail_errno("remove %s", path);
    }
    uint64_t holders;
    TRY(count_holders(p->images, p->name, digest, &holders));
    p->digest = digest;
    p->tagged = false;
    TRY(path_of(path, "%s/%s/tags", p->images, p->name));
    TRY(for_each(path, is_tag, compare_tag, p));
    if (holders > 0 || p->tagged)
        return 0;
    TRY(path_of(path, "%s/%s/%s", p->images, p->name, digest));
    random_path(p->images, OLD_PREFIX, old);
    return rename(path, old) < 0 ? fail_errno("move %s aside", path) : 0;
}

static err prune_name(void *arg, const char *name)
{
    struct pruning *p = arg;
    char path[PATH_MAX];
    snprintf(p->name, sizeof p->name, "%s", name);
    TRY(path_of(path, "%s/%s", p->images, name));
    TRY(for_each(path, is_digest, prune_digest, p));
    TRY(path_of(path, "%s/%s/tags", p->images, name));
    rmdir(path); /* both only when they are empty */
    TRY(path_of(path, "%s/%s", p->images, name));
    rmdir(path);
    return 0;
}

static err prune(const char *images, const char *holder)
{
    struct pruning p = {.images = images, .holder = holder};
    return for_each(images, is_name, prune_name, &p);
}

static bool is_leftover(const char *name)
{
    return strncmp(name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0 ||
           strncmp(name, OLD_PREFIX, strlen(OLD_PREFIX)) == 0;
}

/* Whoever works on it holds its flock; it goes with that process. */
static err remove_leftover(void *arg, const char *name)
{
    const char *images = arg;
    char path[PATH_MAX];
    TRY(path_of(path, "%s/%s", images, name));
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return 0;
    return tree_remove(path);
}

static err remove_leftovers(const char *images)
{
    return for_each(images, is_leftover, remove_leftover, (void *)images);
}

err image_release(const char *images, const char *holder)
{
    TRY(check_holder(holder));
    AUTO_FD lock = -1;
    err e = lock_store(images, &lock);
    if (e)
        return e == E_NOT_FOUND ? 0 : e;
    TRY(prune(images, holder));
    fd_close(&lock);
    return remove_leftovers(images);
}

err image_remove(const char *images, const char *ref, uint64_t *out_holders)
{
    struct image image;
    char path[PATH_MAX];
    AUTO_FD lock = -1;
    err e = lock_store(images, &lock);
    if (e == E_NOT_FOUND)
        return image_resolve(images, ref, &image);
    TRY(e);
    struct image_name n;
    char digest[IMAGE_DIGEST_MAX + 1];
    TRY(parse(ref, &n));
    if (read_tag(images, &n, digest) == E_NOT_FOUND)
        return image_resolve(images, ref, &image);
    TRY(path_of(path, "%s/%s/tags/%s", images, n.name, n.tag));
    if (unlink(path) < 0)
        return fail_errno("remove %s", path);
    TRY(prune(images, NULL));
    TRY(count_holders(images, n.name, digest, out_holders));
    fd_close(&lock);
    return remove_leftovers(images);
}

/* ---- listing ---- */

struct listing {
    const char *images;
    image_list_fn fn;
    void *arg;
    struct image_listed *row;
    struct err_slot damage; /* of one image, told after the others */
};

static err read_meta(const char *images, struct image_listed *row)
{
    AUTO_JSON j = NULL;
    TRY(image_meta_read(row->image.folder, &j));
    const char *source = json_get_c(j, "source"), *architecture = json_get_c(j, "architecture");
    row->imported_at_ms = json_get_int(j, "importedAtMs", 0);
    row->entries = (uint64_t)json_get_int(j, "entries", 0);
    row->bytes = (uint64_t)json_get_int(j, "bytes", 0);
    snprintf(row->source, sizeof row->source, "%s", source ? source : "");
    snprintf(row->architecture, sizeof row->architecture, "%s", architecture ? architecture : "");
    return count_holders(images, row->image.name.name, row->image.digest, &row->holders);
}

static err list_tag(void *arg, const char *tag)
{
    struct listing *l = arg;
    struct image_name n = l->row->image.name;
    char digest[IMAGE_DIGEST_MAX + 1];
    snprintf(n.tag, sizeof n.tag, "%s", tag);
    err e = read_tag(l->images, &n, digest);
    if (!e)
        e = describe(l->images, &n, digest, &l->row->image);
    if (!e)
        e = read_meta(l->images, l->row);
    if (e && e != E_NOT_FOUND) /* that: removed meanwhile */
        err_save(&l->damage);
    return e ? 0 : l->fn(l->arg, l->row);
}

static err list_name(void *arg, const char *name)
{
    struct listing *l = arg;
    char path[PATH_MAX];
    *l->row = (struct image_listed){0};
    snprintf(l->row->image.name.name, sizeof l->row->image.name.name, "%s", name);
    TRY(path_of(path, "%s/%s/tags", l->images, name));
    return for_each(path, is_tag, list_tag, l);
}

err image_list(const char *images, image_list_fn fn, void *arg)
{
    struct listing l = {.images = images, .fn = fn, .arg = arg, .row = mem_alloc(sizeof *l.row)};
    err e = for_each(images, is_name, list_name, &l);
    mem_free(l.row);
    return !e && l.damage.e ? err_restore(&l.damage) : e;
}

/* ---- making ---- */

err image_store_make(const char *images)
{
    if (mkdir(images, 0755) < 0 && errno != EEXIST)
        return errno == ENOENT
                   ? fail(E_NOT_FOUND, "there is no data directory for %s. Run: pi-managed init",
                          images)
                   : fail_errno("make the image store %s", images);
    return 0;
}

err image_scratch_open(const char *images, struct image_scratch *out)
{
    struct image_scratch s = {.lock = -1};
    TRY(image_store_make(images));
    AUTO_FD lock = -1;
    TRY(lock_store(images, &lock));
    TRY(prune(images, NULL)); /* a digest whose import died before it was tagged */
    random_path(images, NEW_PREFIX, s.path);
    if (mkdir(s.path, 0700) < 0)
        return fail_errno("make %s", s.path);
    AUTO_FD folder = open(s.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || flock(folder, LOCK_EX | LOCK_NB) < 0)
        return fail_errno("lock %s", s.path);
    fd_close(&lock);
    s.lock = fd_take(&folder);
    err e = remove_leftovers(images);
    if (e) {
        image_scratch_close(&s);
        return e;
    }
    *out = s;
    return 0;
}

void image_scratch_close(struct image_scratch *s)
{
    struct err_slot slot;
    err_save(&slot);
    if (s->lock >= 0)
        tree_remove(s->path);
    fd_close(&s->lock);
    err_restore(&slot);
}

static err sync_path(const char *path)
{
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? fail_errno("sync %s", path) : 0;
}

/* Written aside and renamed: the name of a tag may look like anybody's temporary file. */
static err write_tag(const char *images, const struct image_name *name, const char *digest)
{
    char aside[PATH_MAX], path[PATH_MAX], line[IMAGE_DIGEST_MAX + 2];
    TRY(path_of(path, "%s/%s/tags", images, name->name));
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return fail_errno("make %s", path);
    TRY(path_of(aside, "%s/%s/.tag", images, name->name));
    snprintf(line, sizeof line, "%s\n", digest);
    TRY(fd_write_file_atomic(aside, str_of(line), 0644));
    TRY(path_of(path, "%s/%s/tags/%s", images, name->name, name->tag));
    if (rename(aside, path) < 0)
        return fail_errno("rename %s", aside);
    TRY(path_of(path, "%s/%s/tags", images, name->name));
    return sync_path(path);
}

static err move_in(const char *images, struct image_scratch *s, const struct image_name *name,
                   const char *digest, bool *out_known)
{
    char folder[PATH_MAX], path[PATH_MAX];
    TRY(path_of(folder, "%s/%s", images, name->name));
    TRY(path_of(path, "%s/%s/%s", images, name->name, digest));
    if (mkdir(folder, 0755) < 0 && errno != EEXIST)
        return fail_errno("make %s", folder);
    if (rename(s->path, path) == 0) {
        fd_close(&s->lock);
        *out_known = false;
        return sync_path(folder);
    }
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fail_errno("name the image %s", path);
    *out_known = true;
    return 0;
}

err image_scratch_commit(const char *images, struct image_scratch *s, const struct image_name *name,
                         const char *digest, bool *out_known)
{
    char used[PATH_MAX];
    AUTO_FD lock = -1;
    TRY(path_of(used, "%s/used", s->path));
    if (mkdir(used, 0700) < 0 || syncfs(s->lock) < 0)
        return fail_errno("finish the image");
    TRY(lock_store(images, &lock));
    TRY(move_in(images, s, name, digest, out_known));
    TRY(write_tag(images, name, digest));
    TRY(prune(images, NULL)); /* what the tag named before */
    fd_close(&lock);
    return remove_leftovers(images);
}
