/* pi-managed file …: files of the service, those that were uploaded and those that sessions left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/resource.h"
#include "cli/text.h"

static const struct column columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"NAME", "name", COLUMN_TEXT, 40},
    {"BYTES", "sizeBytes", COLUMN_NUMBER, 0},
    {"TYPE", "mimeType", COLUMN_TEXT, 32},
    {"CREATED", "createdAt", COLUMN_TIME, 0},
    {0},
};
static const struct resource_filter filters[] = {
    {.option = "session", .query = "sessionId", .resource = &session_resource},
    {0},
};
/* Of a session's outputs, those that are not in the list. */
static void say_rest(const json_t *page)
{
    const json_t *outputs = json_object_get(page, "outputs");
    int64_t waiting = json_get_int(outputs, "waiting", 0);
    int64_t left_out = json_get_int(outputs, "leftOut", 0);
    if (waiting)
        fprintf(stderr, "%lld more are not copied yet: list again to get them.\n",
                (long long)waiting);
    if (left_out)
        fprintf(stderr,
                "%lld or more are left out: beyond the first 10,000, with names that are no UTF-8, "
                "or in folders that cannot be read. pi-managed pull SESSION --path "
                "/mnt/session/outputs copies all.\n",
                (long long)left_out);
}

const struct resource file_resource = {
    .noun = "file",
    .plural = "files",
    .path = "/v1/files",
    .id_prefix = "file",
    .label = "name",
    .columns = columns,
    .filters = filters,
    .on_page = say_rest,
};

/* ---- upload ---- */

static err upload_work(struct remote *r)
{
    AUTO_BUF answer = {0};
    AUTO_JSON file = NULL;
    TRY(http_client_upload_form(r->http, file_resource.path, "file", r->call->arguments[0],
                                option_value(r->call, "name"), &answer));
    TRY(json_read(buf_str(&answer), &file));
    resource_say(r, "uploaded", file);
    return 0;
}

static int upload(const struct invocation *call)
{
    return remote_run(call, upload_work);
}

/* ---- download ---- */

struct download {
    int fd;
    uint64_t bytes;
    err failed;
};

static bool on_bytes(void *arg, struct str bytes)
{
    struct download *d = arg;
    d->failed = fd_write_full(d->fd, bytes.p, bytes.n);
    d->bytes += bytes.n;
    return !d->failed;
}

/* The name is what somebody else gave: never a path, never hidden. */
static const char *own_name(const json_t *file)
{
    const char *name = json_get_c(file, "name"), *slash = name ? strrchr(name, '/') : NULL;
    name = slash ? slash + 1 : name;
    return name && name[0] && name[0] != '.' ? name : json_get_c(file, "id");
}

static err fetch(struct remote *r, const char *id, struct download *d)
{
    AUTO_BUF path = {0};
    buf_printf(&path, "%s/%s/content", file_resource.path, id);
    struct http_stream s = {
        .path = path.p, .download = true, .on_bytes = on_bytes, .arg = d, .wake_fd = -1};
    err e = http_client_stream(r->http, &s);
    return e ? e : d->failed;
}

/* Nothing that is there is replaced, nothing half is left. */
static err fetch_into(struct remote *r, const char *id, const char *to)
{
    struct download d = {.fd =
                             open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)};
    if (d.fd < 0 && errno == EEXIST)
        return fail(E_CONFLICT, "%.200s is there already: --output names another", to);
    if (d.fd < 0)
        return fail_errno("make %.200s", to);
    err e = fetch(r, id, &d);
    fd_close(&d.fd);
    if (e) {
        unlink(to);
        return e;
    }
    AUTO_BUF safe = {0};
    text_add_line(&safe, str_of(to), 0);
    printf("%s: %llu bytes\n", safe.p, (unsigned long long)d.bytes);
    return 0;
}

static err download_work(struct remote *r)
{
    char id[ID_MAX];
    AUTO_BUF path = {0};
    AUTO_JSON file = NULL;
    const char *to = option_value(r->call, "output");
    TRY(resource_find(r, &file_resource, r->call->arguments[0], id));
    if (to && strcmp(to, "-") == 0)
        return fetch(r, id, &(struct download){.fd = STDOUT_FILENO});
    buf_printf(&path, "%s/%s", file_resource.path, id);
    TRY(remote_get(r, path.p, &file));
    return fetch_into(r, id, to ? to : own_name(file));
}

static int download(const struct invocation *call)
{
    return remote_run(call, download_work);
}

/* ---- the verbs ---- */

static const struct option upload_options[] = {
    {"name", "NAME", NULL, "call it this; default: the file's own"},
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};
static const struct option list_options[] = {
    {"session", "SESSION", NULL, "what its agent left in /mnt/session/outputs, once it is idle"},
    OPTION_LIMIT,
    OPTION_JSON_LINES,
    REMOTE_OPTIONS,
    {0},
};
static const struct option download_options[] = {
    {"output", "FILE", NULL, "default: its name, here; - for standard output"},
    REMOTE_OPTIONS,
    {0},
};

const struct command file_upload_command = {
    .name = "file upload",
    .arguments = "PATH",
    .summary = "Uploads a file, for the resources of sessions.",
    .options = upload_options,
    .run = upload,
    .resource = &file_resource,
};
const struct command file_list_command = {
    .name = "file list",
    .arguments = "",
    .summary = "Lists files, newest first; with --session what a session left.",
    .options = list_options,
    .run = resource_list,
    .resource = &file_resource,
};
const struct command file_get_command = {
    .name = "file get",
    .arguments = "FILE",
    .summary = "Shows what is known of a file.",
    .options = resource_one_options,
    .run = resource_get,
    .resource = &file_resource,
};
const struct command file_download_command = {
    .name = "file download",
    .arguments = "FILE",
    .summary = "Writes a file's content here; never over what is there.",
    .options = download_options,
    .run = download,
    .resource = &file_resource,
};
const struct command file_delete_command = {
    .name = "file delete",
    .arguments = "FILE",
    .summary = "Deletes a file.",
    .options = resource_one_options,
    .run = resource_delete,
    .resource = &file_resource,
};
