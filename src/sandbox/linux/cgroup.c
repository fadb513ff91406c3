#include "sandbox/linux/cgroup.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/linux/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARENT_GROUP "pi-managed"
#define CPU_PERIOD_US 100000
#define REMOVE_TRIES 100
#define REMOVE_WAIT_MS 10
#define FREEZE_WAIT_MS 20000 /* a process in the middle of a slow disk operation */
#define FREEZE_LOOK_MS 50

enum controller {
    MEMORY,
    PIDS,
    CPU,
    LIMITING,
    CPUACCT = LIMITING, /* version 1 only: there cpu time is counted apart */
    CONTROLLERS
};

static const char *const names[CONTROLLERS] = {"memory", "pids", "cpu", "cpuacct"};

/* Where the folder pi-managed goes, per controller; "" where we have none. */
struct hierarchies {
    char v2[STATE_PATH_MAX];
    bool in_v2[CONTROLLERS];
    char v1[CONTROLLERS][STATE_PATH_MAX];
};

static bool has_word(struct str list, char sep, const char *word)
{
    struct str part;
    while (str_split(&list, sep, &part)) {
        if (str_is(part, word))
            return true;
    }
    return false;
}

static bool read_small(const char *path, char *out, size_t cap)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);
    if (n < 0)
        return false;
    out[n] = 0;
    return true;
}

static bool write_small(const char *dir, const char *name, const char *text)
{
    char path[STATE_PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) >= 0;
}

static bool write_number(const char *dir, const char *name, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return write_small(dir, name, text);
}

static uint64_t read_number(const char *dir, const char *name)
{
    char path[STATE_PATH_MAX + 64], text[32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return read_small(path, text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* The number behind "key " in a file of such lines. */
static uint64_t read_keyed(const char *dir, const char *name, const char *key)
{
    char path[STATE_PATH_MAX + 64], text[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!read_small(path, text, sizeof text))
        return 0;
    size_t n = strlen(key);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return strtoull(line + n + 1, NULL, 10);
    }
    return 0;
}

/* One line of /proc/self/mountinfo: … mountpoint(5) … " - " type source options. */
static void take_mount(char *line, struct hierarchies *out)
{
    char *tail = strstr(line, " - "), *saved = NULL, *type, *options, *point = NULL;
    if (!tail)
        return;
    *tail = 0;
    type = strtok_r(tail + 3, " ", &saved);
    strtok_r(NULL, " ", &saved);
    options = strtok_r(NULL, " \n", &saved);
    char *word = strtok_r(line, " ", &saved);
    for (int i = 1; word && i < 5; i++)
        point = word = strtok_r(NULL, " ", &saved);
    if (!type || !point || strlen(point) >= STATE_PATH_MAX)
        return;
    if (strcmp(type, "cgroup2") == 0 && !out->v2[0])
        snprintf(out->v2, sizeof out->v2, "%s", point);
    for (int c = 0; strcmp(type, "cgroup") == 0 && options && c < CONTROLLERS; c++) {
        if (!out->v1[c][0] && has_word(str_of(options), ',', names[c]))
            snprintf(out->v1[c], STATE_PATH_MAX, "%s", point);
    }
}

static void find_mounts(struct hierarchies *out)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t cap = 0;
    while (f && getline(&line, &cap, f) > 0)
        take_mount(line, out);
    free(line);
    if (f)
        fclose(f);
}

/* Our own group's path below the v2 mount, "" at its top. */
static void own_group(char *out, size_t cap)
{
    char text[4096];
    out[0] = 0;
    if (!read_small("/proc/self/cgroup", text, sizeof text))
        return;
    const char *p = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    if (!p)
        return;
    p = strchr(p, '/');
    size_t n = p ? strcspn(p, "\n") : 0;
    if (n > 1 && n < cap) {
        memcpy(out, p, n);
        out[n] = 0;
    }
}

static bool may_manage(const char *group)
{
    char procs[STATE_PATH_MAX + 16];
    snprintf(procs, sizeof procs, "%s/cgroup.procs", group);
    return access(group, W_OK | X_OK) == 0 && access(procs, W_OK) == 0;
}

/* The highest group at or above ours that we may manage: for root the top itself; for a plain user
   what the system delegated (user@.service, a scope with Delegate=yes). "" when there is none. */
static void find_base(struct hierarchies *h)
{
    char own[STATE_PATH_MAX], path[STATE_PATH_MAX], best[STATE_PATH_MAX] = "";
    own_group(own, sizeof own);
    for (;;) {
        if (snprintf(path, sizeof path, "%s%s", h->v2, own) >= (int)sizeof path ||
            !may_manage(path))
            break;
        memcpy(best, path, sizeof best);
        char *slash = strrchr(own, '/');
        if (!slash)
            break;
        *slash = 0;
    }
    memcpy(h->v2, best, sizeof best);
}

static void look_for_hierarchies(struct hierarchies *out)
{
    *out = (struct hierarchies){0};
    find_mounts(out);
    if (out->v2[0])
        find_base(out);
    char path[STATE_PATH_MAX + 32], offered[512];
    snprintf(path, sizeof path, "%s/cgroup.controllers", out->v2);
    for (int c = 0; c < CONTROLLERS; c++) {
        if (out->v2[0] && read_small(path, offered, sizeof offered)) {
            offered[strcspn(offered, "\n")] = 0;
            out->in_v2[c] = has_word(str_of(offered), ' ', names[c]);
        }
        if (out->v1[c][0] && !may_manage(out->v1[c]))
            out->v1[c][0] = 0;
    }
}

/* Looked for once: they stay as they are while a process lives. */
static const struct hierarchies *hierarchies(void)
{
    static struct hierarchies known;
    static bool looked;
    if (!looked)
        look_for_hierarchies(&known);
    looked = true;
    return &known;
}

bool cgroup_by_birth(void)
{
    return hierarchies()->v2[0] != 0;
}

void cgroup_probe(struct sandbox_caps *out)
{
    const struct hierarchies h = *hierarchies();
    bool can[LIMITING];
    for (int c = 0; c < LIMITING; c++)
        can[c] = h.in_v2[c] || h.v1[c][0];
    can[PIDS] |= userns_counts_processes();
    out->limit_memory = can[MEMORY];
    out->limit_pids = can[PIDS];
    out->limit_cpu = can[CPU];
    out->reason[0] = 0;
    if (can[MEMORY] && can[PIDS] && can[CPU])
        return;
    snprintf(out->reason, sizeof out->reason, "no limits for%s%s%s: %s",
             can[MEMORY] ? "" : " memory", can[PIDS] ? "" : " processes", can[CPU] ? "" : " cpu",
             geteuid() == 0 ? "the kernel or container offers no writable cgroup for them"
                            : "run as root, or under systemd-run --user --scope -p Delegate=yes");
}

/* Another maker may remove the empty parent between our two steps, hence the tries. */
static bool make_group(const char *base, const char *id, char out[STATE_PATH_MAX])
{
    char parent[STATE_PATH_MAX];
    if (snprintf(parent, sizeof parent, "%s/" PARENT_GROUP, base) >= (int)sizeof parent ||
        snprintf(out, STATE_PATH_MAX, "%s/%s", parent, id) >= STATE_PATH_MAX)
        return false;
    for (int i = 0; i < 5; i++) {
        if (mkdir(parent, 0755) < 0 && errno != EEXIST)
            return false;
        if (mkdir(out, 0755) == 0 || errno == EEXIST)
            return true;
        if (errno != ENOENT)
            return false;
    }
    return false;
}

/* Records the group once, however many controllers share it. */
static bool record(struct state_run *run, const char *path)
{
    for (unsigned i = 0; i < run->cgroup_count; i++) {
        if (strcmp(run->cgroups[i], path) == 0)
            return true;
    }
    if (run->cgroup_count == STATE_CGROUPS_MAX)
        return false;
    snprintf(run->cgroups[run->cgroup_count++], STATE_PATH_MAX, "%s", path);
    return true;
}

static void enable(const char *base, enum controller c)
{
    char word[16], parent[STATE_PATH_MAX + 16];
    snprintf(word, sizeof word, "+%s", names[c]);
    snprintf(parent, sizeof parent, "%s/" PARENT_GROUP, base);
    /* Failing here shows when the limit itself cannot be written. */
    write_small(base, "cgroup.subtree_control", word);
    write_small(parent, "cgroup.subtree_control", word);
}

static bool limit_v2(const char *dir, enum controller c, const struct cgroup_limits *l)
{
    char text[64];
    switch (c) {
    case MEMORY:
        write_number(dir, "memory.swap.max", 0); /* absent without swap accounting */
        return write_number(dir, "memory.max", l->memory_bytes);
    case PIDS:
        return write_number(dir, "pids.max", l->pids);
    default:
        snprintf(text, sizeof text, "%llu %d",
                 (unsigned long long)l->cpu_milli * (CPU_PERIOD_US / 1000), CPU_PERIOD_US);
        return write_small(dir, "cpu.max", text);
    }
}

static bool limit_v1(const char *dir, enum controller c, const struct cgroup_limits *l)
{
    switch (c) {
    case MEMORY:
        if (!write_number(dir, "memory.limit_in_bytes", l->memory_bytes))
            return false;
        write_number(dir, "memory.memsw.limit_in_bytes",
                     l->memory_bytes); /* with swap accounting */
        return true;
    case PIDS:
        return write_number(dir, "pids.max", l->pids);
    default:
        return write_number(dir, "cpu.cfs_period_us", CPU_PERIOD_US) &&
               write_number(dir, "cpu.cfs_quota_us",
                            (uint64_t)l->cpu_milli * (CPU_PERIOD_US / 1000));
    }
}

static bool limit_one(const struct hierarchies *h, enum controller c, const char *id,
                      const struct cgroup_limits *l, struct state_run *run)
{
    char dir[STATE_PATH_MAX];
    if (h->in_v2[c] && make_group(h->v2, id, dir) && record(run, dir)) {
        enable(h->v2, c);
        if (limit_v2(dir, c, l))
            return true;
    }
    return h->v1[c][0] && make_group(h->v1[c], id, dir) && record(run, dir) && limit_v1(dir, c, l);
}

/* Groups that limit nothing. */
static void make_others(const struct hierarchies *h, const char *id, struct state_run *run)
{
    char dir[STATE_PATH_MAX];
    if (h->v2[0] && make_group(h->v2, id, dir))
        record(run, dir);
    else if (h->v1[CPUACCT][0] && make_group(h->v1[CPUACCT], id, dir))
        record(run, dir);
}

unsigned cgroup_make(const char *id, const struct cgroup_limits *limits, struct state_run *run)
{
    static const unsigned flags[LIMITING] = {CGROUP_NO_MEMORY, CGROUP_NO_PIDS, CGROUP_NO_CPU};
    const struct hierarchies h = *hierarchies();
    unsigned missing = 0;
    run->cgroup_count = 0;
    for (int c = 0; c < LIMITING; c++) {
        bool wanted = c != CPU || limits->cpu_milli > 0;
        if (wanted && !limit_one(&h, (enum controller)c, id, limits, run))
            missing |= flags[c];
    }
    make_others(&h, id, run);
    return missing;
}

const struct cgroup_door cgroup_door_none = {.v2 = -1, .v1 = {-1, -1, -1, -1, -1, -1}};

err cgroup_open(const struct state_run *run, struct cgroup_door *out)
{
    *out = cgroup_door_none;
    for (unsigned i = 0; i < run->cgroup_count; i++) {
        char path[STATE_PATH_MAX + 16];
        snprintf(path, sizeof path, "%s/tasks", run->cgroups[i]);
        out->v1[i] = open(path, O_WRONLY | O_CLOEXEC);
        if (out->v1[i] >= 0)
            continue;
        if (errno != ENOENT) /* v2 has no such file */
            return fail_errno("open %s", path);
        out->v2_path = run->cgroups[i];
        out->v2 = open(out->v2_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (out->v2 < 0)
            return fail_errno("open %s", out->v2_path);
    }
    return 0;
}

void cgroup_close(struct cgroup_door *door)
{
    fd_close(&door->v2);
    for (unsigned i = 0; i < STATE_CGROUPS_MAX; i++)
        fd_close(&door->v1[i]);
}

size_t cgroup_door_fds(const struct cgroup_door *door, int out[STATE_CGROUPS_MAX])
{
    size_t n = 0;
    for (unsigned i = 0; i < STATE_CGROUPS_MAX; i++) {
        if (door->v1[i] >= 0)
            out[n++] = door->v1[i];
    }
    return n;
}

err cgroup_join(int tasks_fd)
{
    /* The right to do so is that of the maker, who opened the file. */
    return write(tasks_fd, "0", 1) < 0 ? fail_errno("join the control groups") : 0;
}

err cgroup_move(const struct cgroup_door *door, pid_t pid)
{
    if (door->v2 >= 0 && !write_number(door->v2_path, "cgroup.procs", (uint64_t)pid))
        return fail_errno("put the sandbox into %s", door->v2_path);
    return 0;
}

void cgroup_usage(const struct state_run *run, struct cgroup_usage *out)
{
    *out = (struct cgroup_usage){0};
    for (unsigned i = 0; i < run->cgroup_count; i++) {
        const char *dir = run->cgroups[i];
        uint64_t memory = read_number(dir, "memory.current");
        out->memory_bytes += memory ? memory : read_number(dir, "memory.usage_in_bytes");
        out->pids += (uint32_t)read_number(dir, "pids.current");
        /* Two groups may count the same time. */
        uint64_t cpu_us = read_keyed(dir, "cpu.stat", "usage_usec");
        if (cpu_us == 0)
            cpu_us = read_number(dir, "cpuacct.usage") / 1000;
        out->cpu_us = cpu_us > out->cpu_us ? cpu_us : out->cpu_us;
        out->out_of_memory |= read_keyed(dir, "memory.events", "oom_kill") > 0 ||
                              read_keyed(dir, "memory.oom_control", "oom_kill") > 0;
    }
}

/* NULL when there is none. Only version 2 has that file. */
static const char *v2_group(const struct state_run *run)
{
    for (unsigned i = 0; i < run->cgroup_count; i++) {
        char path[STATE_PATH_MAX + 16];
        snprintf(path, sizeof path, "%s/cgroup.freeze", run->cgroups[i]);
        if (access(path, F_OK) == 0)
            return run->cgroups[i];
    }
    return NULL;
}

/* The kernel announces a change by POLLPRI, until the file is read again through the same
   descriptor. The looks in between are for kernels that forget to. */
static bool wait_frozen(const char *dir)
{
    char path[STATE_PATH_MAX + 16], text[256];
    snprintf(path, sizeof path, "%s/cgroup.events", dir);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t until = clock_monotonic_ms(clock_real()) + FREEZE_WAIT_MS;
    while (fd >= 0) {
        ssize_t n = pread(fd, text, sizeof text - 1, 0);
        text[n > 0 ? n : 0] = 0;
        if (strstr(text, "frozen 1"))
            return true;
        if (clock_monotonic_ms(clock_real()) >= until)
            return false;
        struct pollfd p = {.fd = fd, .events = POLLPRI};
        poll(&p, 1, FREEZE_LOOK_MS);
    }
    return false;
}

err cgroup_freeze(const struct state_run *run, bool *out_frozen)
{
    const char *dir = v2_group(run);
    if (!dir) {
        *out_frozen = false;
        return 0;
    }
    if (!write_small(dir, "cgroup.freeze", "1"))
        return fail_errno("freeze %s", dir);
    if (!wait_frozen(dir)) {
        cgroup_thaw(run);
        return fail(E_TIMEOUT, "the sandbox's processes did not come to rest within %d s",
                    FREEZE_WAIT_MS / 1000);
    }
    *out_frozen = true;
    return 0;
}

bool cgroup_can_freeze(const struct state_run *run)
{
    return v2_group(run) != NULL;
}

void cgroup_thaw(const struct state_run *run)
{
    const char *dir = v2_group(run);
    if (dir)
        write_small(dir, "cgroup.freeze", "0");
}

static void kill_members(const char *dir)
{
    if (write_small(dir, "cgroup.kill", "1"))
        return;
    char path[STATE_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    FILE *f = fopen(path, "re");
    int pid;
    while (f && fscanf(f, "%d", &pid) == 1) {
        if (pid > 1)
            kill(pid, SIGKILL);
    }
    if (f)
        fclose(f);
}

/* The kernel lets go of dead members a little after their death and offers v1 users nothing to wait
   on, so this asks again, a bounded number of times. */
static err remove_group(const char *dir)
{
    for (int i = 0; i < REMOVE_TRIES; i++) {
        if (rmdir(dir) == 0 || errno == ENOENT)
            return 0;
        if (errno != EBUSY)
            return fail_errno("remove %s", dir);
        kill_members(dir);
        poll(NULL, 0, REMOVE_WAIT_MS);
    }
    return fail(E_TIMEOUT, "%s still has processes that do not die", dir);
}

static err remove_with_parent(const char *dir)
{
    TRY(remove_group(dir));
    char parent[STATE_PATH_MAX];
    snprintf(parent, sizeof parent, "%s", dir);
    char *slash = strrchr(parent, '/');
    if (slash) {
        *slash = 0;
        rmdir(parent); /* stays while other sandboxes are in it */
    }
    return 0;
}

static err remove_named(const char *base, const char *id)
{
    char dir[STATE_PATH_MAX];
    if (!base[0] ||
        snprintf(dir, sizeof dir, "%s/" PARENT_GROUP "/%s", base, id) >= (int)sizeof dir)
        return 0;
    return access(dir, F_OK) == 0 ? remove_with_parent(dir) : 0;
}

err cgroup_remove(const char *id, const struct state_run *run)
{
    for (unsigned i = 0; i < run->cgroup_count; i++)
        TRY(remove_with_parent(run->cgroups[i]));
    const struct hierarchies h = *hierarchies();
    TRY(remove_named(h.v2, id));
    for (int c = 0; c < CONTROLLERS; c++)
        TRY(remove_named(h.v1[c], id));
    return 0;
}
