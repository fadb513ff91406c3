/* What idle sandboxes take of the machine's memory: by how much MemAvailable falls, and the
   proportional set size of their processes (PSS), for 1, 40 and 400 of them, and for 40 sleeping in
   bubblewrap and in runc where those are installed. Aim: ≤ 1 MB each. A busy machine falsifies the
   first number. Usage: sandbox_memory [COUNT] */
#include "sandbox_rivals.h"

#include <dirent.h>

#define RIVAL_COUNT 40
#define COUNT_MAX 2000
#define UP_MS 60000
#define LOOK_US 20000

static struct stage_box boxes[COUNT_MAX];

static long number_in(const char *path, const char *name)
{
    char line[256];
    long found = -1;
    FILE *f = fopen(path, "r");
    size_t n = strlen(name);
    while (f && found < 0 && fgets(line, sizeof line, f)) {
        if (strncmp(line, name, n) == 0 && line[n] == ':')
            found = atol(line + n + 1);
    }
    if (f)
        fclose(f);
    return found;
}

static long available_kb(void)
{
    long most = 0;
    for (int i = 0; i < 5; i++) { /* the most that is free: others come and go */
        long now = number_in("/proc/meminfo", "MemAvailable");
        most = now > most ? now : most;
        usleep(LOOK_US);
    }
    return most;
}

static long parent_of(long pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    return number_in(path, "PPid");
}

static bool descends_from_us(long pid)
{
    long self = getpid(), at = pid;
    for (int depth = 0; at > 1 && at != self && depth < 16; depth++)
        at = parent_of(at);
    return pid > 0 && pid != self && at == self;
}

/* The sum of `measure` over the processes that descend from us, apart from ourselves. */
static long sum_of_descendants(long (*measure)(long pid))
{
    long sum = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));)
        if (descends_from_us(atol(e->d_name)))
            sum += measure(atol(e->d_name));
    if (d)
        closedir(d);
    return sum;
}

static long pss_kb(long pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", pid);
    long pss = number_in(path, "Pss");
    return pss > 0 ? pss : 0;
}

/* 1 if it has executed sleep. */
static long sleeps(long pid)
{
    char path[64], name[16] = "";
    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    FILE *f = fopen(path, "r");
    bool named = f && fgets(name, sizeof name, f);
    if (f)
        fclose(f);
    return named && strcmp(name, "sleep\n") == 0;
}

static void report(const char *name, unsigned n, long before_kb)
{
    long fell = before_kb - available_kb(), pss = sum_of_descendants(pss_kb);
    printf("%4u %-10s MemAvailable fell by %6.0f KB each, PSS %6.0f KB each\n", n, name,
           (double)fell / n, (double)pss / n);
    fflush(stdout);
}

static void measure_sandboxes(unsigned n)
{
    long before = available_kb();
    for (unsigned i = 0; i < n; i++) {
        stage_box(&boxes[i], i);
        struct stage_maker creator = stage_hire(STAGE_CREATE, &boxes[i]),
                           starter = stage_hire(STAGE_START, &boxes[i]);
        stage_employ(&creator);
        stage_employ(&starter);
        stage_reap();
    }
    report("sandboxes", n, before);
    for (unsigned i = 0; i < n; i++)
        stage_must(stage_do(STAGE_DESTROY, &boxes[i]) == 0, "destroy");
    stage_reap();
}

static void end_rivals(const struct rival *r, pid_t pids[RIVAL_COUNT])
{
    for (unsigned i = 0; i < RIVAL_COUNT; i++) {
        char command[128];
        snprintf(command, sizeof command, "runc kill pm-memory-%d-%u KILL >/dev/null 2>&1",
                 (int)getpid(), i);
        if (strcmp(r->name, "runc") == 0 && system(command) != 0)
            fprintf(stderr, "a container of runc could not be ended\n");
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    stage_reap();
}

static void measure_rival(struct rival *r)
{
    pid_t pids[RIVAL_COUNT];
    rival_prepare(r, "/bin/sleep", "1000");
    if (r->why[0]) {
        printf("%4u %-10s skipped: %s\n", RIVAL_COUNT, r->name, r->why);
        return;
    }
    long before = available_kb();
    for (unsigned i = 0; i < RIVAL_COUNT; i++) {
        char id[48];
        snprintf(id, sizeof id, "pm-memory-%d-%u", (int)getpid(), i);
        pids[i] = rival_start(r, id, "/bin/sleep", "1000", -1);
    }
    for (double from = stage_now_ms(); sum_of_descendants(sleeps) < RIVAL_COUNT;) {
        stage_must(stage_now_ms() - from < UP_MS, r->name);
        usleep(LOOK_US); /* it says nothing when it is up */
    }
    report(r->name, RIVAL_COUNT, before);
    end_rivals(r, pids);
}

int main(int argc, char **argv)
{
    static const unsigned usual[] = {1, 40, 400};
    struct rival rivals[] = {{.name = "bwrap"}, {.name = "runc"}};
    unsigned only = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    stage_open("sandbox_memory [COUNT]");
    stage_box(&boxes[0], 0); /* builds the image's skeleton */
    stage_must(stage_do(STAGE_CREATE, &boxes[0]) == 0 && stage_do(STAGE_START, &boxes[0]) == 0 &&
                   stage_do(STAGE_DESTROY, &boxes[0]) == 0,
               "a sandbox");
    if (only > 0 && only <= COUNT_MAX)
        measure_sandboxes(only);
    for (size_t i = 0; only == 0 && i < 3; i++)
        measure_sandboxes(usual[i]);
    for (size_t i = 0; only == 0 && i < 2; i++)
        measure_rival(&rivals[i]);
    stage_close();
    return 0;
}
