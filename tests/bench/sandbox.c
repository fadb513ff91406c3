/* How long a sandbox takes from nothing to the first output of a command in it, and a command in
   one that runs, as multiples of fork+exec of /bin/true measured in between in the same run
   (machines differ, ratios hardly). Aim: create → first output ≤ 8×. Usage: sandbox [ROUNDS], as
   root or a plain user. */
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

#define ROUNDS_MAX 1000
#define EXECS_PER_ROUND 5

static char data[64], images[80], runtime[4096], dir[160], agent[192];
static struct sandbox_spec spec = {.id = "sess_bench", .tenant = "tenant_bench", .image = "host"};
static struct sandbox_place place;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void must(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, err_text());
        exit(1);
    }
}

/* As the parent has it: one process per verb, which waits for its request before there is one, and
   ends after its answer without anybody waiting. */
struct maker {
    int link;
};

static struct maker hire(err (*verb)(void), const char *what)
{
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    fflush(NULL);
    if (fork() == 0) {
        char go;
        close(pair[0]);
        sandbox_providers_warm_up();
        if (read(pair[1], &go, 1) == 1) {
            must(verb() == 0, what);
            must(write(pair[1], "", 1) == 1, what);
        }
        _exit(0);
    }
    close(pair[1]);
    return (struct maker){.link = pair[0]};
}

static void employ(struct maker *m, const char *what)
{
    char done;
    must(write(m->link, "", 1) == 1 && read(m->link, &done, 1) == 1, what);
    close(m->link);
}

static err create(void)
{
    return sandbox_provider_named("linux")->create(&spec, &place);
}

static err start(void)
{
    return sandbox_provider_named("linux")->start(&spec, &place);
}

static err stop(void)
{
    return sandbox_provider_named("linux")->stop(&spec, &place, 0);
}

static err destroy(void)
{
    return sandbox_provider_named("linux")->destroy(&spec, &place);
}

static double fork_exec(void)
{
    double from = now_ms();
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
    return now_ms() - from;
}

/* Until the first output of `echo`, or the end of `true`. */
static void exec_inside(const char *program, enum frame_type until)
{
    AUTO_FD fd = -1;
    must(hands_connect(agent, &fd) == 0, "connect");
    AUTO_JSON o = json_pack("{s:[s,s]}", "argv", program, "x");
    AUTO_BUF text = {0}, payload = {0};
    json_write(o, &text);
    must(frame_write(fd, FRAME_EXEC, buf_str(&text)) == 0, "exec");
    enum frame_type type;
    do
        must(frame_read(fd, &type, &payload) == 0, "read");
    while (type != until);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct series {
    const char *name;
    int n;
    double ms[ROUNDS_MAX * EXECS_PER_ROUND];
};

static struct series base = {.name = "fork+exec /bin/true"},
                     first = {.name = "create → first output"},
                     again = {.name = "start → first output (stopped before)"},
                     inside = {.name = "exec in a running sandbox"}, gone = {.name = "destroy"};

static void add(struct series *s, double ms)
{
    s->ms[s->n++] = ms;
}

static double median(struct series *s)
{
    qsort(s->ms, (size_t)s->n, sizeof s->ms[0], compare);
    return s->ms[s->n / 2];
}

static void report(struct series *s, double unit)
{
    double m = median(s);
    printf("%-40s median %7.2f ms  min %7.2f  %5.1f×\n", s->name, m, s->ms[0], m / unit);
}

static void round_once(void)
{
    struct maker creator = hire(create, "create"), starter = hire(start, "start"),
                 stopper = hire(stop, "stop"), restarter = hire(start, "start again"),
                 destroyer = hire(destroy, "destroy");
    add(&base, fork_exec());
    double from = now_ms();
    employ(&creator, "create");
    employ(&starter, "start");
    exec_inside("echo", FRAME_STDOUT);
    add(&first, now_ms() - from);
    for (int i = 0; i < EXECS_PER_ROUND; i++) {
        add(&base, fork_exec());
        from = now_ms();
        exec_inside("true", FRAME_EXIT);
        add(&inside, now_ms() - from);
    }
    employ(&stopper, "stop");
    add(&base, fork_exec());
    from = now_ms();
    employ(&restarter, "start again");
    exec_inside("echo", FRAME_STDOUT);
    add(&again, now_ms() - from);
    from = now_ms();
    employ(&destroyer, "destroy");
    add(&gone, now_ms() - from);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    if (rounds < 1 || rounds > ROUNDS_MAX || !realpath("build/runtime", runtime)) {
        fprintf(stderr, "usage: sandbox [ROUNDS], in the project's folder after make\n");
        return 2;
    }
    snprintf(data, sizeof data, "/tmp/pm-bench-sandbox-XXXXXX");
    must(mkdtemp(data) != NULL, "make a data folder");
    snprintf(images, sizeof images, "%s/images", data);
    snprintf(dir, sizeof dir, "%s/sandboxes", data);
    must(mkdir(dir, 0755) == 0, "make the folder");
    snprintf(dir, sizeof dir, "%s/sandboxes/sess_bench", data);
    snprintf(agent, sizeof agent, "%s/agent.sock", dir);
    place = (struct sandbox_place){.dir = dir,
                                   .socket = agent,
                                   .socket_owner = geteuid(),
                                   .uid_base = 1000000 + 65536,
                                   .runtime = runtime,
                                   .images = images};
    struct sandbox_caps caps;
    sandbox_provider_named("linux")->probe(&caps); /* as the parent does when it starts */
    if (!caps.usable) {
        fprintf(stderr, "no sandbox can be made here: %s\n", caps.reason);
        return 1;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that dead sandboxes are reaped here */
    for (int i = 0; i <= rounds; i++) {
        round_once();
        if (i == 0) /* warm-up: builds the image's skeleton, fills caches */
            base.n = first.n = again.n = inside.n = gone.n = 0;
    }
    double unit = median(&base);
    report(&base, unit);
    report(&first, unit);
    report(&again, unit);
    report(&inside, unit);
    report(&gone, unit);
    tree_remove(data);
    return 0;
}
