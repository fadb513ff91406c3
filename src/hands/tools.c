#include "hands/tools.h"

#include "base/clock.h"
#include "hands/calls.h"
#include "hands/frames.h"
#include "hands/paths.h"
#include "hands/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

const char *tool_rg_path = SANDBOX_RG;

#define DEFAULT_TIMEOUT_MS 120000 /* R34 */
#define RESULT_MAX (FRAME_MAX - (1u << 20))

static const struct tool *const tools[] = {&tool_bash, &tool_read, &tool_write, &tool_edit,
                                           &tool_grep, &tool_find, &tool_ls,    NULL};

void tool_text(struct tool_result *out, struct str text)
{
    json_t *block = json_object();
    json_object_set_new(block, "type", json_string("text"));
    json_set_str(block, "text", text);
    if (out->content == NULL)
        out->content = json_array();
    json_array_append_new(out->content, block);
}

void tool_error(struct tool_result *out, const char *fmt, ...)
{
    AUTO_BUF text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    out->is_error = true;
    tool_text(out, buf_str(&text));
}

/* libuv's names and words for what the file tools can meet. */
static const struct {
    int number;
    const char *name, *text;
} errnos[] = {
    {EACCES, "EACCES", "permission denied"},
    {EAGAIN, "EAGAIN", "resource temporarily unavailable"},
    {EBUSY, "EBUSY", "resource busy or locked"},
    {EDQUOT, "EDQUOT", "disk quota exceeded"},
    {EEXIST, "EEXIST", "file already exists"},
    {EFBIG, "EFBIG", "file too large"},
    {EINVAL, "EINVAL", "invalid argument"},
    {EIO, "EIO", "i/o error"},
    {EISDIR, "EISDIR", "illegal operation on a directory"},
    {ELOOP, "ELOOP", "too many symbolic links encountered"},
    {EMFILE, "EMFILE", "too many open files"},
    {ENAMETOOLONG, "ENAMETOOLONG", "name too long"},
    {ENFILE, "ENFILE", "file table overflow"},
    {ENODEV, "ENODEV", "no such device"},
    {ENOENT, "ENOENT", "no such file or directory"},
    {ENOEXEC, "ENOEXEC", "exec format error"},
    {ENOMEM, "ENOMEM", "not enough memory"},
    {ENOSPC, "ENOSPC", "no space left on device"},
    {ENOTDIR, "ENOTDIR", "not a directory"},
    {ENXIO, "ENXIO", "no such device or address"},
    {EPERM, "EPERM", "operation not permitted"},
    {EPIPE, "EPIPE", "broken pipe"},
    {EROFS, "EROFS", "read-only file system"},
    {ETXTBSY, "ETXTBSY", "text file is busy"},
    {E2BIG, "E2BIG", "argument list too long"},
};

const char *tool_errno_name(int number)
{
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
        if (errnos[i].number == number)
            return errnos[i].name;
    return strerrorname_np(number) ? strerrorname_np(number) : "UNKNOWN";
}

static const char *errno_text(int number)
{
    for (size_t i = 0; i < sizeof errnos / sizeof *errnos; i++)
        if (errnos[i].number == number)
            return errnos[i].text;
    return strerrordesc_np(number) ? strerrordesc_np(number) : "unknown error";
}

void tool_errno_text(int number, const char *syscall, const char *path, struct buf *out)
{
    buf_printf(out, "%s: %s, %s", tool_errno_name(number), errno_text(number), syscall);
    if (path)
        buf_printf(out, " '%s'", path);
}

void tool_errno(struct tool_result *out, int number, const char *syscall, const char *path)
{
    AUTO_BUF text = {0};
    tool_errno_text(number, syscall, path, &text);
    out->is_error = true;
    tool_text(out, buf_str(&text));
}

bool tool_arg(const struct tool_run *run, const char *name, struct str *out_value,
              struct tool_result *out)
{
    struct str value = json_get_str(run->input, name);
    if (value.p == NULL) {
        tool_error(out, "The argument %s is missing or not a string.", name);
        return false;
    }
    *out_value = value;
    return true;
}

bool tool_path(const struct tool_run *run, bool reading, struct str *out_given,
               struct buf *out_path, struct tool_result *out)
{
    if (!tool_arg(run, "path", out_given, out))
        return false;
    if (reading)
        path_resolve_read(*out_given, run->cwd, out_path);
    else
        path_resolve(*out_given, run->cwd, out_path);
    if (!str_has_nul(buf_str(out_path)))
        return true;
    AUTO_BUF text = {0};
    buf_add_c(&text, "The argument 'path' must be a string, Uint8Array, or URL without null bytes. "
                     "Received ");
    text_inspect(buf_str(out_path), &text);
    out->is_error = true;
    tool_text(out, buf_str(&text));
    return false;
}

bool tool_search_path(const struct tool_run *run, struct buf *out_path, struct tool_result *out)
{
    const json_t *given = json_object_get(run->input, "path");
    struct str path = json_get_str(run->input, "path");
    if (given && !json_is_null(given) && path.p == NULL) {
        tool_error(out, "The argument path is not a string.");
        return false;
    }
    path_resolve(path.n > 0 ? path : STR("."), run->cwd, out_path);
    return true;
}

void tool_not_found(struct str path, struct tool_result *out)
{
    AUTO_BUF text = {0};
    buf_add_c(&text, "Path not found: ");
    buf_add_str(&text, path);
    out->is_error = true;
    tool_text(out, buf_str(&text));
}

double tool_limit(const struct tool_run *run, double otherwise)
{
    const json_t *given = json_object_get(run->input, "limit");
    double limit = json_is_number(given) ? floor(json_number_value(given)) : otherwise;
    return limit > 1 ? limit : 1;
}

void tool_notice(struct tool_notices *notices, const char *fmt, ...)
{
    buf_add_c(notices->text, notices->n++ == 0 ? "\n\n[" : ". ");
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(notices->text, fmt, ap);
    va_end(ap);
}

void tool_notices_end(struct tool_notices *notices)
{
    if (notices->n > 0)
        buf_add_char(notices->text, ']');
}

bool tool_aborted(const struct tool_run *run, struct tool_result *out)
{
    if (!call_cancelled(run->call, NULL))
        return false;
    out->interrupted = true;
    tool_error(out, "Operation aborted");
    return true;
}

static void run_named(const char *name, const struct tool_run *run, struct tool_result *out)
{
    for (size_t i = 0; tools[i]; i++)
        if (strcmp(tools[i]->name, name) == 0) {
            tools[i]->run(run, out);
            return;
        }
    tool_error(out, "Tool %s is not known in this sandbox.", name);
}

static void write_result(struct tool_result *r, int64_t duration_ms, struct buf *out)
{
    AUTO_JSON o = json_object();
    json_object_set_new(o, "isError", json_boolean(r->is_error));
    json_object_set_new(o, "content", r->content);
    if (r->details)
        json_object_set_new(o, "details", r->details);
    if (r->interrupted)
        json_object_set_new(o, "interrupted", json_true());
    json_object_set_new(o, "durationMs", json_integer(duration_ms));
    json_write(o, out);
}

void tool_run(struct call *call, const json_t *request, struct buf *out_result)
{
    const char *cwd = json_get_c(request, "cwd");
    struct tool_run run = {
        .call = call,
        .input = json_object_get(request, "input"),
        .cwd = cwd && cwd[0] == '/' ? cwd : SANDBOX_WORKDIR,
        .timeout_ms =
            json_get_int(json_object_get(request, "limits"), "timeoutMs", DEFAULT_TIMEOUT_MS),
    };
    int64_t start = clock_monotonic_ms(clock_real());
    struct tool_result result = {0};
    run_named(json_get_c(request, "tool"), &run, &result);
    int64_t duration = clock_monotonic_ms(clock_real()) - start;
    write_result(&result, duration, out_result);
    if (out_result->n <= RESULT_MAX)
        return;
    buf_clear(out_result);
    struct tool_result too_large = {0};
    tool_error(&too_large, "The result of the tool is too large to be handed over.");
    write_result(&too_large, duration, out_result);
}
