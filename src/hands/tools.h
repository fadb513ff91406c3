/* The tools of the sandbox: execute(name, input) with the semantics of Pi 1.6 (facts in docs; R33,
   R34, R54). One tool is one file, tool_<name>.c, and one row in tools.c. A tool runs on the call's
   own thread. */
#ifndef HANDS_TOOLS_H
#define HANDS_TOOLS_H

#include "base/buf.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct call;

struct tool_run {
    struct call *call;   /* for output so far and for being cancelled */
    const json_t *input; /* an object; its members are checked by the tool */
    const char *cwd;     /* absolute */
    int64_t timeout_ms;  /* for a tool whose input names none; 0: none */
};

/* Filled by the tool; content is never empty when it returns. */
struct tool_result {
    json_t *content, *details;
    bool is_error, interrupted;
};

struct tool {
    const char *name;
    void (*run)(const struct tool_run *run, struct tool_result *out);
};

/* The program grep runs: SANDBOX_RG; tests outside a sandbox name another (pi-hands --rg). */
extern const char *tool_rg_path;

extern const struct tool tool_bash, tool_read, tool_write, tool_edit, tool_grep, tool_find, tool_ls;

/* Runs the tool a CALL object names and appends the RESULT object. Never fails: trouble is a
 * result. */
void tool_run(struct call *call, const json_t *request, struct buf *out_result);

/* Result makers. Text of an error is what the model reads. */
void tool_text(struct tool_result *out, struct str text);
void tool_error(struct tool_result *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Node's "ENOENT: no such file or directory, open '/x'"; path NULL leaves it out. */
void tool_errno(struct tool_result *out, int number, const char *syscall, const char *path);
void tool_errno_text(int number, const char *syscall, const char *path, struct buf *out);
const char *tool_errno_name(int number); /* "ENOENT" */
/* A string member; false with an error result if it is missing or no string. NUL allowed. */
bool tool_arg(const struct tool_run *run, const char *name, struct str *out_value,
              struct tool_result *out);
/* Its path, resolved; false with an error result when missing or impossible (NUL). */
bool tool_path(const struct tool_run *run, bool reading, struct str *out_given,
               struct buf *out_path, struct tool_result *out);
/* For tools that search: `path` or the working directory when it is absent or empty. False with an
   error result when it is no string. */
bool tool_search_path(const struct tool_run *run, struct buf *out_path, struct tool_result *out);
void tool_not_found(struct str path, struct tool_result *out);
/* The whole number in `limit`, at least 1. */
double tool_limit(const struct tool_run *run, double otherwise);
/* Adds "\n\n[NOTICE. NOTICE]" piece by piece: `text` is where the output ends. */
struct tool_notices {
    struct buf *text;
    size_t n;
};
void tool_notice(struct tool_notices *notices, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void tool_notices_end(struct tool_notices *notices);
/* True, with Pi's text as the result, when the call was cancelled. */
bool tool_aborted(const struct tool_run *run, struct tool_result *out);

#endif
