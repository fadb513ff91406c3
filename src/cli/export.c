/* pi-managed export: a session's log as a file that a local Pi opens: `pi --session FILE`. The
   header's cwd becomes the directory the person stands in; everything else stays as it is. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/json.h"
#include "base/secret.h"
#include "cli/command.h"
#include "cli/http_client.h"

#define KEY_FILE_MAX 256

static const struct option options[] = {
    OPTION_DATA,
    {"url", "URL", "http://127.0.0.1:7433", "the running service"},
    {"output", "FILE", NULL, "default: ./SESSION.jsonl; - for standard output"},
    {0},
};

/* PI_MANAGED_API_KEY, else the key that serve wrote when the data directory was new. *out may be
 * empty. */
static err find_key(const struct invocation *call, struct buf *out)
{
    const char *key = getenv("PI_MANAGED_API_KEY");
    char path[PATH_MAX];
    if (key && key[0]) {
        buf_add_c(out, key);
        return 0;
    }
    snprintf(path, sizeof path, "%s/first-key", option_value(call, "data"));
    err e = fd_read_file(path, KEY_FILE_MAX, out);
    if (e == E_NOT_FOUND)
        return fail(E_UNAUTHORIZED, "no API key: set PI_MANAGED_API_KEY (%s does not exist)", path);
    TRY(e);
    while (out->n && out->p[out->n - 1] == '\n')
        out->p[--out->n] = 0;
    return 0;
}

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

static err export_session(const struct invocation *call, struct buf *key)
{
    const char *session = call->arguments[0];
    struct http_client *client = NULL;
    AUTO_BUF log = {0};
    if (!id_valid(str_of(session), "sess"))
        return fail(E_INVALID, "%s is no session id (sess_…)", session);
    TRY(find_key(call, key));
    TRY(http_client_open(option_value(call, "url"), key->p, &client));
    err e = fetch_log(client, session, &log);
    http_client_close(client);
    TRY(e);
    return write_log(call, session, &log);
}

static int run(const struct invocation *call)
{
    AUTO_BUF key = {0};
    err e = export_session(call, &key);
    if (key.p)
        secret_wipe(key.p, key.cap);
    return e ? command_fail(call) : 0;
}

const struct command export_command = {
    .name = "export",
    .arguments = "SESSION",
    .summary = "Writes a session's log to a file that a local Pi can open.",
    .options = options,
    .run = run,
};
