/* The provider driven as the parent's makers would (one forked process per verb), as root and once
   more as a plain user; what is inside is seen through pi-hands. For unit tests that say
   SANDBOX_SUITE at their end. */
#ifndef TESTS_SANDBOX_SUPPORT_H
#define TESTS_SANDBOX_SUPPORT_H

#include "sandbox/provider.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/tree.h"
#include "hands/frames.h"
#include "sandbox/hands.h"
#include "sandbox/ledger.h"
#include "sandbox/linux/init.h"
#include "sandbox/linux/rest.h"
#include "sandbox/linux/userns.h"
#include "sandbox/state.h"

#include "changes_support.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <linux/loop.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PLAIN_UID 12345
#define UID_BASE 1065536u

static char data[96];     /* DATA of this run */
static char runtime[112]; /* holds rg */
static char images[112];  /* the image store */
static char folder[112];  /* of sandboxes */
static bool privileged;
static bool has_range;  /* of ids in each sandbox */
static bool plain_root; /* DATA lies where no overlay can be */

struct box {
    struct sandbox_spec spec;
    struct sandbox_place place;
    char dir[208], socket[240];
    struct box *from; /* of FORK */
};

static void place_box(struct box *b, const char *parent, const char *name)
{
    int n = snprintf(b->dir, sizeof b->dir, "%s/%s", parent, name);
    assert_in_range(n, 1, sizeof b->dir - 1);
    n = snprintf(b->socket, sizeof b->socket, "%s/agent.sock", b->dir);
    assert_in_range(n, 1, sizeof b->socket - 1);
}

static struct box box_of(const char *id, const char *tenant, unsigned n)
{
    struct box b = {.place = {.socket_owner = geteuid(),
                              .uid_base = UID_BASE + n * USERNS_IDS,
                              .runtime = runtime,
                              .images = images,
                              .sandboxes = folder,
                              .allow_unenforced = true}};
    /* Runs may be side by side on one machine, with the same control groups. */
    snprintf(b.spec.id, sizeof b.spec.id, "%s_%d", id, (int)getpid());
    snprintf(b.spec.tenant, sizeof b.spec.tenant, "%s", tenant);
    snprintf(b.spec.image, sizeof b.spec.image, "host");
    place_box(&b, folder, b.spec.id);
    return b;
}

/* ---- verbs, each in its own process ---- */

enum verb {
    CREATE,
    START,
    STOP,
    DESTROY,
    FORK,
    STATUS
};

struct outcome {
    err e;
    char text[ERR_TEXT_MAX];
    struct sandbox_status status;
    bool live; /* of FORK */
};

static err run_verb(enum verb verb, struct box *b, uint32_t grace_ms, struct outcome *out)
{
    const struct sandbox_provider *p = sandbox_provider_named("linux");
    switch (verb) {
    case CREATE:
        return p->create(&b->spec, &b->place);
    case START:
        return p->start(&b->spec, &b->place);
    case STOP:
        return p->stop(&b->spec, &b->place, grace_ms);
    case DESTROY:
        return p->destroy(&b->spec, &b->place);
    case FORK:
        b->from->place.dir = b->from->dir;
        return p->fork(&b->spec, &b->place, b->from->spec.id, &b->from->place, &out->live);
    default:
        return p->status(&b->spec, &b->place, &out->status);
    }
}

/* A daemon's settings, none of which may reach the sandbox. */
static void be_a_daemon(void)
{
    const struct rlimit none = {0, 0};
    sigset_t all;
    sigfillset(&all);
    umask(077);
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &all, NULL);
    if (chdir("/") < 0)
        _exit(98);
}

static struct outcome make(enum verb verb, struct box *b, uint32_t grace_ms)
{
    struct outcome *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    b->place.dir = b->dir;
    b->place.socket = b->socket;
    pid_t pid = fork();
    if (pid == 0) {
        be_a_daemon();
        shared->e = run_verb(verb, b, grace_ms, shared);
        snprintf(shared->text, sizeof shared->text, "%s", shared->e ? err_text() : "");
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    struct outcome o = *shared;
    munmap(shared, sizeof *shared);
    return o;
}

static void must(enum verb verb, struct box *b)
{
    struct outcome o = make(verb, b, 0);
    if (o.e)
        fail_msg("verb %d of %s: %s", verb, b->spec.id, o.text);
}

static struct sandbox_status status_of(struct box *b)
{
    struct outcome o = make(STATUS, b, 0);
    if (o.e)
        fail_msg("status of %s: %s", b->spec.id, o.text);
    return o.status;
}

static void boot(struct box *b)
{
    must(CREATE, b);
    must(START, b);
}

__attribute__((unused)) static struct state_init init_of(const struct box *b)
{
    struct state_run run;
    assert_int_equal(state_read_run(b->dir, &run), 0);
    return run.init;
}

/* Whether one of its control groups has this file: what the kernel counts differs. */
__attribute__((unused)) static bool groups_have(const struct box *b, const char *file)
{
    struct state_run run;
    char path[STATE_PATH_MAX + 64];
    assert_int_equal(state_read_run(b->dir, &run), 0);
    for (unsigned i = 0; i < run.cgroup_count; i++) {
        snprintf(path, sizeof path, "%s/%s", run.cgroups[i], file);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

/* ---- commands inside ---- */

struct ran {
    int code; /* 128 + signal when killed */
    struct buf out;
};

static void send_exec(int fd, const char *command)
{
    AUTO_JSON o = json_pack("{s:[s,s,s],s:s}", "argv", "bash", "-c", command, "cwd", "/workspace");
    AUTO_BUF text = {0};
    json_write(o, &text);
    assert_int_equal(frame_write(fd, FRAME_EXEC, buf_str(&text)), 0);
}

/* Standard output and error together. */
static struct ran run(const struct box *b, const char *command)
{
    struct ran r = {.code = -1};
    AUTO_FD fd = -1;
    if (hands_connect(b->socket, &fd))
        fail_msg("%s", err_text());
    send_exec(fd, command);
    for (;;) {
        AUTO_BUF payload = {0};
        enum frame_type type;
        if (frame_read(fd, &type, &payload))
            fail_msg("%s: %s", command, err_text());
        if (type == FRAME_STDOUT || type == FRAME_STDERR) {
            buf_add(&r.out, payload.p, payload.n);
        } else if (type == FRAME_EXIT) {
            AUTO_JSON o = NULL;
            assert_int_equal(json_read(buf_str(&payload), &o), 0);
            r.code = (int)json_get_int(o, "code", 255);
            buf_add(&r.out, "", 0);
            return r;
        } else {
            fail_msg("%s: frame %d %.*s", command, type, STR_ARG(buf_str(&payload)));
        }
    }
}

static void expect(const struct box *b, const char *command, const char *output)
{
    struct ran r = run(b, command);
    if (r.code != 0 || !str_is(buf_str(&r.out), output))
        fail_msg("%s: exit %d, said \"%.*s\", not \"%s\"", command, r.code,
                 STR_ARG(buf_str(&r.out)), output);
    buf_done(&r.out);
}

/* The command fails and says `why`. */
__attribute__((unused)) static void refuse(const struct box *b, const char *command,
                                           const char *why)
{
    struct ran r = run(b, command);
    if (r.code == 0 || !r.out.p || !strstr(r.out.p, why))
        fail_msg("%s: exit %d, said \"%.*s\", should fail with \"%s\"", command, r.code,
                 STR_ARG(buf_str(&r.out)), why);
    buf_done(&r.out);
}

static const char *sought;
static int found;

static int look(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind;
    found += strcmp(path + at->base, sought) == 0;
    return 0;
}

static int count_cgroups(const char *id)
{
    sought = id;
    found = 0;
    nftw("/sys/fs/cgroup", look, 32, FTW_PHYS);
    return found;
}

static void assert_no_trace(const struct box *b)
{
    assert_int_equal(access(b->dir, F_OK), -1);
    assert_int_equal(count_cgroups(b->spec.id), 0);
    AUTO_BUF mounts = {0};
    assert_int_equal(fd_read_file("/proc/self/mounts", 1 << 20, &mounts), 0);
    assert_null(strstr(mounts.p, b->dir));
}

/* ---- runs ---- */

/* A DATA of its own, and rg where a plain user can read it. */
static void make_data(const char *parent, uid_t owner)
{
    snprintf(data, sizeof data, "%s/pm-test-sandbox-XXXXXX", parent);
    if (!mkdtemp(data))
        abort();
    snprintf(runtime, sizeof runtime, "%s/runtime", data);
    snprintf(images, sizeof images, "%s/images", data);
    snprintf(folder, sizeof folder, "%s/sandboxes", data);
    char command[512];
    snprintf(command, sizeof command,
             "mkdir %s %s/sandboxes && cp build/runtime/rg %s && chown -R %u %s", runtime, data,
             runtime, (unsigned)owner, data);
    if (system(command) != 0) {
        fprintf(stderr, "build/runtime/rg is missing: run make setup\n");
        exit(1);
    }
}

/* What a failed test left running. */
static void destroy_all(void)
{
    DIR *d = opendir(folder);
    for (const struct dirent *entry; d && (entry = readdir(d));) {
        struct box b = box_of("left", "tenant_a", 15);
        if (entry->d_name[0] == '.')
            continue;
        place_box(&b, folder, entry->d_name);
        if (state_read_spec(b.dir, &b.spec) == 0)
            make(DESTROY, &b, 0);
    }
    if (d)
        closedir(d);
}

struct suite {
    const char *name;
    const struct CMUnitTest *tests, *of_v1; /* of_v1: again without control groups of version 2 */
    const struct CMUnitTest *of_files;      /* where files lie elsewhere or have other owners */
    const struct CMUnitTest *few;           /* where it only matters that they work */
    size_t count, of_v1_count, few_count, of_files_count;
};

static const struct suite *suite;

static int run_group(const char *who, const struct CMUnitTest *tests, size_t n)
{
    char name[96];
    snprintf(name, sizeof name, "%s (%s)", suite->name, who);
    privileged = userns_is_privileged();
    has_range |= privileged;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    destroy_all();
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    return failed;
}

static int run_all(const char *who)
{
    return run_group(who, suite->tests, suite->count);
}

static int become_plain_user(void)
{
    if (setgroups(0, NULL) < 0 || setgid(PLAIN_UID) < 0 || setuid(PLAIN_UID) < 0)
        return -1;
    return prctl(PR_SET_DUMPABLE, 1); /* as an ordinary program of that user is */
}

static int run_as_plain_user(const char *who, const struct CMUnitTest *tests, size_t n)
{
    if (become_plain_user() < 0)
        return 99;
    struct sandbox_caps caps;
    sandbox_provider_named("linux")->probe(&caps);
    if (!caps.usable) {
        print_message("[   NOTE   ] plain user not tested: %s\n", caps.reason);
        return 0;
    }
    assert_int_equal(caps.uid_range, has_range);
    return run_group(who, tests, n);
}

static int run_plain_user(void)
{
    return run_as_plain_user("a plain user", suite->tests, suite->count);
}

/* In place of the file, for this mount namespace. */
static bool add_line(const char *path, const char *line)
{
    char copy[160], command[512];
    snprintf(copy, sizeof copy, "%s/%s", data, strrchr(path, '/') + 1);
    snprintf(command, sizeof command, "cp %s %s && echo '%s' >>%s", path, copy, line, copy);
    return system(command) == 0 && mount(copy, path, NULL, MS_BIND, NULL) == 0;
}

static bool give_subordinate_ids(void)
{
    char user[64], uids[64], gids[64];
    snprintf(user, sizeof user, "person:x:%d:%d::/:/bin/sh", PLAIN_UID, PLAIN_UID);
    snprintf(uids, sizeof uids, "person:%u:65536", UID_BASE + 100 * USERNS_IDS);
    snprintf(gids, sizeof gids, "%d:%u:65536", PLAIN_UID, UID_BASE + 200 * USERNS_IDS);
    if (access("/usr/bin/newuidmap", X_OK) < 0 || access("/etc/subuid", F_OK) < 0 ||
        access("/etc/subgid", F_OK) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || !add_line("/etc/passwd", user) ||
        !add_line("/etc/subuid", uids) || !add_line("/etc/subgid", gids)) {
        print_message("[   NOTE   ] subordinate ids not tested: is uidmap installed?\n");
        return false;
    }
    return true;
}

/* One whom an administrator gave subordinate ids. */
static int run_plain_user_with_ids(void)
{
    if (!give_subordinate_ids())
        return 0;
    has_range = true;
    return run_as_plain_user("a plain user with subordinate ids", suite->of_files,
                             suite->of_files_count);
}

/* The same, but the tool refuses to give them: one id is left. */
static int run_plain_user_refused(void)
{
    if (!give_subordinate_ids() ||
        mount("/bin/false", "/usr/bin/newuidmap", NULL, MS_BIND, NULL) < 0 ||
        become_plain_user() < 0)
        return 0;
    return run_group("a plain user, newuidmap refuses", suite->of_v1, suite->of_v1_count);
}

/* Mounts below /usr, which a user namespace may not take apart. */
static int run_plain_user_with_mounts(void)
{
    if (suite->few_count == 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("more", "/usr/local", "tmpfs", 0, "mode=755") < 0 ||
        system("mkdir -m 755 /usr/local/bin && cp /bin/true /usr/local/bin/more") != 0 ||
        become_plain_user() < 0)
        return 0;
    return run_group("a plain user, mounts below /usr", suite->few, suite->few_count);
}

/* A control group of version 2 that the user may manage, as systemd delegates it, with us in a leaf
   of it. */
static bool delegate_group(char out[STATE_PATH_MAX])
{
    const char *top = access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0
                          ? "/sys/fs/cgroup"
                          : "/sys/fs/cgroup/unified";
    char command[5 * STATE_PATH_MAX];
    snprintf(out, STATE_PATH_MAX, "%s/pm-test-%d", top, (int)getpid());
    snprintf(command, sizeof command,
             "cd %s && for c in memory pids cpu; do echo +$c >cgroup.subtree_control; done; "
             "mkdir -p %s/leaf && cd %s && chown %d . leaf cgroup.procs cgroup.subtree_control "
             "leaf/cgroup.procs && echo %d >leaf/cgroup.procs",
             top, out, out, PLAIN_UID, (int)getpid());
    return system(command) == 0;
}

static int run_plain_user_with_group(void)
{
    char group[STATE_PATH_MAX];
    fflush(NULL);
    pid_t pid = fork(); /* this one stays behind, to remove the group */
    if (pid == 0)
        _exit(delegate_group(group) && become_plain_user() == 0
                  ? run_group("a plain user, a delegated control group", suite->of_v1,
                              suite->of_v1_count)
                  : 0);
    int status = 0;
    waitpid(pid, &status, 0);
    snprintf(group, sizeof group, "/sys/fs/cgroup/unified/pm-test-%d", (int)pid);
    if (access(group, F_OK) < 0)
        snprintf(group, sizeof group, "/sys/fs/cgroup/pm-test-%d", (int)pid);
    if (access(group, F_OK) == 0) {
        char leaf[STATE_PATH_MAX + 8];
        snprintf(leaf, sizeof leaf, "%s/leaf", group);
        assert_int_equal(rmdir(leaf), 0);
        assert_int_equal(rmdir(group), 0); /* and nothing of the sandboxes is left in it */
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* On an overlay, which no overlay accepts as its upper layer: as in a container. */
static int run_without_overlay(void)
{
    char options[512], made[128], parent[112];
    snprintf(parent, sizeof parent, "%s/m", data);
    static const char *const names[] = {"l", "u", "w", "m"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(made, sizeof made, "%s/%s", data, names[i]);
        assert_int_equal(mkdir(made, 0755), 0);
    }
    snprintf(options, sizeof options, "lowerdir=%s/l,upperdir=%s/u,workdir=%s/w", data, data, data);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("overlay", parent, "overlay", 0, options) < 0) {
        print_message("[   NOTE   ] not tested without overlay: %s\n", strerror(errno));
        return 0;
    }
    make_data(parent, geteuid());
    setenv("TMPDIR", parent, 1);
    plain_root = true;
    return run_group("root, no overlay", suite->of_files, suite->of_files_count);
}

/* A machine that knows control groups of version 1 only. */
static int run_without_v2(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        umount2("/sys/fs/cgroup/unified", MNT_DETACH) < 0) {
        print_message("[   NOTE   ] not tested with version 1 alone: %s\n", strerror(errno));
        return 0;
    }
    return run_group("root, cgroups version 1", suite->of_v1, suite->of_v1_count);
}

static int in_child(int (*runs)(void), uid_t owner)
{
    make_data("/tmp", owner);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        exit(runs());
    int status = 0;
    waitpid(pid, &status, 0);
    tree_remove(data);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static int run_here(void)
{
    return run_all(geteuid() == 0 ? "root" : "a plain user");
}

static int run_suite(const struct suite *s)
{
    suite = s;
    int failed = in_child(run_here, geteuid());
    if (geteuid() == 0)
        failed += in_child(run_plain_user, PLAIN_UID) +
                  in_child(run_plain_user_with_ids, PLAIN_UID) +
                  in_child(run_plain_user_refused, PLAIN_UID) +
                  in_child(run_plain_user_with_mounts, PLAIN_UID) +
                  in_child(run_plain_user_with_group, PLAIN_UID) +
                  in_child(run_without_overlay, 0) + in_child(run_without_v2, 0);
    return failed;
}

#endif
