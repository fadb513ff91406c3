#include "hands/copy_walk.h"

#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPARE_BYTES 32768 /* of each side at a time; the thread's stack is small */

struct side {
    DIR *folder; /* NULL: not on this side */
    struct copy_names names;
};

struct level {
    struct side sides[WALK_SIDES];
    size_t path_n; /* of the folder's own path, with its slash */
};

struct walk {
    const struct walk_hooks *hooks;
    bool compare, stop;
    uint64_t mounts[WALK_SIDES];
    struct buf path;
    struct level *levels; /* COPYOUT_DEPTH_MAX */
    size_t depth;
    struct walk_node nodes[WALK_SIDES];
    struct walk_result result;
};

/* ---- one name ---- */

static int64_t nanoseconds(const struct statx_timestamp *t)
{
    int64_t ns;
    if (__builtin_mul_overflow(t->tv_sec, INT64_C(1000000000), &ns) ||
        __builtin_add_overflow(ns, (int64_t)t->tv_nsec, &ns))
        return t->tv_sec < 0 ? INT64_MIN : INT64_MAX;
    return ns;
}

static enum copyout_type type_of(mode_t mode)
{
    return S_ISREG(mode)   ? COPYOUT_FILE
           : S_ISDIR(mode) ? COPYOUT_FOLDER
           : S_ISLNK(mode) ? COPYOUT_LINK
                           : COPYOUT_OTHER;
}

bool walk_look(int fd, const char *name, struct walk_node *out, uint64_t *out_mount)
{
    struct statx st;
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (name[0] ? 0 : AT_EMPTY_PATH);
    if (fd < 0 || statx(fd, name, flags, STATX_BASIC_STATS | STATX_MNT_ID, &st) != 0)
        return false;
    out->type = type_of(st.stx_mode);
    out->mode = st.stx_mode & 07777;
    out->size = out->type == COPYOUT_FILE ? st.stx_size : 0;
    out->inode = st.stx_ino;
    out->mtime_ns = nanoseconds(&st.stx_mtime);
    out->ctime_ns = nanoseconds(&st.stx_ctime);
    buf_clear(&out->target);
    *out_mount = st.stx_mnt_id;
    return true;
}

int walk_reopen_file(int reference)
{
    char path[40];
    struct stat st;
    if (fstat(reference, &st) != 0)
        return -1;
    errno = ESTALE;
    if (!S_ISREG(st.st_mode))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", reference);
    return open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

int walk_open_file(int dir, const char *name)
{
    AUTO_FD reference = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    return reference < 0 ? -1 : walk_reopen_file(reference);
}

/* A target longer than a path can be, or one that is gone, makes the link one without. */
static void read_target(int dir, const char *name, struct walk_node *node)
{
    if (node->type != COPYOUT_LINK)
        return;
    buf_reserve(&node->target, COPYOUT_PATH_MAX + 1);
    ssize_t n = readlinkat(dir, name, node->target.p, COPYOUT_PATH_MAX + 1);
    if (n > 0 && n <= COPYOUT_PATH_MAX)
        node->target.n = (size_t)n;
    else
        node->type = COPYOUT_OTHER;
}

/* ---- what differs ---- */

static ssize_t read_up_to(int fd, char *p, size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = read(fd, p + got, n - got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -1 : (ssize_t)got;
        got += (size_t)r;
    }
    return (ssize_t)got;
}

/* What cannot be read counts as different: better told once too often. */
static err compare_content(struct walk *w, const struct walk_found *f, bool *out_same)
{
    char now[COMPARE_BYTES], before[COMPARE_BYTES];
    AUTO_FD a = walk_open_file(f->dirs[WALK_NOW], f->name);
    AUTO_FD b = walk_open_file(f->dirs[WALK_BEFORE], f->name);
    *out_same = false;
    while (a >= 0 && b >= 0) {
        ssize_t n = read_up_to(a, now, sizeof now), m = read_up_to(b, before, sizeof before);
        if (n < 0 || n != m || memcmp(now, before, (size_t)n) != 0)
            return 0;
        *out_same = n == 0;
        if (n == 0)
            return 0;
        TRY(w->hooks->step(w->hooks->arg));
    }
    return 0;
}

/* The very file of the image: an overlay shows its inode, and nobody inside can set a ctime. */
static bool is_untouched(const struct walk_node *now, const struct walk_node *before)
{
    return now->inode == before->inode && now->size == before->size &&
           now->ctime_ns == before->ctime_ns && now->mtime_ns == before->mtime_ns;
}

static err is_same(struct walk *w, const struct walk_found *f, bool *out)
{
    const struct walk_node *now = &f->nodes[WALK_NOW], *before = &f->nodes[WALK_BEFORE];
    *out = false;
    if (now->type != before->type || (now->mode != before->mode && now->type != COPYOUT_LINK))
        return 0;
    if (now->type == COPYOUT_LINK)
        *out = str_eq(buf_str(&now->target), buf_str(&before->target));
    else if (now->type != COPYOUT_FILE || is_untouched(now, before))
        *out = true;
    else if (now->size == before->size)
        return compare_content(w, f, out);
    return 0;
}

static err judge(struct walk *w, struct walk_found *f, bool *out_tell)
{
    const struct walk_node *now = &f->nodes[WALK_NOW], *before = &f->nodes[WALK_BEFORE];
    *out_tell = true;
    f->change = COPYOUT_AS_IS;
    if (!w->compare)
        return 0;
    f->change = before->type == COPYOUT_NONE ? COPYOUT_ADDED
                : now->type == COPYOUT_NONE  ? COPYOUT_REMOVED
                                             : COPYOUT_CHANGED;
    if (f->change != COPYOUT_CHANGED)
        return 0;
    bool same;
    TRY(is_same(w, f, &same));
    *out_tell = !same;
    return 0;
}

/* ---- folders ---- */

static void side_close(struct side *s)
{
    if (s->folder)
        closedir(s->folder);
    copy_names_done(&s->names);
    *s = (struct side){0};
}

static void leave(struct walk *w)
{
    struct level *l = &w->levels[--w->depth];
    for (int i = 0; i < WALK_SIDES; i++)
        side_close(&l->sides[i]);
}

static bool side_open(struct walk *w, struct side *s, int take_dir)
{
    if (take_dir < 0)
        return false;
    s->folder = fdopendir(take_dir);
    if (s->folder == NULL) {
        close(take_dir);
        return false;
    }
    int rc = copy_names_read(&s->names, s->folder);
    w->result.cut |= s->names.cut;
    return rc == 0;
}

static void enter(struct walk *w, const int take_dirs[WALK_SIDES])
{
    struct level *l = &w->levels[w->depth++];
    l->path_n = w->path.n;
    for (int i = 0; i < WALK_SIDES; i++)
        if (take_dirs[i] >= 0 && !side_open(w, &l->sides[i], take_dirs[i]))
            w->result.left_out++;
}

static void descend(struct walk *w, const struct walk_found *f)
{
    int dirs[WALK_SIDES] = {-1, -1};
    bool any = false;
    for (int i = 0; i < WALK_SIDES; i++)
        any |= f->nodes[i].type == COPYOUT_FOLDER;
    if (!any)
        return;
    if (w->depth == COPYOUT_DEPTH_MAX || w->path.n + 1 >= COPYOUT_PATH_MAX) {
        w->result.left_out++;
        return;
    }
    for (int i = 0; i < WALK_SIDES; i++) {
        if (f->nodes[i].type != COPYOUT_FOLDER)
            continue;
        dirs[i] = openat(f->dirs[i], f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dirs[i] < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
            w->result.left_out++; /* else: it went away meanwhile */
    }
    buf_add_char(&w->path, '/');
    enter(w, dirs);
}

/* ---- the walk ---- */

/* The smaller of the current names; both sides that have it move on. */
static const char *next_name(struct level *l, bool out_has[WALK_SIDES])
{
    const char *names[WALK_SIDES], *least = NULL;
    for (int i = 0; i < WALK_SIDES; i++) {
        names[i] = copy_names_current(&l->sides[i].names);
        if (names[i] && (least == NULL || strcmp(names[i], least) < 0))
            least = names[i];
    }
    for (int i = 0; least && i < WALK_SIDES; i++) {
        out_has[i] = names[i] && strcmp(names[i], least) == 0;
        l->sides[i].names.at += out_has[i];
    }
    return least;
}

/* False: there is nothing of this name any more, or something is mounted on it. */
static bool look(struct walk *w, struct level *l, const bool has[WALK_SIDES], struct walk_found *f)
{
    bool any = false;
    for (int i = 0; i < WALK_SIDES; i++) {
        struct walk_node *node = &w->nodes[i];
        uint64_t mount;
        f->dirs[i] = l->sides[i].folder ? dirfd(l->sides[i].folder) : -1;
        bool there = has[i] && walk_look(f->dirs[i], f->name, node, &mount);
        if (there && mount != w->mounts[i]) {
            if (i == WALK_NOW)
                return false;
            there = false;
        }
        if (there)
            read_target(f->dirs[i], f->name, node);
        else
            node->type = COPYOUT_NONE;
        any |= there;
    }
    return any;
}

static err visit(struct walk *w, const char *name, const bool has[WALK_SIDES])
{
    struct level *l = &w->levels[w->depth - 1];
    struct walk_found f = {.name = name, .nodes = w->nodes};
    w->path.n = l->path_n;
    if (!look(w, l, has, &f))
        return 0;
    buf_add_c(&w->path, name);
    if (w->path.n > COPYOUT_PATH_MAX) {
        w->result.left_out++;
        return 0;
    }
    f.path = buf_str(&w->path);
    bool tell;
    TRY(judge(w, &f, &tell));
    if (tell)
        TRY(w->hooks->found(w->hooks->arg, &f, &w->stop));
    if (!w->stop)
        descend(w, &f);
    return 0;
}

static err walk_all(struct walk *w)
{
    while (w->depth > 0 && !w->stop) {
        bool has[WALK_SIDES] = {0};
        const char *name = next_name(&w->levels[w->depth - 1], has);
        if (name == NULL) {
            leave(w);
            continue;
        }
        TRY(w->hooks->step(w->hooks->arg));
        TRY(visit(w, name, has));
    }
    return 0;
}

err walk_run(const int take_dirs[WALK_SIDES], bool compare, const struct walk_hooks *hooks,
             struct walk_result *out)
{
    struct walk w = {.hooks = hooks, .compare = compare};
    w.levels = mem_alloc(COPYOUT_DEPTH_MAX * sizeof *w.levels);
    for (int i = 0; i < WALK_SIDES; i++)
        walk_look(take_dirs[i], "", &w.nodes[i], &w.mounts[i]);
    buf_add_c(&w.path, "");
    enter(&w, take_dirs);
    err e = walk_all(&w);
    while (w.depth > 0)
        leave(&w);
    for (int i = 0; i < WALK_SIDES; i++)
        buf_done(&w.nodes[i].target);
    buf_done(&w.path);
    mem_free(w.levels);
    *out = w.result;
    return e;
}
