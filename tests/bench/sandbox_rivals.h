/* bubblewrap and runc around the same programs, for comparison in the same run: the host's /usr
   read-only, an empty root, no network. Header only. */
#ifndef TESTS_BENCH_SANDBOX_RIVALS_H
#define TESTS_BENCH_SANDBOX_RIVALS_H

#include "sandbox_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define RIVAL_ARGS_MAX 40

/* Prepared once; `why` says why it cannot take part. */
struct rival {
    const char *name;
    char why[256];
    char bundle[128]; /* of runc */
};

static inline void rival_quiet(int out)
{
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(out >= 0 ? out : null, 1);
    dup2(null, 2);
}

/* Adds `program` and its argument to the words that lead into the rival. */
static inline size_t rival_words(const struct rival *r, const char *id, const char *program,
                                 const char *argument, const char *out[RIVAL_ARGS_MAX])
{
    static const char *const bwrap[] = {"bwrap",     "--unshare-all", "--die-with-parent",
                                        "--ro-bind", "/usr",          "/usr",
                                        "--symlink", "usr/bin",       "/bin",
                                        "--symlink", "usr/lib",       "/lib",
                                        "--symlink", "usr/lib64",     "/lib64",
                                        "--proc",    "/proc",         "--dev",
                                        "/dev",      "--tmpfs",       "/tmp"};
    size_t n = 0;
    if (strcmp(r->name, "bwrap") != 0) {
        const char *const runc[] = {"runc", "run", "--bundle", r->bundle, id};
        memcpy(out, runc, sizeof runc);
        n = sizeof runc / sizeof *runc; /* the program stands in the bundle */
    } else {
        memcpy(out, bwrap, sizeof bwrap);
        n = sizeof bwrap / sizeof *bwrap;
        out[n++] = program;
        out[n++] = argument;
    }
    out[n] = NULL;
    return n;
}

/* Starts it; its standard output is `out` (-1: nowhere). */
static inline pid_t rival_start(const struct rival *r, const char *id, const char *program,
                                const char *argument, int out)
{
    const char *words[RIVAL_ARGS_MAX];
    rival_words(r, id, program, argument, words);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        rival_quiet(out);
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    return pid;
}

/* From nothing to the first byte that `echo` writes; negative when none came. */
static inline double rival_first_output(const struct rival *r, const char *id)
{
    int ends[2];
    char byte;
    stage_must(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    double from = stage_now_ms();
    pid_t pid = rival_start(r, id, "/bin/echo", "x", ends[1]);
    close(ends[1]);
    bool came = read(ends[0], &byte, 1) == 1;
    double took = stage_now_ms() - from;
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return came ? took : -1;
}

static inline bool rival_on_path(const char *name)
{
    char command[64];
    snprintf(command, sizeof command, "command -v %s >/dev/null 2>&1", name);
    return system(command) == 0;
}

/* A bundle whose root has nothing but mounts of the host's /usr. */
static inline bool rival_write_bundle(struct rival *r, const char *program, const char *argument)
{
    static const char *const folders[] = {
        "", "/rootfs", "/rootfs/usr", "/rootfs/proc", "/rootfs/dev", "/rootfs/tmp"};
    char path[192];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s", r->bundle, folders[i]);
        mkdir(path, 0755);
    }
    static const char *const links[] = {"bin", "lib", "lib64"};
    for (size_t i = 0; i < 3; i++) {
        char target[16];
        snprintf(path, sizeof path, "%s/rootfs/%s", r->bundle, links[i]);
        snprintf(target, sizeof target, "usr/%s", links[i]);
        if (symlink(target, path) < 0 && errno != EEXIST)
            return false;
    }
    AUTO_BUF text = {0};
    buf_printf(
        &text,
        "{\"ociVersion\":\"1.0.2\",\"process\":{\"user\":{\"uid\":0,\"gid\":0},"
        "\"args\":[\"%s\",\"%s\"],\"env\":[\"PATH=/usr/bin:/bin\"],\"cwd\":\"/\","
        "\"noNewPrivileges\":true},\"root\":{\"path\":\"rootfs\",\"readonly\":true},"
        "\"mounts\":[{\"destination\":\"/usr\",\"type\":\"bind\",\"source\":\"/usr\","
        "\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\"]},{\"destination\":\"/proc\","
        "\"type\":\"proc\",\"source\":\"proc\"},{\"destination\":\"/tmp\",\"type\":\"tmpfs\","
        "\"source\":\"tmpfs\"}],\"linux\":{\"namespaces\":[{\"type\":\"pid\"},"
        "{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":\"mount\"}]}}\n",
        program, argument);
    snprintf(path, sizeof path, "%s/config.json", r->bundle);
    return fd_write_file_atomic(path, buf_str(&text), 0644) == 0;
}

/* Whether it can take part here, by trying. */
static inline void rival_prepare(struct rival *r, const char *program, const char *argument)
{
    if (!rival_on_path(r->name)) {
        snprintf(r->why, sizeof r->why, "not installed (Debian: %s)",
                 strcmp(r->name, "bwrap") == 0 ? "bubblewrap" : r->name);
        return;
    }
    bool bundles = strcmp(r->name, "runc") == 0;
    snprintf(r->bundle, sizeof r->bundle, "%s/runc", stage_data);
    if ((bundles && !rival_write_bundle(r, "/bin/echo", "x")) ||
        rival_first_output(r, "pm-bench-try") < 0 ||
        (bundles && !rival_write_bundle(r, program, argument)))
        snprintf(r->why, sizeof r->why,
                 "it does not work on this machine; try: bwrap --unshare-all "
                 "--ro-bind / / true, or runc run");
}

#endif
