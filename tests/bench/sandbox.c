/* How long a sandbox takes from nothing to the first output of a command in it, and a command in
   one that runs, as multiples of fork+exec of /bin/true measured in between in the same run
   (machines differ, ratios hardly); bubblewrap and runc the same way where they are installed. Aim:
   create → first output ≤ 8×. Usage: sandbox [ROUNDS], as root or a plain user. */
#include "sandbox_rivals.h"

#define ROUNDS_MAX 1000
#define EXECS_PER_ROUND 5

static struct stage_series base = {.name = "fork+exec /bin/true"},
                           first = {.name = "create → first output"},
                           again = {.name = "start → first output (stopped before)"},
                           inside = {.name = "exec in a running sandbox"},
                           gone = {.name = "destroy"};
static struct rival rivals[] = {{.name = "bwrap"}, {.name = "runc"}};
static struct stage_series rival_times[] = {{.name = "bwrap → first output"},
                                            {.name = "runc run → first output"}};
static struct stage_box box;

static void run_sandbox(void)
{
    struct stage_maker creator = stage_hire(STAGE_CREATE, &box),
                       starter = stage_hire(STAGE_START, &box),
                       stopper = stage_hire(STAGE_STOP, &box),
                       restarter = stage_hire(STAGE_START, &box),
                       destroyer = stage_hire(STAGE_DESTROY, &box);
    stage_add(&base, stage_fork_exec());
    double from = stage_now_ms();
    stage_employ(&creator);
    stage_employ(&starter);
    stage_exec(&box, "echo", FRAME_STDOUT);
    stage_add(&first, stage_now_ms() - from);
    for (int i = 0; i < EXECS_PER_ROUND; i++) {
        stage_add(&base, stage_fork_exec());
        from = stage_now_ms();
        stage_exec(&box, "true", FRAME_EXIT);
        stage_add(&inside, stage_now_ms() - from);
    }
    stage_employ(&stopper);
    stage_add(&base, stage_fork_exec());
    from = stage_now_ms();
    stage_employ(&restarter);
    stage_exec(&box, "echo", FRAME_STDOUT);
    stage_add(&again, stage_now_ms() - from);
    from = stage_now_ms();
    stage_employ(&destroyer);
    stage_add(&gone, stage_now_ms() - from);
}

static void run_rivals(int round)
{
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
        char id[48];
        snprintf(id, sizeof id, "pm-bench-%d-%d", (int)getpid(), round);
        double took = rivals[i].why[0] ? -1 : rival_first_output(&rivals[i], id);
        if (took >= 0)
            stage_add(&rival_times[i], took);
    }
}

static void report_rivals(double unit)
{
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) {
        if (rivals[i].why[0] || rival_times[i].n == 0)
            printf("%-42s skipped: %s\n", rival_times[i].name, rivals[i].why);
        else
            stage_report(&rival_times[i], unit);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        rounds = 20;
    stage_open("sandbox [ROUNDS]");
    stage_box(&box, 0);
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++)
        rival_prepare(&rivals[i], "/bin/echo", "x");
    for (int i = 0; i <= rounds; i++) {
        run_sandbox();
        run_rivals(i);
        stage_reap();
        if (i == 0) /* warm-up: builds the image's skeleton, fills caches */
            base.n = first.n = again.n = inside.n = gone.n = rival_times[0].n = rival_times[1].n =
                0;
    }
    double unit = stage_median(&base);
    stage_report(&base, unit);
    stage_report(&first, unit);
    report_rivals(unit);
    stage_report(&again, unit);
    stage_report(&inside, unit);
    stage_report(&gone, unit);
    stage_close();
    return 0;
}
