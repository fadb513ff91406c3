/* pi-managed export: a session's log as a file that a local Pi opens: `pi --session FILE`. The
   header's cwd becomes the directory the person stands in; everything else stays as it is. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/resource.h"

static const struct option options[] = {
    REMOTE_OPTIONS,
    {"output", "FILE", NULL, "default: ./SESSION.jsonl; - for standard output"},
    {0},
};

/* Only the first line changes; the others stay as they are, byte for byte. */
static err set_cwd(struct str log, struct buf *out)
{
    char cwd[PATH_MAX];
    struct str header;
    AUTO_JSON j = NULL;
    if (!str_split(&log, '\n', &header) || header.n == 0)
        return fail(E_NOT_FOUND, "the session has no log yet: nothing was said in it");
    TRY(json_read(header, &j));
    const char *type = json_get_c(j, "type");
    if (type == NULL || strcmp(type, "session") != 0)
        return fail(E_INTERNAL, "the log does not begin with a session header");
    if (getcwd(cwd, sizeof cwd) == NULL)
        return fail_errno("find the current directory");
    json_set_str(j, "cwd", str_of(cwd));
    json_write(j, out);
    buf_add_char(out, '\n');
    buf_add_str(out, log);
    return 0;
}

static err fetch_log(struct http_client *client, const char *session, struct buf *out)
{
    char path[ID_MAX + 32];
    AUTO_BUF log = {0};
    snprintf(path, sizeof path, "/v1/sessions/%s/export", session);
    TRY(http_client_get(client, path, &log));
    return set_cwd(buf_str(&log), out);
}

static err write_log(const struct invocation *call, const char *session, const struct buf *log)
{
    char name[ID_MAX + 16];
    const char *file = option_value(call, "output");
    if (file && strcmp(file, "-") == 0)
        return fd_write_full(STDOUT_FILENO, log->p, log->n);
    snprintf(name, sizeof name, "%s.jsonl", session);
    file = file ? file : name;
    TRY(fd_write_file_atomic(file, buf_str(log), 0600));
    printf("%s\nOpen it with Pi: pi --session %s\n", file, file);
    return 0;
}

static err export_session(struct remote *r)
{
    char session[ID_MAX];
    AUTO_BUF log = {0};
    TRY(resource_find(r, &session_resource, r->call->arguments[0], session));
    TRY(fetch_log(r->http, session, &log));
    return write_log(r->call, session, &log);
}

static int run(const struct invocation *call)
{
    return remote_run(call, export_session);
}

const struct command export_command = {
    .name = "export",
    .arguments = "SESSION",
    .summary = "Writes a session's log to a file that a local Pi can open.",
    .options = options,
    .run = run,
};
