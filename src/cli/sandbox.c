/* pi-managed sandbox ls, rm: what sandboxes a data directory has, and removing them, while no
   service runs on it: sandboxes outlive it. While it runs, deleting a session removes its sandbox.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/sandbox_box.h"

#define ALL "all"

static const char *const state_names[] = {[SANDBOX_NONE] = "none",
                                          [SANDBOX_STOPPED] = "stopped",
                                          [SANDBOX_RUNNING] = "running",
                                          [SANDBOX_CRASHED] = "crashed"};

typedef err (*sandbox_fn)(const struct invocation *call, struct box *b);

/* Goes on after a failure; returns the last one. */
static err with_each(const struct invocation *call, struct box *b, sandbox_fn fn)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/sandboxes", b->data.path) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    DIR *dir = opendir(path);
    if (dir == NULL)
        return fail_errno("open %s", path);
    err last = 0;
    struct err_slot slot = {0};
    for (struct dirent *d; (d = readdir(dir));) {
        if (!id_valid(str_of(d->d_name), "sess") &&
            !id_valid(str_of(d->d_name), SANDBOX_SNAPSHOT_ID))
            continue;
        err e = box_point(b, d->d_name);
        if (e || (e = fn(call, b)) != 0) {
            err_save(&slot);
            last = e;
        }
    }
    closedir(dir);
    return last ? err_restore(&slot) : 0;
}

static err show(const struct invocation *call, struct box *b)
{
    struct sandbox_status status = {0};
    TRY(b->provider->status(&b->spec, &b->place, &status));
    const char *name = box_name_of(status.tenant);
    const char *state = box_is_snapshot(b) ? "snapshot" : state_names[status.state];
    if (!option_flag(call, "json")) {
        printf("%-32s  %-8s %s\n", name ? name : b->spec.id, state, status.reason);
        return 0;
    }
    AUTO_BUF text = {0};
    AUTO_JSON j =
        json_pack("{s:s, s:s?, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:i}", "id", b->spec.id, "name",
                  name, "provider", b->provider->name, "state", state, "reason", status.reason,
                  "limitsEnforced", status.limits_enforced, "diskBytes",
                  (json_int_t)status.disk_bytes, "memoryBytes", (json_int_t)status.memory_bytes,
                  "cpuUs", (json_int_t)status.cpu_us, "pids", (int)status.pids);
    json_write(j, &text);
    printf("%s\n", text.p);
    return 0;
}

static err destroy(const struct invocation *call, struct box *b)
{
    (void)call;
    struct sandbox_status status = {0};
    b->provider->status(&b->spec, &b->place, &status); /* for its name; a damaged one has none */
    const char *name = box_name_of(status.tenant);
    TRY(box_destroy(b));
    printf("%s removed\n", name ? name : b->spec.id);
    return 0;
}

static int run_list(const struct invocation *call)
{
    static struct box b;
    err e = box_open_data(call, false, &b);
    int status = e || with_each(call, &b, show) ? command_fail(call) : 0;
    box_close(&b);
    return status;
}

static err remove_wanted(const struct invocation *call, struct box *b)
{
    const char *name = call->arguments[0];
    if (strcmp(name, ALL) == 0)
        return with_each(call, b, destroy);
    /* By its id also what is damaged and cannot be found any more. */
    bool by_id = id_valid(str_of(name), "sess") || id_valid(str_of(name), SANDBOX_SNAPSHOT_ID);
    TRY(by_id ? box_point(b, name) : box_find_any(b, name));
    return destroy(call, b);
}

static int run_remove(const struct invocation *call)
{
    static struct box b;
    err e = box_open_data(call, false, &b);
    int status = e || remove_wanted(call, &b) ? command_fail(call) : 0;
    box_close(&b);
    return status;
}

/* ---- copies ---- */

static int run_copy(const struct invocation *call, bool snapshot)
{
    static struct box b, copy;
    const char *name = call->arguments[1];
    err e = box_open_data(call, false, &b);
    if (!e)
        e = snapshot ? box_find(&b, call->arguments[0]) : box_find_any(&b, call->arguments[0]);
    if (!e)
        e = box_fork(&b, name, snapshot, &copy);
    if (!e)
        printf("%s made\n", name);
    box_close(&b);
    return e ? command_fail(call) : 0;
}

static int run_snapshot(const struct invocation *call)
{
    return run_copy(call, true);
}

static int run_fork(const struct invocation *call)
{
    return run_copy(call, false);
}

static const struct option list_options[] = {BOX_OPTIONS, OPTION_JSON, {0}};
static const struct option remove_options[] = {BOX_OPTIONS, {0}};

const struct command sandbox_list_command = {
    .name = "sandbox ls",
    .arguments = "",
    .summary = "Lists the sandboxes of a data directory that no service runs on.",
    .options = list_options,
    .run = run_list,
};
const struct command sandbox_remove_command = {
    .name = "sandbox rm",
    .arguments = "NAME|SESSION|all",
    .summary =
        "Removes sandboxes, snapshots and the files in them; no service may run on the directory.",
    .options = remove_options,
    .run = run_remove,
};
const struct command sandbox_snapshot_command = {
    .name = "sandbox snapshot",
    .arguments = "NAME SNAPSHOT",
    .summary = "Keeps the files of a sandbox as they are now, under a name of their own.",
    .details = "If it runs, its processes rest for the time of the copy and then go on.",
    .options = remove_options,
    .run = run_snapshot,
};
const struct command sandbox_fork_command = {
    .name = "sandbox fork",
    .arguments = "NAME|SNAPSHOT NEW",
    .summary = "Makes a new sandbox with the files of another, or of a snapshot.",
    .details = "Processes are not copied: the new one is stopped. See: pi-managed sandbox exec",
    .options = remove_options,
    .run = run_fork,
};
