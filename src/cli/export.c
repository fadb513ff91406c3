/* pi-managed export: a session's log as a file that a local Pi opens: `pi --session FILE`. The
   header's cwd becomes the directory the person stands in; everything else stays as it is. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/resource.h"

static const struct option options[] = {
    REMOTE_OPTIONS,
    {"output", "FILE", NULL, "default: ./SESSION.jsonl; - for standard output"},
    {0},
};

/* The log on its way to the file: nothing but its first line is held. */
struct writing {
    int fd;
    struct buf header; /* as far as it came */
    bool began;        /* the header is written */
    err failed;
};
#define HEADER_BYTES_MAX ((size_t)1 << 20)

/* Only the first line changes; the others stay as they are, byte for byte. */
static err write_header(struct writing *w)
{
    char cwd[PATH_MAX];
    AUTO_JSON j = NULL;
    AUTO_BUF line = {0};
    TRY(json_read(buf_str(&w->header), &j));
    const char *type = json_get_c(j, "type");
    if (type == NULL || strcmp(type, "session") != 0)
        return fail(E_INTERNAL, "the log does not begin with a session header");
    if (getcwd(cwd, sizeof cwd) == NULL)
        return fail_errno("find the current directory");
    json_set_str(j, "cwd", str_of(cwd));
    json_write(j, &line);
    buf_add_char(&line, '\n');
    w->began = true;
    return fd_write_full(w->fd, line.p, line.n);
}

static err take(struct writing *w, struct str bytes)
{
    const char *lf = w->began ? NULL : memchr(bytes.p, '\n', bytes.n);
    if (!w->began) {
        size_t n = lf ? (size_t)(lf - bytes.p) : bytes.n;
        buf_add(&w->header, bytes.p, n);
        if (w->header.n > HEADER_BYTES_MAX)
            return fail(E_INTERNAL, "the log's first line is too long to be a header");
        if (lf == NULL)
            return 0;
        TRY(write_header(w));
        bytes = (struct str){lf + 1, bytes.n - n - 1};
    }
    return fd_write_full(w->fd, bytes.p, bytes.n);
}

static bool on_bytes(void *arg, struct str bytes)
{
    struct writing *w = arg;
    w->failed = take(w, bytes);
    return !w->failed;
}

static err fetch_log(struct http_client *client, const char *session, int fd)
{
    char path[ID_MAX + 32];
    struct writing w = {.fd = fd};
    snprintf(path, sizeof path, "/v1/sessions/%s/export", session);
    struct http_stream s = {
        .path = path, .download = true, .on_bytes = on_bytes, .arg = &w, .wake_fd = -1};
    err e = http_client_stream(client, &s);
    e = e ? e : w.failed;
    buf_done(&w.header);
    if (!e && !w.began)
        return fail(E_NOT_FOUND, "the session has no log yet: nothing was said in it");
    return e;
}

/* Into what is there and is no file of its own: a device, a pipe, a link. It is not replaced. */
static err fetch_through(struct http_client *client, const char *session, const char *path)
{
    AUTO_FD fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    return fd < 0 ? fail_errno("write %.200s", path) : fetch_log(client, session, fd);
}

/* The file is there when it is whole. */
static err fetch_into(struct http_client *client, const char *session, const char *file)
{
    struct stat st;
    AUTO_BUF part = {0};
    if (lstat(file, &st) == 0 && !S_ISREG(st.st_mode))
        return fetch_through(client, session, file);
    buf_printf(&part, "%s.XXXXXX", file);
    AUTO_FD fd = mkostemp(part.p, O_CLOEXEC);
    if (fd < 0)
        return fail_errno("make %.200s", file);
    err e = fetch_log(client, session, fd);
    if (!e && (fsync(fd) < 0 || rename(part.p, file) < 0))
        e = fail_errno("write %.200s", file);
    if (e)
        unlink(part.p);
    return e;
}

static err export_session(struct remote *r)
{
    char session[ID_MAX], name[ID_MAX + 16];
    const char *file = option_value(r->call, "output");
    TRY(resource_find(r, &session_resource, r->call->arguments[0], session));
    if (file && strcmp(file, "-") == 0)
        return fetch_log(r->http, session, STDOUT_FILENO);
    snprintf(name, sizeof name, "%s.jsonl", session);
    file = file ? file : name;
    TRY(fetch_into(r->http, session, file));
    printf("%s\nOpen it with Pi: pi --session %s\n", file, file);
    return 0;
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
