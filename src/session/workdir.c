#include "session/workdir.h"

#include "base/json.h"
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

/* The names of files without a line, of which rg says nothing in JSON; each ends in NUL. An empty
   file counts all the same: it hides those that come after it. */
#define NAME_EMPTY                                                                                 \
    RG, "--no-config", "--files-without-match", "--null", "--text", "--encoding", "none",          \
        "--follow", "--sort", "path", "--max-filesize", "1M"

/* Pi looks in each folder from the root to the working directory. */
#define CONTEXT_FILES                                                                              \
    "--no-ignore", "--max-depth", "1", "-g", "AGENTS.override.md", "-g", "AGENTS.md", "-g",        \
        "AGENTS.MD", "-g", "CLAUDE.md", "-g", "CLAUDE.MD", "", "/", SANDBOX_WORKDIR
static char *const context_files[] = {PRINT, CONTEXT_FILES};
static char *const empty_context_files[] = {NAME_EMPTY, CONTEXT_FILES};

/* Of a skill only its beginning, which names and describes it: the model reads the rest. */
#define SKILLS                                                                                     \
    "--no-require-git", "--no-ignore-parent", "--max-depth", "8", "--max-count", "100", "-g",      \
        "*.md", "", SANDBOX_WORKDIR "/.pi/skills", SANDBOX_WORKDIR "/.agents/skills"
static char *const skills[] = {PRINT, SKILLS};
static char *const empty_skills[] = {NAME_EMPTY, SKILLS};

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

/* As rg would say it: a match that is nothing. The last name may be cut. */
static void take_names(struct str found, struct buf *out, size_t *out_lines)
{
    struct str name;
    for (const char *end; found.n && (end = memchr(found.p, 0, found.n));) {
        name = (struct str){found.p, (size_t)(end - found.p)};
        found = (struct str){end + 1, found.n - name.n - 1};
        if (!str_is_utf8(name))
            continue; /* none of the names that count */
        AUTO_JSON line = json_pack("{s:s, s:{s:{s:o}, s:{s:s}}}", "type", "match", "data", "path",
                                   "text", json_str(name), "lines", "text", "");
        json_write(line, out);
        buf_add_char(out, '\n');
        ++*out_lines;
    }
}

#define RUN(argv, out) run(socket, argv, sizeof(argv) / sizeof *(argv), out)

err workdir_read(const char *socket, struct buf *out, size_t *out_lines)
{
    AUTO_BUF files = {0};
    AUTO_BUF descriptions = {0};
    AUTO_BUF empty = {0};
    TRY(RUN(context_files, &files));
    TRY(RUN(skills, &descriptions));
    TRY(RUN(empty_context_files, &empty));
    TRY(RUN(empty_skills, &empty));
    *out_lines = 0;
    take_lines(buf_str(&files), out, out_lines);
    take_lines(buf_str(&descriptions), out, out_lines);
    take_names(buf_str(&empty), out, out_lines);
    return 0;
}
