#include "sandbox/linux/probe.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/tree.h"
#include "sandbox/linux/boot.h"
#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/disk.h"
#include "sandbox/linux/image_host.h"
#include "sandbox/linux/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRIAL_UID_BASE 1000000u

/* The number in a /proc/sys file, or -1. */
static long setting(const char *path)
{
    AUTO_BUF text = {0};
    return fd_read_file(path, 64, &text) ? -1 : strtol(text.p, NULL, 10);
}

/* How to mend it, for the causes met in practice; "" when none of them is the case. */
static const char *advice(bool privileged)
{
    if (access("/usr/bin/env", X_OK) < 0)
        return "the image \"host\" needs programs in /usr, which this system does not have";
    if (privileged)
        return "";
    if (geteuid() == 0)
        return "this is root without its capabilities, as in a container: start the container with "
               "--privileged, or run on the host itself";
    if (setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
        return "AppArmor restricts user namespaces here: run as root, or "
               "sysctl kernel.apparmor_restrict_unprivileged_userns=0";
    if (setting("/proc/sys/kernel/unprivileged_userns_clone") == 0)
        return "run as root, or sysctl kernel.unprivileged_userns_clone=1";
    if (setting("/proc/sys/user/max_user_namespaces") == 0)
        return "run as root, or raise user.max_user_namespaces";
    if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0)
        return "a container without the right to make namespaces: start it with --privileged, or "
               "--security-opt seccomp=unconfined --security-opt systempaths=unconfined";
    return "run as root, or ask an administrator to allow user namespaces";
}

static err trial_in(const char *dir, bool privileged)
{
    char skeleton[PATH_MAX + 16], fs_dir[PATH_MAX + 16];
    snprintf(skeleton, sizeof skeleton, "%s/skeleton", dir);
    snprintf(fs_dir, sizeof fs_dir, "%s/fs", dir);
    if (mkdir(skeleton, 0755) < 0)
        return fail_errno("make %s", skeleton);
    TRY(image_host_build(skeleton, NULL, geteuid()));
    struct boot b = {
        .root = {.fs_dir = fs_dir,
                 .skeleton = skeleton,
                 .owner = privileged ? TRIAL_UID_BASE : geteuid(),
                 .tmp_mib = 16},
        .privileged = privileged,
        .uid_base = TRIAL_UID_BASE,
        .trial = true,
        .listen_fd = -1,
        .door = cgroup_door_none,
        .pidfd = -1,
        .channel = -1,
    };
    TRY(root_prepare(&b.root));
    err e = boot_clone(&b);
    if (!e)
        e = boot_go(&b);
    struct err_slot why;
    err_save(&why);
    boot_abandon(&b);
    return e ? err_restore(&why) : 0;
}

static err trial(bool privileged)
{
    const char *temp = getenv("TMPDIR");
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/pi-managed-probe-XXXXXX", temp && *temp ? temp : "/tmp");
    if (!mkdtemp(dir))
        return fail_errno("make a folder for a trial");
    err e = trial_in(dir, privileged);
    struct err_slot why;
    err_save(&why);
    err removed = tree_remove(dir);
    return e ? err_restore(&why) : removed;
}

static void probe_disk(bool privileged, struct sandbox_caps *caps)
{
    caps->limit_disk = privileged && disk_probe() == 0;
    size_t n = strlen(caps->reason);
    if (!caps->limit_disk)
        snprintf(caps->reason + n, sizeof caps->reason - n, "%sno limit for disk: %.90s",
                 n ? "; " : "", privileged ? err_text() : "run as root");
}

static void probe_here(struct sandbox_caps *out)
{
    bool privileged = userns_is_privileged();
    struct sandbox_caps caps = {.uid_range = privileged || userns_range_works()};
    cgroup_probe(&caps);
    probe_disk(privileged, &caps);
    if (trial(privileged)) {
        const char *mend = advice(privileged);
        snprintf(caps.reason, sizeof caps.reason, "%.96s%s%.150s", err_text(), *mend ? "; " : "",
                 mend);
    } else {
        caps.usable = true;
    }
    *out = caps;
}

void linux_probe(struct sandbox_caps *out)
{
    *out = (struct sandbox_caps){.reason = "the trial of a sandbox ended without an answer"};
    if (boot_warm_up()) { /* here, for the makers to come */
        snprintf(out->reason, sizeof out->reason, "%.200s", err_text());
        return;
    }
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        struct sandbox_caps caps;
        probe_here(&caps);
        _exit(fd_write_full(pipe_fds[1], &caps, sizeof caps) ? 1 : 0);
    }
    close(pipe_fds[1]);
    struct sandbox_caps caps;
    if (pid > 0 && fd_read_full(pipe_fds[0], &caps, sizeof caps) == 0)
        *out = caps;
    close(pipe_fds[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}
