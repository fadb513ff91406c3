#include "sandbox/mounts.h"

#include "base/id.h"
#include "base/path.h"
#include "hands/frames.h"

#include <stdio.h>

/* Neither these nor what lies within. /mnt/memory is for memory stores (§13.3). */
static const char *const forbidden[] = {
    "/proc",  "/sys",    "/dev", "/usr", "/bin", "/sbin",        "/lib",        "/lib32",
    "/lib64", "/libx32", "/etc", "/tmp", "/.pi", "/mnt/session", "/mnt/memory",
};
/* Neither these nor their parents: what lies within may be mounted. */
static const char *const kept[] = {SANDBOX_WORKDIR, "/root", "/mnt/session"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static err check_path(struct str path, const char *what)
{
    if (path.n >= MOUNT_PATH_MAX)
        return fail(E_INVALID, "a %s has at most %d bytes", what, MOUNT_PATH_MAX - 1);
    if (!path_is_clean(path) || !str_is_utf8(path) || str_has_control(path))
        return fail(E_INVALID,
                    "a %s is an absolute path without `.`, `..`, empty parts, control characters "
                    "and a slash at its end",
                    what);
    if (path.n == 1)
        return fail(E_INVALID, "/ cannot be the %s of a mount", what);
    return 0;
}

err mount_check_name(struct str name)
{
    bool ok = name.n > 0 && name.n < MOUNT_NAME_MAX;
    for (size_t i = 0; ok && i < name.n; i++) {
        char c = name.p[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        ok = word || (i > 0 && (c == '-' || c == '_' || c == '.'));
    }
    return ok ? 0
              : fail(E_INVALID,
                     "a volume's name has 1 to %d lower-case letters, digits, - _ and ., the first "
                     "a letter or digit",
                     MOUNT_NAME_MAX - 1);
}

err mount_check_source(struct str source)
{
    return check_path(source, "source");
}

err mount_check_target(struct str target)
{
    TRY(check_path(target, "target"));
    for (size_t i = 0; i < COUNT(forbidden); i++) {
        if (path_is_within(target, str_of(forbidden[i])))
            return fail(E_INVALID, "nothing can be mounted on %s or within it", forbidden[i]);
    }
    for (size_t i = 0; i < COUNT(kept); i++) {
        if (path_is_within(str_of(kept[i]), target))
            return fail(E_INVALID, "a mount on %.*s would hide %s; mount within it instead",
                        STR_ARG(target), kept[i]);
    }
    return 0;
}

err mount_check_apart(struct str target, struct str other)
{
    if (str_eq(target, other))
        return fail(E_INVALID, "two mounts have the target %.*s", STR_ARG(target));
    if (path_is_within(target, other) || path_is_within(other, target))
        return fail(E_INVALID, "the targets %.*s and %.*s lie within each other", STR_ARG(target),
                    STR_ARG(other));
    return 0;
}

/* ---- from JSON ---- */

static err read_one(const json_t *one, struct sandbox_mount *out)
{
    bool bind = str_is(json_get_str(one, "type"), "bind");
    struct str source = json_get_str(one, bind ? "source" : "name");
    struct str target = json_get_str(one, "target");
    TRY(bind ? mount_check_source(source) : mount_check_name(source));
    TRY(mount_check_target(target));
    *out = (struct sandbox_mount){.type = bind ? MOUNT_BIND : MOUNT_VOLUME,
                                  .read_only = json_get_bool(one, "readOnly", bind)};
    memcpy(out->source, source.p, source.n);
    memcpy(out->target, target.p, target.n);
    return 0;
}

err mounts_read(const json_t *list, struct sandbox_mount out[MOUNTS_MAX], uint32_t *out_n)
{
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    if (n > MOUNTS_MAX)
        return fail(E_INVALID, "a sandbox has at most %d mounts", MOUNTS_MAX);
    for (size_t i = 0; i < n; i++)
        TRY(read_one(json_array_get(list, i), &out[i]));
    *out_n = (uint32_t)n;
    return 0;
}

/* ---- for the parent ---- */

static err check_one(const struct sandbox_mount *m)
{
    if (memchr(m->source, 0, sizeof m->source) == NULL ||
        memchr(m->target, 0, sizeof m->target) == NULL)
        return fail(E_INVALID, "a path of a mount does not end");
    TRY(mount_check_target(str_of(m->target)));
    if (m->type == MOUNT_BIND)
        return mount_check_source(str_of(m->source));
    return m->type == MOUNT_VOLUME && id_valid(str_of(m->source), MOUNT_VOLUME_ID)
               ? 0
               : fail(E_INVALID, "a mount is neither a bind nor of a volume");
}

err mounts_check(const struct sandbox_mount *mounts, uint32_t n)
{
    if (n > MOUNTS_MAX)
        return fail(E_INVALID, "a sandbox has at most %d mounts", MOUNTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        TRY(check_one(&mounts[i]));
        for (uint32_t k = 0; k < i; k++)
            TRY(mount_check_apart(str_of(mounts[i].target), str_of(mounts[k].target)));
    }
    return 0;
}

/* ---- what the operator allows ---- */

bool mount_allowed_next(struct str *rest, struct mount_allowed *out)
{
    struct str entry;
    if (rest->n == 0 || !str_split(rest, ',', &entry))
        return false;
    bool read_only = str_ends(entry, STR(":ro"));
    if (read_only)
        entry.n -= 3;
    bool good = entry.n > 1 && entry.n < MOUNT_PATH_MAX && path_is_clean(entry);
    *out = (struct mount_allowed){.dir = good ? entry : (struct str){0}, .read_only = read_only};
    return true;
}

bool mount_allowed_find(struct str source, const char *allowed, struct mount_allowed *out)
{
    struct str rest = str_of(allowed);
    struct mount_allowed one, best = {0};
    while (mount_allowed_next(&rest, &one)) {
        if (one.dir.n > best.dir.n && path_is_within(source, one.dir))
            best = one;
    }
    *out = best;
    return best.dir.n > 0;
}

bool mount_allowed_fixed_within(struct str source, const char *allowed, struct mount_allowed *out)
{
    struct str rest = str_of(allowed);
    struct mount_allowed one;
    while (mount_allowed_next(&rest, &one)) {
        if (one.dir.n > 0 && one.read_only && path_is_within(one.dir, source)) {
            *out = one;
            return true;
        }
    }
    return false;
}
