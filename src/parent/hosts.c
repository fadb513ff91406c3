#include "parent/hosts.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "parent/roles.h"

#define BACKLOG 256

void hosts_init(struct hosts *h, const struct hosts_options *options)
{
    *h = (struct hosts){.o = *options};
    for (size_t i = 0; i < HOSTS_MAX; i++)
        h->slots[i].gateway = -1;
}

static void gateway_path(const char *folder, uint32_t id, char *out, size_t cap)
{
    snprintf(out, cap, "%s/run/host-%u.sock", folder, id);
}

/* Only the host's uid can connect: the folder is ours, the socket is its own. */
static err bind_gateway(const struct hosts *h, uint32_t id, uid_t uid, int *out_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    gateway_path(h->o.short_dir, id, a.sun_path, sizeof a.sun_path);
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail_errno("socket");
    if (unlink(a.sun_path) < 0 && errno != ENOENT)
        return fail_errno("remove %s", a.sun_path);
    mode_t before = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&a, sizeof a);
    umask(before);
    if (rc < 0 || listen(fd, BACKLOG) < 0)
        return fail_errno("listen on %s", a.sun_path);
    if (h->o.separate && lchown(a.sun_path, uid, uid) < 0)
        return fail_errno("give %s to uid %u", a.sun_path, (unsigned)uid);
    *out_fd = fd_take(&fd);
    return 0;
}

static err spawn(const struct hosts *h, uint32_t id, uid_t uid, int link, pid_t *out_pid)
{
    char gateway[PATH_MAX];
    gateway_path(h->o.separate ? h->o.data_dir : h->o.short_dir, id, gateway, sizeof gateway);
    struct role_bind binds[] = {
        {.from = h->o.runtime_dir, .name = "runtime"},
        {.from = h->o.harness_dir, .name = "harness"},
        {.from = gateway, .name = "gateway.sock"},
    };
    bool separate = h->o.separate;
    const char *args[ROLE_ARGS_MAX] = {
        "--runtime", separate ? ROLE_ROOT "/runtime" : h->o.runtime_dir,
        "--harness", separate ? ROLE_ROOT "/harness" : h->o.harness_dir,
        "--gateway", separate ? ROLE_ROOT "/gateway.sock" : gateway,
    };
    for (size_t n = 6, i = 0; h->o.role_args[i] && n < ROLE_ARGS_MAX - 1; i++)
        args[n++] = h->o.role_args[i];
    return role_spawn(&(struct role_start){.name = "host",
                                           .args = args,
                                           .link = link,
                                           .separate = separate,
                                           .confined = true,
                                           .no_network = true,
                                           .uid = uid,
                                           .binds = binds,
                                           .bind_count = sizeof binds / sizeof *binds},
                      out_pid);
}

static struct host *slot_with(struct hosts *h, uint32_t id)
{
    for (size_t i = 0; i < HOSTS_MAX; i++) {
        if (h->slots[i].id == id)
            return &h->slots[i];
    }
    return NULL;
}

err hosts_start(struct hosts *h, const char *tenant, const struct host **out, int *out_fd)
{
    if (tenant[0] && !id_valid(str_of(tenant), "tenant"))
        return fail(E_INVALID, "this is not a tenant id");
    struct host *slot = slot_with(h, 0);
    if (slot == NULL)
        return fail(E_QUOTA, "%d harness hosts run already", HOSTS_MAX);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("socketpair");
    AUTO_FD ours = pair[0];
    AUTO_FD theirs = pair[1];
    AUTO_FD gateway = -1;
    uid_t uid = h->o.first_uid + (uid_t)(slot - h->slots);
    struct host made = {.id = ++h->last_id};
    TRY(bind_gateway(h, made.id, uid, &gateway));
    TRY(spawn(h, made.id, uid, theirs, &made.pid));
    made.gateway = fd_take(&gateway);
    snprintf(made.tenant, sizeof made.tenant, "%s", tenant);
    *slot = made;
    *out = slot;
    *out_fd = fd_take(&ours);
    return 0;
}

err hosts_bind(struct hosts *h, uint32_t id, const char *tenant, const struct host **out)
{
    struct host *slot = id ? slot_with(h, id) : NULL;
    if (slot == NULL)
        return fail(E_NOT_FOUND, "there is no host %u", id);
    if (!id_valid(str_of(tenant), "tenant"))
        return fail(E_INVALID, "this is not a tenant id");
    if (slot->tenant[0])
        return fail(E_CONFLICT, "host %u has its tenant already", id);
    snprintf(slot->tenant, sizeof slot->tenant, "%s", tenant);
    *out = slot;
    return 0;
}

err hosts_stop(struct hosts *h, uint32_t id)
{
    struct host *slot = id ? slot_with(h, id) : NULL;
    if (slot == NULL)
        return fail(E_NOT_FOUND, "there is no host %u", id);
    kill(slot->pid, SIGKILL);
    return 0;
}

void hosts_stop_all(struct hosts *h)
{
    for (size_t i = 0; i < HOSTS_MAX; i++) {
        if (h->slots[i].id)
            kill(h->slots[i].pid, SIGKILL);
    }
}

bool hosts_exited(struct hosts *h, pid_t pid, struct host *out)
{
    for (size_t i = 0; i < HOSTS_MAX; i++) {
        struct host *slot = &h->slots[i];
        if (slot->id == 0 || slot->pid != pid)
            continue;
        char path[PATH_MAX];
        gateway_path(h->o.short_dir, slot->id, path, sizeof path);
        unlink(path);
        fd_close(&slot->gateway);
        *out = *slot;
        *slot = (struct host){.gateway = -1};
        return true;
    }
    return false;
}
