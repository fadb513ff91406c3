#include "hands/paths.h"

#include "base/lock.h"
#include "base/mem.h"
#include "hands/process.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utf8proc.h>

/* Length of one of Pi's UNICODE_SPACES at p, or 0: U+00A0, U+2000-200A, U+202F, U+205F, U+3000. */
static size_t unicode_space(const unsigned char *p, size_t n)
{
    if (n >= 2 && p[0] == 0xc2 && p[1] == 0xa0)
        return 2;
    if (n < 3)
        return 0;
    bool space =
        (p[0] == 0xe2 && p[1] == 0x80 && ((p[2] >= 0x80 && p[2] <= 0x8a) || p[2] == 0xaf)) ||
        (p[0] == 0xe2 && p[1] == 0x81 && p[2] == 0x9f) ||
        (p[0] == 0xe3 && p[1] == 0x80 && p[2] == 0x80);
    return space ? 3 : 0;
}

static void add_plain_spaces(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n;) {
        size_t n = unicode_space((const unsigned char *)s.p + i, s.n - i);
        buf_add(out, n ? " " : s.p + i, 1);
        i += n ? n : 1;
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void add_url_path(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        int high = s.p[i] == '%' && i + 2 < s.n ? hex_digit(s.p[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(s.p[i + 2]) : -1;
        if (low >= 0) {
            buf_add_char(out, (char)(high * 16 + low));
            i += 2;
        } else {
            buf_add_char(out, s.p[i]);
        }
    }
}

static void expand(struct str path, struct buf *out)
{
    AUTO_BUF plain = {0};
    add_plain_spaces(path, &plain);
    struct str s = buf_str(&plain);
    if (str_starts(s, STR("@")))
        s = (struct str){s.p + 1, s.n - 1};
    if (str_is(s, "~") || str_starts(s, STR("~/"))) {
        buf_add_c(out, process_home());
        buf_add(out, s.p + 1, s.n - 1);
    } else if (str_starts(s, STR("file:///"))) {
        add_url_path((struct str){s.p + 7, s.n - 7}, out);
    } else {
        buf_add_str(out, s);
    }
}

/* Appends the parts of a path to a clean absolute one ("" stands for the root). */
static void add_parts(struct str path, struct buf *out)
{
    struct str part;
    while (path.n > 0) {
        const char *slash = memchr(path.p, '/', path.n);
        size_t n = slash ? (size_t)(slash - path.p) : path.n;
        part = (struct str){path.p, n};
        path.p += slash ? n + 1 : n;
        path.n -= slash ? n + 1 : n;
        if (part.n == 0 || str_is(part, "."))
            continue;
        if (str_is(part, "..")) {
            const char *last = out->n ? memrchr(out->p, '/', out->n) : NULL;
            out->n = last ? (size_t)(last - out->p) : 0;
            continue;
        }
        buf_add_char(out, '/');
        buf_add_str(out, part);
    }
}

void path_clean(struct str path, const char *base, struct buf *out)
{
    buf_clear(out);
    if (path.n == 0 || path.p[0] != '/')
        add_parts(str_of(base), out);
    add_parts(path, out);
    if (out->n == 0)
        buf_add_char(out, '/');
    buf_reserve(out, 1);
    out->p[out->n] = 0;
}

void path_resolve(struct str path, const char *cwd, struct buf *out)
{
    AUTO_BUF expanded = {0};
    expand(path, &expanded);
    path_clean(buf_str(&expanded), cwd, out);
}

/* " AM." and " PM." with the narrow space that macOS writes there. */
static void am_pm_variant(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        bool match = i + 4 <= s.n && s.p[i] == ' ' && strchr("aApP", s.p[i + 1]) &&
                     (s.p[i + 2] == 'M' || s.p[i + 2] == 'm') && s.p[i + 3] == '.' && s.p[i + 1];
        if (match)
            buf_add_c(out, "\u202f");
        else
            buf_add_char(out, s.p[i]);
    }
}

static void nfd_variant(struct str s, struct buf *out)
{
    utf8proc_uint8_t *decomposed = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n,
                                      &decomposed, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    if (n >= 0)
        buf_add(out, decomposed, (size_t)n);
    else
        buf_add_str(out, s);
    free(decomposed);
}

static void curly_variant(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\'')
            buf_add_c(out, "\u2019");
        else
            buf_add_char(out, s.p[i]);
}

static bool exists(const struct buf *path)
{
    return !str_has_nul(buf_str(path)) && path->p && access(path->p, F_OK) == 0;
}

static bool take_if_exists(struct buf *variant, struct buf *out)
{
    if (str_eq(buf_str(variant), buf_str(out)) || !exists(variant))
        return false;
    buf_clear(out);
    buf_add_str(out, buf_str(variant));
    return true;
}

void path_resolve_read(struct str path, const char *cwd, struct buf *out)
{
    path_resolve(path, cwd, out);
    if (exists(out))
        return;
    AUTO_BUF am_pm = {0}, nfd = {0}, curly = {0}, both = {0};
    am_pm_variant(buf_str(out), &am_pm);
    nfd_variant(buf_str(out), &nfd);
    curly_variant(buf_str(out), &curly);
    curly_variant(buf_str(&nfd), &both);
    bool found = take_if_exists(&am_pm, out) || take_if_exists(&nfd, out) ||
                 take_if_exists(&curly, out) || take_if_exists(&both, out);
    (void)found; /* none: the plain name, for the error text */
}

int path_make_folders(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return 0;
    struct stat st;
    if (errno == EEXIST)
        return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : EEXIST;
    if (errno != ENOENT)
        return errno;
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return ENOENT;
    char *parent = mem_copy(path, (size_t)(slash - path));
    int rc = path_make_folders(parent);
    mem_free(parent);
    if (rc != 0)
        return rc == EEXIST ? ENOTDIR : rc;
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : errno;
}

struct path_lock {
    char *path;     /* canonical */
    unsigned users; /* holder and those who wait; guarded by locks.mutex */
    pthread_mutex_t held;
    struct path_lock *next;
};

static struct {
    pthread_mutex_t mutex;
    struct path_lock *first;
} locks = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct path_lock *find_or_add(const char *path)
{
    AUTO_LOCK(&locks.mutex);
    struct path_lock *l = locks.first;
    while (l && strcmp(l->path, path) != 0)
        l = l->next;
    if (l == NULL) {
        l = mem_alloc(sizeof *l);
        l->path = mem_strdup(path);
        pthread_mutex_init(&l->held, NULL);
        l->next = locks.first;
        locks.first = l;
    }
    l->users++;
    return l;
}

int path_lock(const char *path, struct path_lock **out)
{
    char *canonical = realpath(path, NULL);
    if (canonical == NULL && errno != ENOENT && errno != ENOTDIR)
        return errno;
    struct path_lock *l = find_or_add(canonical ? canonical : path);
    free(canonical);
    pthread_mutex_lock(&l->held);
    *out = l;
    return 0;
}

void path_unlock(struct path_lock **lock)
{
    struct path_lock *l = *lock;
    if (l == NULL)
        return;
    *lock = NULL;
    pthread_mutex_unlock(&l->held);
    AUTO_LOCK(&locks.mutex);
    if (--l->users > 0)
        return;
    struct path_lock **at = &locks.first;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    pthread_mutex_destroy(&l->held);
    mem_free(l->path);
    mem_free(l);
}
