#include "session/workdir.h"

#include "hands/frames.h"
#include "sandbox/exec.h"

#define RG "/.pi/rg"
#define KEEP_MAX ((size_t)4 << 20)
#define TIMEOUT_MS 10000

/* Every line of every file found, in JSON: rg tells the exact bytes, and follows links only to
   regular files. Configuration of the image does not count. */
#define PRINT                                                                                      \
    RG, "--no-config", "--json", "--text", "--encoding", "none", "--follow", "--sort", "path",     \
        "--max-filesize", "1M"

/* Pi looks in each folder from the root to the working directory. */
static char *const context_files[] = {PRINT,       "--no-ignore",  "--max-depth",
                                      "1",         "-g",           "AGENTS.override.md",
                                      "-g",        "AGENTS.md",    "-g",
                                      "AGENTS.MD", "-g",           "CLAUDE.md",
                                      "-g",        "CLAUDE.MD",    "",
                                      "/",         SANDBOX_WORKDIR};

/* Of a skill only its beginning, which names and describes it: the model reads the rest. */
static char *const skills[] = {PRINT,
                               "--no-require-git",
                               "--no-ignore-parent",
                               "--max-depth",
                               "8",
                               "--max-count",
                               "100",
                               "-g",
                               "*.md",
                               "",
                               SANDBOX_WORKDIR "/.pi/skills",
                               SANDBOX_WORKDIR "/.agents/skills"};

/* rg's status is 1 when nothing is found and 2 when a folder is not there: both are usual. */
static err run(const char *socket, char *const *argv, size_t argc, struct buf *out)
{
    AUTO_BUF errs = {0};
    struct exec_request r = {.argv = argv,
                             .argc = argc,
                             .cwd = "/",
                             .in = -1,
                             .out = -1,
                             .err_fd = -1,
                             .signals = -1,
                             .keep_out = out,
                             .keep_errs = &errs,
                             .keep_max = KEEP_MAX,
                             .timeout_ms = TIMEOUT_MS};
    struct exec_ended ended = {0};
    TRY(exec_run(socket, &r, &ended));
    if (ended.signal || ended.code > 2)
        return fail(E_UNAVAILABLE, "looking for context files ended with %s %d",
                    ended.signal ? "signal" : "status", ended.signal ? ended.signal : ended.code);
    return 0;
}

/* Whole lines only: the last one may be cut. */
static void take_lines(struct str found, struct buf *out, size_t *out_lines)
{
    struct str rest = found;
    for (const char *lf; rest.n && (lf = memchr(rest.p, '\n', rest.n));) {
        size_t n = (size_t)(lf - rest.p) + 1;
        buf_add(out, rest.p, n);
        ++*out_lines;
        rest = (struct str){rest.p + n, rest.n - n};
    }
}

err workdir_read(const char *socket, struct buf *out, size_t *out_lines)
{
    AUTO_BUF files = {0};
    AUTO_BUF descriptions = {0};
    TRY(run(socket, context_files, sizeof context_files / sizeof *context_files, &files));
    TRY(run(socket, skills, sizeof skills / sizeof *skills, &descriptions));
    *out_lines = 0;
    take_lines(buf_str(&files), out, out_lines);
    take_lines(buf_str(&descriptions), out, out_lines);
    return 0;
}
