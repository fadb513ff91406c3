/* pi-managed doctor: what this machine can do, and how to mend what it cannot. Exit status 1 if a
   session could not run here. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "broker/catalog.h"
#include "cli/command.h"
#include "cli/places.h"
#include "parent/listen.h"
#include "parent/roles.h"
#include "sandbox/provider.h"

#define VERSION_MAX 64

static const struct option options[] = {
    OPTION_DATA,
    {"listen", "ADDR:PORT", "127.0.0.1:7433", "the address that serve would take"},
    {"runtime", "DIR", NULL, "Node, Pi and ripgrep; default: beside the program"},
    {"harness", "DIR", NULL, "the Pi host's scripts; default: beside the program"},
    {"uid-base", "N", "64000", "as root: first of the user ids that the zones run as"},
    OPTION_JSON,
    {0},
};

/* One finding a line. `needed`: no session can run without it. */
enum verdict {
    GOOD,
    LESS,  /* works, with less */
    NEEDED /* nothing works */
};

static void add(json_t *findings, const char *name, enum verdict v, const char *text,
                const char *mend)
{
    static const char *const words[] = {[GOOD] = "ok", [LESS] = "less", [NEEDED] = "missing"};
    json_t *f = json_object();
    json_set_str(f, "name", str_of(name));
    json_set_str(f, "state", str_of(words[v]));
    json_set_str(f, "text", str_of(text));
    if (mend && mend[0])
        json_set_str(f, "mend", str_of(mend));
    json_array_append_new(findings, f);
}

static void check_kvm(json_t *findings)
{
    if (access("/dev/kvm", R_OK | W_OK) == 0)
        add(findings, "kvm", GOOD, "/dev/kvm can be used", NULL);
    else
        add(findings, "kvm", LESS,
            errno == EACCES ? "/dev/kvm is there but not for this user" : "there is no /dev/kvm",
            errno == EACCES ? "add the user to the group kvm; only microVM providers need it"
                            : "only microVM providers need it");
}

static bool can_unshare(int flags)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(unshare(flags) == 0 ? 0 : 1);
    int status = 1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void check_namespaces(json_t *findings)
{
    const int all = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    if (geteuid() == 0 && can_unshare(all))
        add(findings, "namespaces", GOOD, "made with root's own rights", NULL);
    else if (can_unshare(CLONE_NEWUSER | all))
        add(findings, "namespaces", GOOD, "made in a user namespace", NULL);
    else
        add(findings, "namespaces", LESS, "this user may not make namespaces",
            "start as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 "
            "and "
            "kernel.apparmor_restrict_unprivileged_userns=0; in Docker: --privileged");
}

static void check_cgroups(json_t *findings)
{
    bool v2 = access("/sys/fs/cgroup/cgroup.controllers", R_OK) == 0;
    bool v1 = access("/sys/fs/cgroup/memory", W_OK) == 0;
    bool writable = access(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory", W_OK) == 0;
    if (writable)
        add(findings, "cgroups", GOOD, v2 ? "version 2, writable" : "version 1, writable", NULL);
    else
        add(findings, "cgroups", LESS,
            v1 || v2 ? "not writable: no limits on memory, cpu and processes"
                     : "none: no limits on memory, cpu and processes",
            "start as root, or: systemd-run --user --scope -p Delegate=yes pi-managed serve");
}

static void check_zones(const struct invocation *call, json_t *findings)
{
    uint64_t base;
    if (!str_to_u64(str_of(option_value(call, "uid-base")), &base))
        base = 64000;
    if (roles_can_separate((uid_t)base))
        add(findings, "zones", GOOD, "each zone runs as its own user id", NULL);
    else
        add(findings, "zones", LESS, "zones are not separated by user id", "start serve as root");
}

static void check_ids(const struct sandbox_caps *caps, json_t *findings)
{
    if (caps->uid_range)
        add(findings, "user ids", GOOD, "sandboxes have users of their own", NULL);
    else
        add(findings, "user ids", LESS,
            "sandboxes have one user only: chown, su and apt fail in them",
            "start as root, or: apt-get install uidmap; usermod --add-subuids 100000-165535 "
            "--add-subgids 100000-165535 USER");
}

/* Whether there is room for volumes here, by trying it. Binds need nothing but the option. */
static void check_mounts(const struct invocation *call, const struct sandbox_provider *provider,
                         json_t *findings)
{
    const char *data = option_value(call, "data");
    const struct sandbox_mount volume = {.type = MOUNT_VOLUME};
    const struct sandbox_place place = {.volumes = access(data, X_OK) == 0 ? data : "."};
    if (!provider->mount_check)
        add(findings, "mounts", LESS, "the provider mounts nothing into sandboxes", NULL);
    else if (provider->mount_check(&volume, &place))
        add(findings, "mounts", LESS, err_text(), "put the data directory on such a file system");
    else
        add(findings, "mounts", GOOD,
            "volumes; folders of this machine with serve --allow-mount DIR", NULL);
}

static json_t *check_providers(const struct invocation *call, json_t *findings)
{
    json_t *list = json_array();
    bool usable = false;
    for (size_t i = 0; sandbox_providers[i]; i++) {
        struct sandbox_caps caps = {0};
        sandbox_providers[i]->probe(&caps);
        usable |= caps.usable;
        json_array_append_new(
            list, json_pack("{s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:s}", "name",
                            sandbox_providers[i]->name, "usable", caps.usable, "ownKernel",
                            caps.own_kernel, "limitMemory", caps.limit_memory, "limitCpu",
                            caps.limit_cpu, "limitPids", caps.limit_pids, "limitDisk",
                            caps.limit_disk, "uidRange", caps.uid_range, "reason", caps.reason));
        char text[128];
        snprintf(text, sizeof text, "%s: %s", sandbox_providers[i]->name,
                 caps.usable ? "can be used" : "cannot be used here");
        add(findings, "sandbox", caps.usable ? GOOD : LESS, text, caps.reason);
        if (caps.usable) {
            check_ids(&caps, findings);
            check_mounts(call, sandbox_providers[i], findings);
        }
    }
    if (!usable)
        add(findings, "sandboxes", NEEDED, "no sandbox provider can be used", "see above");
    return list;
}

/* First line of what the program prints, within 10 s. */
static err run_for_line(const char *path, const char *argument, char out[VERSION_MAX])
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return fail_errno("pipe");
    AUTO_FD in = pipes[0];
    AUTO_FD to = pipes[1];
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno("fork");
    if (pid == 0) {
        dup2(to, STDOUT_FILENO);
        execl(path, path, argument, (char *)NULL);
        _exit(127);
    }
    fd_close(&to);
    struct pollfd fd = {.fd = in, .events = POLLIN};
    ssize_t n = poll(&fd, 1, 10000) > 0 ? read(in, out, VERSION_MAX - 1) : 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    if (n <= 0)
        return fail(E_UNAVAILABLE, "%s does not run", path);
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return 0;
}

static err pi_version(const char *runtime, char out[VERSION_MAX])
{
    char path[PATH_MAX];
    AUTO_BUF text = {0};
    AUTO_JSON package = NULL;
    if (snprintf(path, sizeof path, "%s/pi/package.json", runtime) >= (int)sizeof path)
        return fail(E_INVALID, "the path %s is too long", runtime);
    TRY(fd_read_file(path, 1 << 20, &text));
    TRY(json_read(buf_str(&text), &package));
    const char *version = json_get_c(package, "version");
    snprintf(out, VERSION_MAX, "%s", version ? version : "unknown");
    return 0;
}

static void check_runtime(const struct invocation *call, json_t *findings)
{
    static struct places places; /* large */
    char path[PATH_MAX], version[VERSION_MAX];
    struct catalog *catalog = NULL;
    if (places_find(option_value(call, "runtime"), option_value(call, "harness"), &places)) {
        add(findings, "runtime", NEEDED, err_text(), "make setup");
        return;
    }
    add(findings, "runtime", GOOD, places.runtime, NULL);
    snprintf(path, sizeof path, "%.*s/node/bin/node", PATH_MAX - 32, places.runtime);
    if (run_for_line(path, "--version", version))
        add(findings, "node", NEEDED, err_text(), "make setup");
    else
        add(findings, "node", GOOD, version, NULL);
    if (pi_version(places.runtime, version))
        add(findings, "pi", NEEDED, err_text(), "make setup");
    else
        add(findings, "pi", GOOD, version, NULL);
    if (catalog_load(places.runtime, &catalog))
        add(findings, "catalogue", NEEDED, err_text(), "make");
    else
        add(findings, "catalogue", GOOD, catalog_providers(catalog), NULL);
    catalog_free(catalog);
}

static void check_data(const struct invocation *call, json_t *findings)
{
    const char *data = option_value(call, "data");
    char text[PATH_MAX + 64];
    if (access(data, R_OK | W_OK | X_OK) == 0)
        snprintf(text, sizeof text, "%.*s can be used", PATH_MAX - 1, data);
    else if (errno == ENOENT)
        snprintf(text, sizeof text, "%.*s will be made by serve", PATH_MAX - 1, data);
    else {
        snprintf(text, sizeof text, "%.*s: %s", PATH_MAX - 1, data, strerror(errno));
        add(findings, "data", NEEDED, text, "choose another with --data, or change its owner");
        return;
    }
    add(findings, "data", GOOD, text, NULL);
}

static void check_listen(const struct invocation *call, json_t *findings)
{
    char url[128];
    AUTO_FD fd = -1;
    if (listen_open(option_value(call, "listen"), false, true, &fd, url, sizeof url))
        add(findings, "listen", LESS, err_text(),
            "the service may be running already; or --listen");
    else
        add(findings, "listen", GOOD, url, NULL);
}

static bool any_missing(const json_t *findings)
{
    size_t i;
    json_t *f;
    json_array_foreach(findings, i, f)
    {
        if (strcmp(json_get_c(f, "state"), "missing") == 0)
            return true;
    }
    return false;
}

static void print_text(const json_t *findings, bool bad)
{
    size_t i;
    json_t *f;
    json_array_foreach(findings, i, f)
    {
        const char *mend = json_get_c(f, "mend");
        printf("%-8s %-11s %s\n", json_get_c(f, "state"), json_get_c(f, "name"),
               json_get_c(f, "text"));
        if (mend)
            printf("%-8s %-11s   %s\n", "", "", mend);
    }
    printf("\n%s\n", bad ? "Sessions cannot run here until what is missing is mended."
                         : "Sessions can run here.");
}

static int run(const struct invocation *call)
{
    AUTO_JSON findings = json_array();
    check_runtime(call, findings);
    json_t *providers = check_providers(call, findings);
    check_zones(call, findings);
    check_namespaces(findings);
    check_cgroups(findings);
    check_kvm(findings);
    check_data(call, findings);
    check_listen(call, findings);
    bool bad = any_missing(findings);
    AUTO_JSON all =
        json_pack("{s:b, s:O, s:o}", "ok", !bad, "findings", findings, "providers", providers);
    if (option_flag(call, "json")) {
        AUTO_BUF text = {0};
        json_write(all, &text);
        printf("%s\n", text.p);
    } else {
        print_text(findings, bad);
    }
    return bad ? 1 : 0;
}

const struct command doctor_command = {
    .name = "doctor",
    .arguments = "",
    .summary = "Says what this machine can do, and how to mend what it cannot.",
    .options = options,
    .run = run,
};
