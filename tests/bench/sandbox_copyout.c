/* How fast files come out of a sandbox (COPY_OUT, made into a tar archive) beside `tar` on the host
   over the same files, in the same run and in turns: one large file, many small ones in folders.
   Also what only differs from the image, in a sandbox where nothing does. Files are in the page
   cache for both. Aim: ≤ 2× tar. Usage: sandbox_copyout [ROUNDS] */
#include "sandbox_stage.h"

#include "sandbox/copyout.h"
#include "sandbox/tar.h"

#define LARGE_MIB 256
#define SMALL_FOLDERS 15
#define SMALL_EACH 200 /* files of 2 KiB in a folder */

static struct stage_box box;
static struct stage_series ours = {.name = "ours"}, tars = {.name = "tar"},
                           unchanged = {.name = "changes of the host image, none"};

static void do_verb(enum stage_verb verb)
{
    struct stage_maker m = stage_hire(verb, &box);
    stage_employ(&m);
}

static void in_sandbox(const char *command)
{
    AUTO_FD fd = -1;
    AUTO_BUF text = {0}, payload = {0};
    AUTO_JSON o =
        json_pack("{s:[s,s,s],s:s}", "argv", "/bin/sh", "-c", command, "cwd", "/workspace");
    json_write(o, &text);
    stage_must(hands_connect(box.agent, &fd) == 0, "connect");
    stage_must(frame_write(fd, FRAME_EXEC, buf_str(&text)) == 0, "exec");
    enum frame_type type;
    do
        stage_must(frame_read(fd, &type, &payload) == 0, "read");
    while (type != FRAME_EXIT);
}

struct archive {
    struct buf out;
    uint64_t bytes;
};

static err flush(struct archive *a)
{
    a->bytes += a->out.n;
    buf_clear(&a->out);
    return 0;
}

static err begin(void *arg, const struct copyout_entry *e)
{
    struct archive *a = arg;
    tar_add_header(&a->out, e->path, &e->now);
    return a->out.n > FRAME_CHUNK ? flush(a) : 0;
}

static err content(void *arg, enum copyout_side side, struct str bytes)
{
    struct archive *a = arg;
    (void)side;
    buf_add_str(&a->out, bytes);
    return a->out.n > FRAME_CHUNK ? flush(a) : 0;
}

static err end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    (void)arg;
    (void)before;
    return now == COPYOUT_FINE ? 0 : fail(E_INTERNAL, "a file was not copied whole");
}

static double copy_out(const struct copyout_request *request, uint64_t *out_entries)
{
    struct archive a = {0};
    struct copyout_sink sink = {.begin = begin, .content = content, .end = end, .arg = &a};
    struct copyout_summary summary;
    double from = stage_now_ms();
    stage_must(copyout_run(box.agent, request, &sink, &summary) == 0, "copy out");
    double took = stage_now_ms() - from;
    *out_entries = summary.entries;
    buf_done(&a.out);
    return took;
}

/* Through a pipe: tar does not read what goes to /dev/null. */
static double run_tar(void)
{
    char command[320];
    snprintf(command, sizeof command, "tar -C %s/fs/upper/workspace -cf - . | cat >/dev/null",
             box.dir);
    double from = stage_now_ms();
    stage_must(system(command) == 0, "tar");
    return stage_now_ms() - from;
}

static void compare(const char *what, double mib, int rounds)
{
    const struct copyout_request all = {.root = "/workspace", .contents = true};
    uint64_t entries = 0;
    ours.n = tars.n = 0;
    copy_out(&all, &entries);
    run_tar();
    for (int i = 0; i < rounds; i++) {
        stage_add(&ours, copy_out(&all, &entries));
        stage_add(&tars, run_tar());
    }
    double o = stage_median(&ours), t = stage_median(&tars);
    printf("%-24s %7llu entries, %4.0f MiB: ours %7.1f ms (%5.0f MiB/s), tar %7.1f ms: %4.2f×\n",
           what, (unsigned long long)entries, mib, o, mib / o * 1e3, t, o / t);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 7;
    char command[256];
    uint64_t entries = 0;
    stage_open("sandbox_copyout [ROUNDS]");
    stage_box(&box, 0);
    do_verb(STAGE_CREATE);
    do_verb(STAGE_START);
    const struct copyout_request changes = {.root = "/", .changes = true};
    for (int i = 0; i < rounds; i++)
        stage_add(&unchanged, copy_out(&changes, &entries));
    stage_report(&unchanged, stage_fork_exec());

    snprintf(command, sizeof command, "head -c %dM /dev/urandom > large", LARGE_MIB);
    in_sandbox(command);
    compare("one large file", LARGE_MIB, rounds);
    snprintf(command, sizeof command,
             "rm large; x=$(head -c 2048 /dev/zero | tr '\\0' x); for d in $(seq %d); do mkdir $d; "
             "for f in $(seq %d); do printf %%s $x > $d/$f; done; done",
             SMALL_FOLDERS, SMALL_EACH);
    in_sandbox(command);
    compare("many small files", SMALL_FOLDERS * SMALL_EACH * 2.0 / 1024, rounds);
    do_verb(STAGE_DESTROY);
    stage_reap();
    stage_close();
    return 0;
}
