/* pi-managed sandbox: what sandboxes a data directory has, and removing them, while the service is
   stopped: sandboxes outlive it. While it runs, deleting a session removes its sandbox. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/command.h"
#include "parent/data.h"
#include "sandbox/provider.h"

#define ALL "all"

static const char *const state_names[] = {[SANDBOX_NONE] = "none",
                                          [SANDBOX_STOPPED] = "stopped",
                                          [SANDBOX_RUNNING] = "running",
                                          [SANDBOX_CRASHED] = "crashed"};

/* The directory as its service left it: whoever owns the database is control. */
static err open_data(const struct invocation *call, struct data_dir *out)
{
    char path[PATH_MAX];
    struct stat st;
    const char *data = option_value(call, "data");
    if (snprintf(path, sizeof path, "%s/control.db", data) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    if (stat(path, &st) < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "%s is no data directory of a service", data)
                               : fail_errno("open %s", path);
    err e = data_open(data, st.st_uid, out);
    return e == E_CONFLICT ? fail(e,
                                  "the service is running on %s. Stop it first, or delete the "
                                  "session through the API",
                                  data)
                           : e;
}

typedef err (*sandbox_fn)(const struct invocation *call, const struct sandbox_provider *provider,
                          const struct sandbox_spec *spec, const struct sandbox_place *place);

static err with_one(const struct invocation *call, const struct data_dir *data, const char *id,
                    sandbox_fn fn)
{
    char dir[PATH_MAX], socket[PATH_MAX], images[PATH_MAX];
    struct sandbox_spec spec = {0};
    const struct sandbox_provider *provider = sandbox_providers[0];
    snprintf(spec.id, sizeof spec.id, "%s", id);
    if (snprintf(dir, sizeof dir, "%s/sandboxes/%s", data->path, id) >= (int)sizeof dir ||
        snprintf(socket, sizeof socket, "%s/agent.sock", dir) >= (int)sizeof socket ||
        snprintf(images, sizeof images, "%s/images", data->path) >= (int)sizeof images)
        return fail(E_INVALID, "the path of the data directory is too long");
    struct sandbox_place place = {.dir = dir, .socket = socket, .images = images};
    return fn(call, provider, &spec, &place);
}

/* Goes on after a failure; returns the last one. */
static err with_each(const struct invocation *call, const struct data_dir *data, sandbox_fn fn)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/sandboxes", data->path) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    DIR *dir = opendir(path);
    if (dir == NULL)
        return fail_errno("open %s", path);
    err last = 0;
    struct err_slot slot = {0};
    for (struct dirent *d; (d = readdir(dir));) {
        if (id_valid(str_of(d->d_name), "sess") && with_one(call, data, d->d_name, fn)) {
            err_save(&slot);
            last = slot.e;
        }
    }
    closedir(dir);
    return last ? err_restore(&slot) : 0;
}

static err show(const struct invocation *call, const struct sandbox_provider *provider,
                const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    struct sandbox_status status = {0};
    TRY(provider->status(spec, place, &status));
    if (!option_flag(call, "json")) {
        printf("%s  %-8s %s\n", spec->id, state_names[status.state], status.reason);
        return 0;
    }
    AUTO_BUF text = {0};
    AUTO_JSON j = json_pack("{s:s, s:s, s:s, s:s}", "id", spec->id, "provider", provider->name,
                            "state", state_names[status.state], "reason", status.reason);
    json_write(j, &text);
    printf("%s\n", text.p);
    return 0;
}

static err destroy(const struct invocation *call, const struct sandbox_provider *provider,
                   const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    (void)call;
    TRY(provider->destroy(spec, place));
    printf("%s destroyed\n", spec->id);
    return 0;
}

static int finish(const struct invocation *call, struct data_dir *data, err e)
{
    int status = e ? command_fail(call) : 0;
    data_close(data);
    return status;
}

static int run_list(const struct invocation *call)
{
    struct data_dir *data = mem_alloc(sizeof *data);
    data->lock = -1;
    err e = open_data(call, data);
    int status = finish(call, data, e ? e : with_each(call, data, show));
    mem_free(data);
    return status;
}

static err destroy_wanted(const struct invocation *call, const struct data_dir *data)
{
    const char *id = call->arguments[0];
    if (strcmp(id, ALL) == 0)
        return with_each(call, data, destroy);
    if (!id_valid(str_of(id), "sess"))
        return fail(E_INVALID, "%s is no session id; give one, or all", id);
    return with_one(call, data, id, destroy);
}

static int run_destroy(const struct invocation *call)
{
    struct data_dir *data = mem_alloc(sizeof *data);
    data->lock = -1;
    err e = open_data(call, data);
    int status = finish(call, data, e ? e : destroy_wanted(call, data));
    mem_free(data);
    return status;
}

static const struct option list_options[] = {OPTION_DATA, OPTION_JSON, {0}};
static const struct option destroy_options[] = {OPTION_DATA, {0}};

const struct command sandbox_list_command = {
    .name = "sandbox list",
    .arguments = "",
    .summary = "Lists the sandboxes of a service that is stopped.",
    .options = list_options,
    .run = run_list,
};
const struct command sandbox_destroy_command = {
    .name = "sandbox destroy",
    .arguments = "SESSION|all",
    .summary = "Removes sandboxes (their files too) of a service that is stopped.",
    .options = destroy_options,
    .run = run_destroy,
};
