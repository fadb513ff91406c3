/* What the sandbox benchmarks share: a data folder, sandboxes made in it as the service makes them,
   series of times and their report. Header only; main's thread. */
#ifndef TESTS_BENCH_SANDBOX_STAGE_H
#define TESTS_BENCH_SANDBOX_STAGE_H

#include "sandbox/provider.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/tree.h"
#include "hands/frames.h"
#include "sandbox/hands.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STAGE_SERIES_MAX 8192

static char stage_data[64], stage_images[80], stage_runtime[4096];

struct stage_box {
    struct sandbox_spec spec;
    struct sandbox_place place;
    char dir[160], agent[192];
};

static inline double stage_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline void stage_must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, err_text());
        exit(1);
    }
}

/* Exits with a text where no sandbox can be made. */
static inline void stage_open(const char *usage)
{
    struct sandbox_caps caps;
    if (!realpath("build/runtime", stage_runtime)) {
        fprintf(stderr, "usage: %s, in the project's folder after make\n", usage);
        exit(2);
    }
    snprintf(stage_data, sizeof stage_data, "/tmp/pm-bench-sandbox-XXXXXX");
    stage_must(mkdtemp(stage_data) != NULL, "make a data folder");
    snprintf(stage_images, sizeof stage_images, "%s/images", stage_data);
    char folder[96];
    snprintf(folder, sizeof folder, "%s/sandboxes", stage_data);
    stage_must(mkdir(folder, 0755) == 0, "make the folder");
    sandbox_provider_named("linux")->probe(&caps); /* as the parent does when it starts */
    if (!caps.usable) {
        fprintf(stderr, "no sandbox can be made here: %s\n", caps.reason);
        exit(1);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that dead sandboxes are reaped here */
}

static inline void stage_close(void)
{
    tree_remove(stage_data);
}

static inline void stage_box(struct stage_box *b, unsigned number)
{
    *b = (struct stage_box){.spec = {.tenant = "tenant_bench", .image = "host"}};
    snprintf(b->spec.id, sizeof b->spec.id, "sess_bench%u", number);
    snprintf(b->dir, sizeof b->dir, "%s/sandboxes/%s", stage_data, b->spec.id);
    snprintf(b->agent, sizeof b->agent, "%s/agent.sock", b->dir);
    b->place = (struct sandbox_place){.dir = b->dir,
                                      .socket = b->agent,
                                      .socket_owner = geteuid(),
                                      .uid_base = 1000000 + 65536 * (number + 1),
                                      .runtime = stage_runtime,
                                      .images = stage_images};
}

enum stage_verb {
    STAGE_CREATE,
    STAGE_START,
    STAGE_STOP,
    STAGE_DESTROY
};

static inline err stage_do(enum stage_verb verb, const struct stage_box *b)
{
    const struct sandbox_provider *linux_ = sandbox_provider_named("linux");
    switch (verb) {
    case STAGE_CREATE:
        return linux_->create(&b->spec, &b->place);
    case STAGE_START:
        return linux_->start(&b->spec, &b->place);
    case STAGE_STOP:
        return linux_->stop(&b->spec, &b->place, 0);
    default:
        return linux_->destroy(&b->spec, &b->place);
    }
}

/* As the parent has it: one process per verb, which waits for its request before there is one, and
   ends after its answer without anybody waiting. */
struct stage_maker {
    int link;
};

static inline struct stage_maker stage_hire(enum stage_verb verb, const struct stage_box *b)
{
    int pair[2];
    stage_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    fflush(NULL);
    if (fork() == 0) {
        char go;
        close(pair[0]);
        sandbox_providers_warm_up();
        if (read(pair[1], &go, 1) == 1) {
            stage_must(stage_do(verb, b) == 0, "a sandbox verb");
            stage_must(write(pair[1], "", 1) == 1, "answer");
        }
        _exit(0);
    }
    close(pair[1]);
    return (struct stage_maker){.link = pair[0]};
}

static inline void stage_employ(struct stage_maker *m)
{
    char done;
    stage_must(write(m->link, "", 1) == 1 && read(m->link, &done, 1) == 1, "a maker");
    close(m->link);
}

/* Until the first output of `echo`, or the end of `true`. */
static inline void stage_exec(const struct stage_box *b, const char *program, enum frame_type until)
{
    AUTO_FD fd = -1;
    stage_must(hands_connect(b->agent, &fd) == 0, "connect");
    AUTO_JSON o = json_pack("{s:[s,s]}", "argv", program, "x");
    AUTO_BUF text = {0}, payload = {0};
    json_write(o, &text);
    stage_must(frame_write(fd, FRAME_EXEC, buf_str(&text)) == 0, "exec");
    enum frame_type type;
    do
        stage_must(frame_read(fd, &type, &payload) == 0, "read");
    while (type != until);
}

static inline double stage_fork_exec(void)
{
    double from = stage_now_ms();
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
    return stage_now_ms() - from;
}

struct stage_series {
    const char *name;
    int n;
    double ms[STAGE_SERIES_MAX];
};

static inline void stage_add(struct stage_series *s, double ms)
{
    if (s->n < STAGE_SERIES_MAX)
        s->ms[s->n++] = ms;
}

static inline int stage_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static inline double stage_median(struct stage_series *s)
{
    qsort(s->ms, (size_t)s->n, sizeof s->ms[0], stage_compare);
    return s->n ? s->ms[s->n / 2] : 0;
}

/* `unit`: the median of fork+exec in this run. */
static inline void stage_report(struct stage_series *s, double unit)
{
    double m = stage_median(s);
    printf("%-42s median %7.2f ms  min %7.2f  %5.1f×\n", s->name, m, s->ms[0], m / unit);
}

static inline void stage_reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

#endif
