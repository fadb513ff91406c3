/* pi-managed sandbox run, exec, shell, tool: drives a sandbox without a service. The status is that
   of the command; 125 and a text on standard error when it is we who failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/sandbox_box.h"
#include "cli/terminal.h"
#include "hands/frames.h"
#include "sandbox/exec.h"
#include "sandbox/hands.h"

#define JSON_OUTPUT_MAX (16u << 20) /* bytes of each stream with --json */
#define TOOL_TIMEOUT_MS 120000      /* R34 */

static int failed(const struct invocation *call)
{
    command_fail(call);
    return EXEC_STATUS_FAILED;
}

/* ---- a command ---- */

static void print_json(const struct box *b, const struct exec_ended *ended, const struct buf *out,
                       const struct buf *errs, int64_t took_ms)
{
    AUTO_JSON o = json_object();
    const char *name = box_name_of(b->spec.tenant);
    json_set_str(o, "name", str_of(name ? name : b->spec.id));
    json_object_set_new(o, "status", json_integer(exec_status(ended)));
    json_object_set_new(o, "signal", ended->signal ? json_integer(ended->signal) : json_null());
    json_set_str(o, "stdout", buf_str(out));
    json_set_str(o, "stderr", buf_str(errs));
    json_object_set_new(o, "truncated", json_boolean(ended->cut));
    json_object_set_new(o, "durationMs", json_integer(took_ms));
    AUTO_BUF text = {0};
    json_write(o, &text);
    printf("%s\n", text.p);
}

/* Runs what stands behind -- and returns the status to exit with. */
static int run_program(const struct invocation *call, const struct box *b, int signals)
{
    AUTO_BUF out = {0}, errs = {0};
    bool json = option_flag(call, "json");
    struct exec_request request = {
        .argv = call->rest,
        .argc = call->rest_count,
        .in = STDIN_FILENO,
        .out = STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
        .signals = signals,
        .keep_out = json ? &out : NULL,
        .keep_errs = json ? &errs : NULL,
        .keep_max = JSON_OUTPUT_MAX,
    };
    struct exec_ended ended = {0};
    int64_t began = clock_monotonic_ms(clock_real());
    err e = exec_run(b->socket, &request, &ended);
    if (e) {
        command_fail(call);
        return exec_status_of_err(e);
    }
    if (json)
        print_json(b, &ended, &out, &errs, clock_monotonic_ms(clock_real()) - began);
    return exec_status(&ended);
}

/* ---- run ---- */

static void tell_kept(const struct box *b)
{
    fprintf(stderr, "The sandbox is kept: pi-managed sandbox exec %s --data %s -- …\n",
            box_name_of(b->spec.tenant), b->data.path);
    if (!b->data.fresh)
        fprintf(stderr,
                "A service that runs on this directory will remove it: no session owns it.\n");
}

static int run_in_new(const struct invocation *call, struct box *b, const char *name, int signals)
{
    struct sandbox_spec limits = {0};
    if (sandbox_limit_options(call, &limits) ||
        box_make(b, name, option_value(call, "image"), &limits))
        return failed(call);
    int status = run_program(call, b, signals);
    if (option_flag(call, "keep")) {
        tell_kept(b);
        return status;
    }
    return box_destroy(b) ? failed(call) : status;
}

static int run_run(const struct invocation *call)
{
    static struct box b;
    AUTO_FD signals = -1;
    char fresh[BOX_NAME_MAX + 1];
    const char *name = option_value(call, "name");
    box_name_new(fresh);
    if (terminal_catch_signals(&signals) || (name && box_name_check(name)))
        return failed(call);
    int status = box_open_data(call, true, &b) ? failed(call)
                                               : run_in_new(call, &b, name ? name : fresh, signals);
    box_close(&b);
    return status;
}

/* ---- exec, shell, tool: in one that is there ---- */

static err open_named(const struct invocation *call, struct box *b)
{
    TRY(box_open_data(call, false, b));
    TRY(box_find(b, call->arguments[0]));
    return box_start(b);
}

static int run_exec(const struct invocation *call)
{
    static struct box b;
    AUTO_FD signals = -1;
    if (terminal_catch_signals(&signals))
        return failed(call);
    int status = open_named(call, &b) ? failed(call) : run_program(call, &b, signals);
    box_close(&b);
    return status;
}

/* What terminal_talk calls. */
static err run_in_box(void *arg, const struct exec_request *request, struct exec_ended *out)
{
    const struct box *b = arg;
    return exec_run(b->socket, request, out);
}

static int run_shell(const struct invocation *call)
{
    static struct box b;
    AUTO_FD signals = -1;
    if (!isatty(STDIN_FILENO)) {
        fail(E_INVALID, "standard input is no terminal. For commands use: pi-managed sandbox exec");
        return failed(call);
    }
    if (terminal_catch_signals(&signals))
        return failed(call);
    int status = open_named(call, &b) ? failed(call) : terminal_talk(call, signals, run_in_box, &b);
    box_close(&b);
    return status;
}

static err check_input(const char *text)
{
    AUTO_JSON o = NULL;
    err e = json_read(str_of(text), &o);
    if (e)
        return fail(e, "the tool's input is no JSON: %s", err_text());
    return json_is_object(o) ? 0 : fail(E_INVALID, "the tool's input must be a JSON object");
}

static err call_tool(const struct invocation *call, const struct box *b, struct buf *out)
{
    char key[ID_MAX];
    struct hands_call request = {
        .key = id_new("call", clock_wall_ms(clock_real()), key),
        .tool = call->arguments[1],
        .input = str_of(call->arguments[2]),
        .cwd = SANDBOX_WORKDIR,
        .timeout_ms = TOOL_TIMEOUT_MS,
    };
    TRY(hands_call(b->socket, &request, out));
    return hands_ack(b->socket, key);
}

static err use_tool(const struct invocation *call, struct box *b, bool *out_is_error)
{
    AUTO_BUF result = {0};
    TRY(check_input(call->arguments[2]));
    TRY(open_named(call, b));
    TRY(call_tool(call, b, &result));
    AUTO_JSON o = NULL;
    TRY(json_read(buf_str(&result), &o));
    *out_is_error = json_get_bool(o, "isError", false);
    printf("%.*s\n", STR_ARG(buf_str(&result)));
    return 0;
}

static int run_tool(const struct invocation *call)
{
    static struct box b = {.data = {.lock = -1}};
    bool is_error = false;
    err e = use_tool(call, &b, &is_error);
    int status = e ? failed(call) : is_error;
    box_close(&b);
    return status;
}

/* ---- tables ---- */

static const struct option run_options[] = {
    {"image", "IMAGE", "host", "what it starts from: host, or NAME[:TAG] of the image store"},
    {"name", "NAME", NULL, "call it this, to find it again; default: a new name"},
    {"keep", NULL, NULL, "leave it running instead of removing it"},
    {"json", NULL, NULL, "print status, output and time as one JSON object at the end"},
    OPTIONS_SANDBOX_LIMITS,
    BOX_OPTIONS,
    {0},
};
static const struct option exec_options[] = {
    {"json", NULL, NULL, "print status, output and time as one JSON object at the end"},
    BOX_OPTIONS,
    {0},
};
static const struct option box_options[] = {BOX_OPTIONS, {0}};

const struct command sandbox_run_command = {
    .name = "sandbox run",
    .arguments = "",
    .rest = "CMD",
    .summary = "Runs a command in a new sandbox and exits with its status.",
    .details =
        "128 and the number for a signal, 127 if there is no such program, 126 if it cannot be\n"
        "run, 125 if we failed. Signals are passed on; the third ends it.",
    .options = run_options,
    .run = run_run,
};
const struct command sandbox_exec_command = {
    .name = "sandbox exec",
    .arguments = "NAME",
    .rest = "CMD",
    .summary = "Runs a command in a sandbox that was kept, as sandbox run does.",
    .options = exec_options,
    .run = run_exec,
};
const struct command sandbox_shell_command = {
    .name = "sandbox shell",
    .arguments = "NAME",
    .summary = "Opens a terminal in a sandbox that was kept.",
    .options = box_options,
    .run = run_shell,
};
const struct command sandbox_tool_command = {
    .name = "sandbox tool",
    .arguments = "NAME TOOL JSON",
    .summary = "Calls one of Pi's tools in a sandbox and prints its result as JSON; 1 if isError.",
    .options = box_options,
    .run = run_tool,
};
