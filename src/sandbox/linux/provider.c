/* The verbs of the provider `linux`, each from its request to its record (provider.h). */
#include "sandbox/linux/linux.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/tree.h"
#include "base/walk.h"
#include "images/meta.h"
#include "images/store.h"
#include "sandbox/hands.h"
#include "sandbox/ledger.h"
#include "sandbox/linux/boot.h"
#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/disk.h"
#include "sandbox/linux/image_host.h"
#include "sandbox/linux/init.h"
#include "sandbox/linux/inside.h"
#include "sandbox/linux/layer.h"
#include "sandbox/linux/limits.h"
#include "sandbox/linux/mounts.h"
#include "sandbox/linux/probe.h"
#include "sandbox/linux/rest.h"
#include "sandbox/linux/userns.h"
#include "sandbox/linux/volumes.h"
#include "sandbox/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define DEFAULT_PIDS 256
#define HELLO_WAIT_MS 20000
#define AGENT_BACKLOG 256 /* connections that may wait while pi-hands is busy */

/* ---- create ---- */

static err check_limits(const struct sandbox_spec *spec)
{
    if (spec->disk_mib > 0 && spec->disk_mib < DISK_MIN_MIB)
        return fail(E_INVALID, "a sandbox needs at least %d MiB of disk, not %u", DISK_MIN_MIB,
                    spec->disk_mib);
    if (spec->memory_mib > 0 && spec->memory_mib < 32)
        return fail(E_INVALID, "a sandbox needs at least 32 MiB of memory, not %u",
                    spec->memory_mib);
    if (spec->pids > 0 && spec->pids < 16)
        return fail(E_INVALID, "a sandbox needs at least 16 processes, not %u", spec->pids);
    if (spec->cpu_milli > 0 && spec->cpu_milli < 10)
        return fail(E_INVALID, "a sandbox needs at least 10 thousandths of a cpu, not %u",
                    spec->cpu_milli);
    return 0;
}

static bool is_host(const struct sandbox_spec *spec)
{
    return strcmp(spec->image, "host") == 0;
}

/* From now on, wherever the name may point later: its own files lie on those of this image. */
static err hold_image(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    struct image image;
    return is_host(spec) ? 0 : image_hold(place->images, spec->image, spec->id, &image);
}

/* Only its owner looks inside, but control passes through to the agent socket. */
static err make_dir(const struct sandbox_place *place, int *out_lock)
{
    if (mkdir(place->dir, 0711) == 0 ? chmod(place->dir, 0711) < 0 : errno != EEXIST)
        return fail_errno("make the sandbox folder %s", place->dir);
    return state_lock(place->dir, out_lock);
}

/* There while a fork is under way: what else is there is then half made. */
#define HALF_MADE "half-made"

static bool has(const struct sandbox_place *place, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", place->dir, name);
    return lstat(path, &st) == 0;
}

static err remove_files(void *arg, uint64_t *out)
{
    char path[PATH_MAX];
    (void)out;
    snprintf(path, sizeof path, "%s/" LAYER_FOLDER, (const char *)arg);
    TRY(tree_remove(path));
    snprintf(path, sizeof path, "%s/" LAYER_DISK, (const char *)arg);
    return unlink(path) < 0 && errno != ENOENT ? fail_errno("remove %s", path) : 0;
}

/* Of a fork that failed. */
static err remove_half_made(const struct sandbox_place *place)
{
    char path[PATH_MAX];
    uint64_t none;
    if (!has(place, HALF_MADE))
        return 0;
    TRY(userns_call(remove_files, (void *)(uintptr_t)place->dir, &none));
    snprintf(path, sizeof path, "%s/" HALF_MADE, place->dir);
    return unlink(path) < 0 ? fail_errno("remove %s", path) : 0;
}

/* They are claimed by each start (volumes.h): what was never started keeps no volume. */
static err write_without_mounts(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    struct sandbox_spec made = *spec;
    made.mount_count = 0;
    return state_write_spec(place->dir, &made);
}

static err linux_create(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    TRY(image_name_check(spec->image));
    TRY(check_limits(spec));
    AUTO_FD lock = -1;
    TRY(make_dir(place, &lock));
    struct sandbox_spec made;
    err e = state_read_spec(place->dir, &made);
    if (e == E_NOT_FOUND) {
        TRY(remove_half_made(place));
        TRY(hold_image(spec, place));
        return write_without_mounts(spec, place);
    }
    if (!e && !state_spec_equal(&made, spec))
        return fail(E_CONFLICT, "sandbox %s exists already, made from another request", spec->id);
    return e;
}

/* ---- what runs ---- */

/* Reads run.json; false when nothing was started. A damaged file (power cut: it is not synced)
   counts as started and gone. *out_pidfd is -1 unless the init lives. */
static bool read_started(const char *dir, struct state_run *out, int *out_pidfd)
{
    *out = (struct state_run){0};
    *out_pidfd = -1;
    err e = state_read_run(dir, out);
    if (!e)
        *out_pidfd = init_open(&out->init);
    return e != E_NOT_FOUND;
}

static bool linux_lives(const char *dir)
{
    AUTO_FD init = -1;
    struct state_run run;
    if (state_is_locked(dir))
        return true;
    read_started(dir, &run, &init);
    return init >= 0;
}

static struct ledger ledger_of(const struct sandbox_place *place)
{
    return (struct ledger){
        .folder = place->sandboxes, .capacity_mib = place->memory_mib, .lives = linux_lives};
}

/* Removes what a run leaves outside its namespaces. The init is dead already. */
static err clear_run(const struct sandbox_spec *spec, const struct sandbox_place *place,
                     const struct state_run *run)
{
    TRY(cgroup_remove(spec->id, run));
    TRY(image_host_release(place->images, spec->id));
    TRY(root_clean(place->dir));
    if (unlink(place->socket) < 0 && errno != ENOENT)
        return fail_errno("remove the agent socket %s", place->socket);
    TRY(state_remove_run(place->dir));
    const struct ledger ledger = ledger_of(place);
    return ledger_release(&ledger, spec->id);
}

/* ---- start ---- */

static err listen_agent(const struct sandbox_place *place, int *out_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(place->socket) >= sizeof address.sun_path)
        return fail(E_INVALID, "the agent socket's path %s is too long (107 bytes at most)",
                    place->socket);
    memcpy(address.sun_path, place->socket, strlen(place->socket) + 1);
    AUTO_FD s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return fail_errno("make the agent socket");
    unlink(place->socket);
    mode_t old = umask(0177); /* 0600 from its first moment on */
    int r = bind(s, (const struct sockaddr *)&address, sizeof address);
    umask(old);
    if (r < 0)
        return fail_errno("bind the agent socket %s", place->socket);
    if (place->socket_owner != geteuid() &&
        chown(place->socket, place->socket_owner, (gid_t)-1) < 0)
        return fail_errno("give the agent socket to uid %u", (unsigned)place->socket_owner);
    if (listen(s, AGENT_BACKLOG) < 0)
        return fail_errno("listen on the agent socket %s", place->socket);
    *out_fd = fd_take(&s);
    return 0;
}

static err record_run(const struct sandbox_place *place, pid_t pid, struct state_run *run)
{
    TRY(init_identify(pid, &run->init));
    run->started_at_ms = clock_wall_ms(clock_real());
    return state_write_run(place->dir, run);
}

static uint32_t pids_of(const struct sandbox_spec *spec)
{
    return spec->pids ? spec->pids : DEFAULT_PIDS;
}

static err make_groups(const struct sandbox_spec *spec, const struct sandbox_place *place,
                       struct boot *b, struct state_run *run)
{
    const struct cgroup_limits limits = {
        .memory_bytes = (uint64_t)sandbox_memory_mib(spec) << 20,
        .pids = pids_of(spec),
        .cpu_milli = spec->cpu_milli,
    };
    unsigned missing = cgroup_make(spec->id, &limits, run);
    if (userns_counts_processes())
        missing &= ~CGROUP_NO_PIDS;
    TRY(limits_settle(spec, place, missing, spec->disk_mib > 0 && !b->root.disk, run));
    return cgroup_open(run, &b->door);
}

/* The init is born early: it makes its namespaces while we make the rest. Nothing of the sandbox's
   own runs before its groups, its record and its network are there. */
static err boot_steps(const struct sandbox_spec *spec, const struct sandbox_place *place,
                      struct boot *b, struct state_run *run)
{
    bool early = cgroup_by_birth();
    if (early)
        TRY(make_groups(spec, place, b, run));
    TRY(boot_clone(b));
    TRY(listen_agent(place, &b->listen_fd));
    TRY(root_prepare(&b->root));
    if (!early)
        TRY(make_groups(spec, place, b, run));
    TRY(record_run(place, b->pid, run));
    TRY(boot_go(b));
    return hands_hello(place->socket, HELLO_WAIT_MS);
}

static err boot_with(const struct sandbox_spec *spec, const struct sandbox_place *place,
                     struct boot *b, struct state_run *run)
{
    char fs_dir[PATH_MAX], disk[PATH_MAX];
    struct image_host host;
    struct image image;
    AUTO_JSON meta = NULL;
    const char *env[IMAGE_ENV_MAX + 1];
    if (!is_host(spec)) {
        TRY(image_held(place->images, spec->image, spec->id, &image));
        TRY(image_meta_read(image.folder, &meta));
    }
    image_meta_env(meta, env);
    b->env = env;
    TRY(image_host_use(place->images, place->runtime, spec->id, &host));
    snprintf(fs_dir, sizeof fs_dir, "%s/" LAYER_FOLDER, place->dir);
    snprintf(disk, sizeof disk, "%s/" LAYER_DISK, place->dir);
    bool on_disk = false;
    TRY(limits_prepare_disk(spec, place, disk, &on_disk));
    b->privileged = userns_is_privileged();
    b->uid_base = place->uid_base;
    b->pids = pids_of(spec);
    b->root = (struct root_plan){.fs_dir = fs_dir,
                                 .skeleton = host.root,
                                 .image = is_host(spec) ? NULL : image.rootfs,
                                 .tools = is_host(spec) ? NULL : host.tools,
                                 .runtime = place->runtime,
                                 .disk = on_disk ? disk : NULL,
                                 .owner = b->privileged ? place->uid_base : geteuid(),
                                 .tmp_mib = sandbox_memory_mib(spec) / 2};
    b->mounts = (struct mounts_plan){.count = spec->mount_count,
                                     .list = spec->mounts,
                                     .volumes = place->volumes,
                                     .tenant = spec->tenant,
                                     .allow_mount = place->allow_mount,
                                     .privileged = b->privileged,
                                     .uid_base = place->uid_base};
    err e = boot_steps(spec, place, b, run);
    cgroup_close(&b->door);
    fd_close(&b->listen_fd);
    b->env = NULL; /* on our stack */
    return e;
}

static err boot_sandbox(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    struct boot b = {.listen_fd = -1, .door = cgroup_door_none, .pidfd = -1, .channel = -1};
    struct state_run run = {0};
    err e = boot_with(spec, place, &b, &run);
    if (!e) {
        boot_release(&b);
        return 0;
    }
    struct err_slot why;
    err_save(&why);
    boot_abandon(&b);
    clear_run(spec, place, &run);
    return err_restore(&why);
}

static err check_made(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    struct sandbox_spec made;
    TRY(state_read_spec(place->dir, &made));
    if (!state_spec_equal(&made, spec))
        return fail(E_CONFLICT, "sandbox %s was made from another request", spec->id);
    return 0;
}

/* The init lives. True with the answer to the start in *out; false when it is as good as dead. */
static bool answers(const struct sandbox_place *place, const struct state_init *id, int init,
                    err *out)
{
    if (access(place->socket, F_OK) < 0)
        return false; /* somebody removed the socket: it cannot be reached any more */
    *out = hands_hello(place->socket, HELLO_WAIT_MS);
    /* Else it hung up, or answered with its last breath. */
    return !init_is_dying(id) && !init_wait_end(init, 0);
}

static err linux_start(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    AUTO_FD lock = -1, init = -1;
    TRY(state_lock(place->dir, &lock));
    TRY(check_made(spec, place));
    struct state_run run;
    if (read_started(place->dir, &run, &init)) {
        if (init >= 0)
            rest_end(place->dir, &run, init); /* of a maker that died */
        err answer = 0;
        if (init >= 0 && answers(place, &run.init, init, &answer))
            return answer;
        if (init >= 0)
            TRY(init_end(init, 0));
        TRY(clear_run(spec, place, &run));
    }
    const struct ledger ledger = ledger_of(place);
    TRY(volumes_claim(spec, place));
    TRY(ledger_reserve(&ledger, spec->id, sandbox_memory_mib(spec)));
    return boot_sandbox(spec, place);
}

/* ---- fork ---- */

/* Locked, and at rest if it runs. */
static err copy_from(const struct sandbox_spec *spec, const struct sandbox_place *place,
                     const struct sandbox_place *from, bool *out_live)
{
    AUTO_FD init = -1;
    struct state_run run;
    char disk[PATH_MAX];
    bool on_disk = false;
    snprintf(disk, sizeof disk, "%s/" LAYER_DISK, place->dir);
    TRY(limits_prepare_disk(spec, place, disk, &on_disk));
    read_started(from->dir, &run, &init);
    if (init >= 0)
        TRY(rest_begin(from->dir, &run, init));
    err e = layer_copy(
        &(struct layer){.dir = from->dir,
                        .uid_base = from->uid_base,
                        .mounted = init >= 0,
                        .on_disk = has(from, LAYER_DISK)},
        &(struct layer){.dir = place->dir, .uid_base = place->uid_base, .on_disk = on_disk});
    struct err_slot why;
    err_save(&why);
    if (init >= 0)
        rest_end(from->dir, &run, init);
    *out_live = init >= 0;
    return e ? err_restore(&why) : 0;
}

static err fork_locked(const struct sandbox_spec *spec, const struct sandbox_place *place,
                       const char *from_id, const struct sandbox_place *from, bool *out_live)
{
    AUTO_FD lock = -1;
    struct sandbox_spec other, made = *spec;
    TRY(state_lock(from->dir, &lock));
    TRY(state_read_spec(from->dir, &other));
    if (spec->image[0] && strcmp(other.image, spec->image) != 0)
        return fail(E_INVALID, "the files of %s lie on the image %s, not on %s", from_id,
                    other.image, spec->image);
    memcpy(made.image, other.image, sizeof made.image);
    if (!is_host(&made))
        TRY(image_hold_same(place->images, made.image, from_id, made.id));
    TRY(copy_from(&made, place, from, out_live));
    TRY(write_without_mounts(&made, place)); /* from here on it is there */
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" HALF_MADE, place->dir);
    return unlink(path) < 0 ? fail_errno("remove %s", path) : 0;
}

static err mark_half_made(const struct sandbox_place *place)
{
    char path[PATH_MAX];
    TRY(remove_half_made(place));
    if (has(place, LAYER_FOLDER) || has(place, LAYER_DISK))
        return fail(E_CONFLICT, "there are files in %s already", place->dir);
    snprintf(path, sizeof path, "%s/" HALF_MADE, place->dir);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? fail_errno("make %s", path) : 0;
}

static err linux_fork(const struct sandbox_spec *spec, const struct sandbox_place *place,
                      const char *from_id, const struct sandbox_place *from, bool *out_live)
{
    AUTO_FD lock = -1;
    struct sandbox_spec made;
    TRY(check_limits(spec));
    TRY(make_dir(place, &lock));
    if (state_read_spec(place->dir, &made) == 0)
        return fail(E_CONFLICT, "sandbox %s exists already", spec->id);
    TRY(mark_half_made(place));
    err e = fork_locked(spec, place, from_id, from, out_live);
    if (!e)
        return 0;
    struct err_slot why;
    err_save(&why);
    remove_half_made(place);
    image_release(place->images, spec->id);
    return err_restore(&why);
}

/* ---- stop, destroy, status ---- */

static err stop_locked(const struct sandbox_spec *spec, const struct sandbox_place *place,
                       uint32_t grace_ms)
{
    AUTO_FD init = -1;
    struct state_run run;
    read_started(place->dir, &run, &init);
    if (init >= 0)
        TRY(init_end(init, grace_ms));
    return clear_run(spec, place, &run);
}

static err linux_stop(const struct sandbox_spec *spec, const struct sandbox_place *place,
                      uint32_t grace_ms)
{
    AUTO_FD lock = -1;
    err e = state_lock(place->dir, &lock);
    if (e)
        return e == E_NOT_FOUND ? 0 : e;
    return stop_locked(spec, place, grace_ms);
}

static err linux_destroy(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    AUTO_FD lock = -1;
    err e = state_lock(place->dir, &lock);
    if (e)
        return e == E_NOT_FOUND ? 0 : e;
    TRY(stop_locked(spec, place, 0));
    TRY(image_release(place->images, spec->id));
    uint64_t none; /* some of the files may belong to other ids of ours */
    TRY(userns_call(remove_files, (void *)(uintptr_t)place->dir, &none));
    return tree_remove(place->dir);
}

static void explain_crash(const struct state_run *run, struct sandbox_status *out)
{
    struct cgroup_usage usage;
    cgroup_usage(run, &usage);
    struct state_init now;
    if (init_identify(getpid(), &now) == 0 && strcmp(now.boot_id, run->init.boot_id) != 0)
        snprintf(out->reason, sizeof out->reason, "this machine was restarted");
    else if (usage.out_of_memory)
        snprintf(out->reason, sizeof out->reason,
                 "its init died; processes were killed for lack of memory");
    else
        snprintf(out->reason, sizeof out->reason, "its init died or was killed from outside");
}

static void report_running(const struct state_run *run, struct sandbox_status *out)
{
    struct cgroup_usage usage;
    cgroup_usage(run, &usage);
    out->state = SANDBOX_RUNNING;
    out->started_at_ms = run->started_at_ms;
    out->memory_bytes = usage.memory_bytes;
    out->cpu_us = usage.cpu_us;
    out->pids = usage.pids;
    out->limits_enforced = run->limits_enforced;
    snprintf(out->reason, sizeof out->reason, "%s", run->limits_reason);
}

static err measure(void *arg, uint64_t *out)
{
    return walk_measure(arg, out);
}

/* What it takes of the host's disk, beyond what sandboxes share. */
static err disk_use(const struct sandbox_place *place, uint64_t *out)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/" LAYER_DISK, place->dir);
    if (stat(path, &st) == 0) {
        *out = (uint64_t)st.st_blocks * 512;
        return 0;
    }
    snprintf(path, sizeof path, "%s/" LAYER_FOLDER, place->dir);
    return userns_call(measure, path, out);
}

static err linux_status(const struct sandbox_spec *spec, const struct sandbox_place *place,
                        struct sandbox_status *out)
{
    struct sandbox_status s = {.state = SANDBOX_NONE};
    snprintf(s.id, sizeof s.id, "%s", spec->id);
    struct sandbox_spec made;
    err e = state_read_spec(place->dir, &made);
    if (e && e != E_NOT_FOUND)
        return e;
    if (!e) {
        AUTO_FD init = -1;
        struct state_run run;
        snprintf(s.tenant, sizeof s.tenant, "%s", made.tenant);
        snprintf(s.image, sizeof s.image, "%s", made.image);
        s.state = SANDBOX_STOPPED;
        if (read_started(place->dir, &run, &init)) {
            s.state = SANDBOX_CRASHED;
            if (init >= 0)
                report_running(&run, &s);
            else
                explain_crash(&run, &s);
        }
        TRY(disk_use(place, &s.disk_bytes));
    }
    *out = s;
    return 0;
}

/* ---- making images ---- */

static err linux_listen(const struct sandbox_spec *spec, const struct sandbox_place *place,
                        uint16_t port, int *out_fd)
{
    AUTO_FD init = -1;
    struct state_run run;
    if (!read_started(place->dir, &run, &init) || init < 0)
        return fail(E_CLOSED, "the sandbox %s does not run", spec->id);
    return inside_listen(init, port, out_fd);
}

static err linux_layer(const struct sandbox_place *place, char *out)
{
    return snprintf(out, PATH_MAX, "%s/fs/upper", place->dir) >= PATH_MAX
               ? fail(E_INVALID, "the sandbox folder %s has too long a name", place->dir)
               : 0;
}

/* Also touches the memory that a start will need: in a new process each first touch costs. */
static void linux_warm_up(void)
{
    struct sandbox_caps caps;
    struct sandbox_spec spec;
    boot_warm_up(); /* a failure comes again, with its reason, when something boots */
    cgroup_probe(&caps);
    (void)state_parse_spec(STR("{\"id\":\"\",\"tenant\":\"\",\"image\":\"\",\"cpuMilli\":0,"
                               "\"memoryMib\":0,\"pids\":0,\"diskMib\":0}"),
                           &spec);
}

const struct sandbox_provider sandbox_linux = {
    .name = "linux",
    .probe = linux_probe,
    .warm_up = linux_warm_up,
    .create = linux_create,
    .start = linux_start,
    .stop = linux_stop,
    .destroy = linux_destroy,
    .fork = linux_fork,
    .status = linux_status,
    .lives = linux_lives,
    .listen = linux_listen,
    .layer = linux_layer,
    .mount_check = mounts_check_here,
    .volume_measure = volumes_measure,
    .volume_remove = volumes_remove,
};
