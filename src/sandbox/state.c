#include "sandbox/state.h"

#include "base/fd.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE_FILE_MAX (64u << 10)

static err file_path(const char *dir, const char *name, char out[PATH_MAX])
{
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        return fail(E_INVALID, "the sandbox folder %s has too long a name", dir);
    return 0;
}

err state_lock(const char *dir, int *out_fd)
{
    AUTO_FD fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "the sandbox folder %s does not exist", dir)
                               : fail_errno("open the sandbox folder %s", dir);
    /* The holder is another maker, whose own waits are all bounded. */
    while (flock(fd, LOCK_EX) < 0) {
        if (errno != EINTR)
            return fail_errno("lock the sandbox folder %s", dir);
    }
    *out_fd = fd_take(&fd);
    return 0;
}

bool state_is_locked(const char *dir)
{
    AUTO_FD fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

bool state_spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return strcmp(a->id, b->id) == 0 && strcmp(a->tenant, b->tenant) == 0 &&
           strcmp(a->image, b->image) == 0 && a->cpu_milli == b->cpu_milli &&
           a->memory_mib == b->memory_mib && a->pids == b->pids && a->disk_mib == b->disk_mib;
}

static bool mount_equal(const struct sandbox_mount *a, const struct sandbox_mount *b)
{
    return a->type == b->type && a->read_only == b->read_only &&
           strcmp(a->source, b->source) == 0 && strcmp(a->target, b->target) == 0;
}

bool state_mounts_equal(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    if (a->mount_count != b->mount_count)
        return false;
    for (uint32_t i = 0; i < a->mount_count; i++) {
        if (!mount_equal(&a->mounts[i], &b->mounts[i]))
            return false;
    }
    return true;
}

/* Copies a string member; E_INVALID when it is missing, holds a NUL or does not fit. */
static err take_text(const json_t *o, const char *key, size_t cap, char *out)
{
    struct str s = json_get_str(o, key);
    if (!s.p || s.n >= cap || str_has_nul(s))
        return fail(E_INVALID, "%s is missing or too long", key);
    memcpy(out, s.p, s.n);
    out[s.n] = 0;
    return 0;
}

static err take_number(const json_t *o, const char *key, int64_t max, int64_t *out)
{
    int64_t n = json_get_int(o, key, -1);
    if (n < 0 || n > max)
        return fail(E_INVALID, "%s is missing or out of range", key);
    *out = n;
    return 0;
}

static err take_u32(const json_t *o, const char *key, uint32_t *out)
{
    int64_t n = 0;
    TRY(take_number(o, key, UINT32_MAX, &n));
    *out = (uint32_t)n;
    return 0;
}

/* Records of before mounts have none. */
static err take_mounts(const json_t *o, struct sandbox_spec *spec)
{
    const json_t *list = json_object_get(o, "mounts");
    if (list == NULL)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > MOUNTS_MAX)
        return fail(E_INVALID, "mounts is not a short list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        struct sandbox_mount *m = &spec->mounts[spec->mount_count++];
        m->type = json_get_bool(one, "bind", false) ? MOUNT_BIND : MOUNT_VOLUME;
        m->read_only = json_get_bool(one, "readOnly", true);
        TRY(take_text(one, "source", sizeof m->source, m->source));
        TRY(take_text(one, "target", sizeof m->target, m->target));
    }
    return mounts_check(spec->mounts, spec->mount_count);
}

err state_parse_spec(struct str text, struct sandbox_spec *out)
{
    AUTO_JSON o = NULL;
    TRY(json_read(text, &o));
    struct sandbox_spec s = {0};
    TRY(take_text(o, "id", sizeof s.id, s.id));
    TRY(take_text(o, "tenant", sizeof s.tenant, s.tenant));
    TRY(take_text(o, "image", sizeof s.image, s.image));
    TRY(take_u32(o, "cpuMilli", &s.cpu_milli));
    TRY(take_u32(o, "memoryMib", &s.memory_mib));
    TRY(take_u32(o, "pids", &s.pids));
    TRY(take_u32(o, "diskMib", &s.disk_mib));
    TRY(take_mounts(o, &s));
    *out = s;
    return 0;
}

/* Whole or not at all for every process; not synced, see the header. */
static err write_file(const char *dir, const char *name, json_t *content)
{
    char path[PATH_MAX], temp[PATH_MAX + 8];
    TRY(file_path(dir, name, path));
    snprintf(temp, sizeof temp, "%s.new", path);
    AUTO_BUF text = {0};
    json_write(content, &text);
    AUTO_FD fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail_errno("create %s", temp);
    TRY(fd_write_full(fd, text.p, text.n));
    return rename(temp, path) < 0 ? fail_errno("rename %s", temp) : 0;
}

static json_t *mounts_json(const struct sandbox_spec *spec)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < spec->mount_count; i++) {
        const struct sandbox_mount *m = &spec->mounts[i];
        json_t *one =
            json_pack("{s:b, s:b}", "bind", m->type == MOUNT_BIND, "readOnly", m->read_only);
        json_set_str(one, "source", str_of(m->source));
        json_set_str(one, "target", str_of(m->target));
        json_array_append_new(list, one);
    }
    return list;
}

err state_write_spec(const char *dir, const struct sandbox_spec *spec)
{
    AUTO_JSON o = json_object();
    json_set_str(o, "id", str_of(spec->id));
    json_set_str(o, "tenant", str_of(spec->tenant));
    json_set_str(o, "image", str_of(spec->image));
    json_object_set_new(o, "cpuMilli", json_integer(spec->cpu_milli));
    json_object_set_new(o, "memoryMib", json_integer(spec->memory_mib));
    json_object_set_new(o, "pids", json_integer(spec->pids));
    json_object_set_new(o, "diskMib", json_integer(spec->disk_mib));
    if (spec->mount_count)
        json_object_set_new(o, "mounts", mounts_json(spec));
    return write_file(dir, "spec.json", o);
}

err state_read_spec(const char *dir, struct sandbox_spec *out)
{
    char path[PATH_MAX];
    TRY(file_path(dir, "spec.json", path));
    AUTO_BUF text = {0};
    TRY(fd_read_file(path, STATE_FILE_MAX, &text));
    if (state_parse_spec(buf_str(&text), out))
        return fail(E_NOT_FOUND, "%s is damaged (%s)", path, err_text());
    return 0;
}

static err take_cgroups(const json_t *o, struct state_run *run)
{
    const json_t *list = json_object_get(o, "cgroups");
    if (!json_is_array(list) || json_array_size(list) > STATE_CGROUPS_MAX)
        return fail(E_INVALID, "cgroups is not a short list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *path = json_string_value(item);
        if (!path || path[0] != '/' || json_string_length(item) >= STATE_PATH_MAX)
            return fail(E_INVALID, "cgroups holds something that is not a path");
        snprintf(run->cgroups[run->cgroup_count++], STATE_PATH_MAX, "%s", path);
    }
    return 0;
}

err state_parse_run(struct str text, struct state_run *out)
{
    AUTO_JSON o = NULL;
    TRY(json_read(text, &o));
    struct state_run r = {0};
    int64_t pid = 0, ticks = 0;
    TRY(take_number(o, "pid", INT32_MAX, &pid));
    TRY(take_number(o, "startTicks", INT64_MAX, &ticks));
    TRY(take_text(o, "bootId", sizeof r.init.boot_id, r.init.boot_id));
    TRY(take_number(o, "startedAtMs", INT64_MAX, &r.started_at_ms));
    TRY(take_text(o, "limitsReason", sizeof r.limits_reason, r.limits_reason));
    TRY(take_cgroups(o, &r));
    if (pid < 2) /* never signal "everyone", a group, or the host's own init */
        return fail(E_INVALID, "pid is out of range");
    r.init.pid = (pid_t)pid;
    r.init.start_ticks = (uint64_t)ticks;
    r.limits_enforced = json_get_bool(o, "limitsEnforced", false);
    *out = r;
    return 0;
}

err state_write_run(const char *dir, const struct state_run *run)
{
    AUTO_JSON o = json_object();
    json_object_set_new(o, "pid", json_integer(run->init.pid));
    json_object_set_new(o, "startTicks", json_integer((json_int_t)run->init.start_ticks));
    json_set_str(o, "bootId", str_of(run->init.boot_id));
    json_object_set_new(o, "startedAtMs", json_integer(run->started_at_ms));
    json_object_set_new(o, "limitsEnforced", json_boolean(run->limits_enforced));
    json_set_str(o, "limitsReason", str_of(run->limits_reason));
    json_t *list = json_array();
    for (unsigned i = 0; i < run->cgroup_count; i++)
        json_array_append_new(list, json_str(str_of(run->cgroups[i])));
    json_object_set_new(o, "cgroups", list);
    return write_file(dir, "run.json", o);
}

err state_read_run(const char *dir, struct state_run *out)
{
    char path[PATH_MAX];
    TRY(file_path(dir, "run.json", path));
    AUTO_BUF text = {0};
    TRY(fd_read_file(path, STATE_FILE_MAX, &text));
    if (state_parse_run(buf_str(&text), out))
        return fail(E_IO, "%s is damaged (%s)", path, err_text());
    return 0;
}

err state_remove_run(const char *dir)
{
    char path[PATH_MAX];
    TRY(file_path(dir, "run.json", path));
    if (unlink(path) < 0 && errno != ENOENT)
        return fail_errno("remove %s", path);
    return 0;
}
