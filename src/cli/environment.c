/* pi-managed env …: what the sandbox of a session is made of. */
#include "cli/resource.h"

static const struct column columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"NAME", "name", COLUMN_TEXT, 32},
    {"IMAGE", "image", COLUMN_TEXT, 32},
    {"CREATED", "createdAt", COLUMN_TIME, 0},
    {0},
};
const struct resource environment_resource = {
    .noun = "env",
    .plural = "environments",
    .path = "/v1/environments",
    .id_prefix = "env",
    .label = "name",
    .has_unique_label = true,
    .columns = columns,
    .filters = resource_archived_filter,
};

/* ---- fields from options ---- */

static err set_numbers(const struct invocation *call, json_t *body)
{
    static const struct {
        const char *option, *member;
        bool is_resource;
    } numbers[] = {
        {"cpus", "cpus", true},
        {"memory", "memoryMiB", true},
        {"pids", "pids", true},
        {"disk", "diskMiB", true},
        {"idle-timeout", "idleTimeout", false},
        {"max-duration", "maxDuration", false},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *text = option_value(call, numbers[i].option);
        json_t *value = NULL, *into = body;
        if (text == NULL)
            continue;
        TRY(resource_number(numbers[i].option, text, &value));
        if (numbers[i].is_resource && (into = json_object_get(body, "resources")) == NULL)
            json_object_set_new(body, "resources", into = json_object());
        json_object_set_new(into, numbers[i].member, value);
    }
    return 0;
}

static err fields_of(struct remote *r, json_t *body)
{
    const char *image = option_value(r->call, "image");
    if (image)
        json_set_str(body, "image", str_of(image));
    return set_numbers(r->call, body);
}

/* ---- verbs ---- */

static err create_work(struct remote *r)
{
    AUTO_JSON body = NULL;
    AUTO_JSON made = NULL;
    TRY(resource_body(r, &body));
    TRY(fields_of(r, body));
    json_set_str(body, "name", str_of(r->call->arguments[0]));
    TRY(remote_send(r, "POST", environment_resource.path, json_incref(body), &made));
    resource_say(r, "made", made);
    return 0;
}

/* Limits are replaced as a whole: those not named stay because they are sent again. */
static err keep_limits(struct remote *r, const char *path, json_t *body)
{
    AUTO_JSON now = NULL;
    if (json_object_get(body, "resources"))
        return 0;
    TRY(remote_get(r, path, &now));
    json_object_set(body, "resources", json_object_get(now, "resources"));
    return 0;
}

static bool names_limits(const struct invocation *call)
{
    return option_value(call, "cpus") || option_value(call, "memory") ||
           option_value(call, "pids") || option_value(call, "disk");
}

static err update_work(struct remote *r)
{
    AUTO_BUF path = {0};
    AUTO_JSON body = NULL;
    AUTO_JSON changed = NULL;
    TRY(resource_path(r, "", &path));
    TRY(resource_body(r, &body));
    if (names_limits(r->call))
        TRY(keep_limits(r, path.p, body));
    TRY(fields_of(r, body));
    if (option_value(r->call, "name"))
        json_set_str(body, "name", str_of(option_value(r->call, "name")));
    if (json_object_size(body) == 0)
        return fail(E_INVALID, "nothing to change: see pi-managed env update --help");
    TRY(remote_send(r, "PATCH", path.p, json_incref(body), &changed));
    resource_say(r, "changed", changed);
    return 0;
}

static int create(const struct invocation *call)
{
    return remote_run(call, create_work);
}

static int update(const struct invocation *call)
{
    return remote_run(call, update_work);
}

#define FIELD_OPTIONS                                                                              \
    {"image", "IMAGE", NULL, "host, or NAME[:TAG] of pi-managed image list; default: host"},       \
        {"cpus", "N", NULL, "processors, like 0.5"}, {"memory", "MIB", NULL, "memory"},            \
        {"pids", "N", NULL, "processes"}, {"disk", "MIB", NULL, "disk"},                           \
        {"idle-timeout", "SECONDS", NULL, "idle so long, the sandbox is stopped; its files stay"}, \
    {                                                                                              \
        "max-duration", "SECONDS", NULL, "a session's turns may run so long, all together"         \
    }

static const struct option create_options[] = {
    FIELD_OPTIONS, OPTION_FROM, OPTION_JSON, REMOTE_OPTIONS, {0}};
static const struct option update_options[] = {
    {"name", "NAME", NULL, "call it this"},
    FIELD_OPTIONS,
    OPTION_FROM,
    OPTION_JSON,
    REMOTE_OPTIONS,
    {0},
};

const struct command env_create_command = {
    .name = "env create",
    .arguments = "NAME",
    .summary = "Makes an environment: an image, limits, times.",
    .options = create_options,
    .run = create,
    .resource = &environment_resource,
};
const struct command env_list_command = {
    .name = "env list",
    .arguments = "",
    .summary = "Lists environments, newest first.",
    .options = resource_list_options,
    .run = resource_list,
    .resource = &environment_resource,
};
const struct command env_get_command = {
    .name = "env get",
    .arguments = "ENV",
    .summary = "Shows an environment.",
    .options = resource_one_options,
    .run = resource_get,
    .resource = &environment_resource,
};
const struct command env_update_command = {
    .name = "env update",
    .arguments = "ENV",
    .summary = "Changes an environment; sessions keep what they were made with.",
    .details = "What is not named stays as it is.",
    .options = update_options,
    .run = update,
    .resource = &environment_resource,
};
const struct command env_archive_command = {
    .name = "env archive",
    .arguments = "ENV",
    .summary = "Archives an environment for good: no new session can use it.",
    .options = resource_one_options,
    .run = resource_archive,
    .resource = &environment_resource,
};
const struct command env_delete_command = {
    .name = "env delete",
    .arguments = "ENV",
    .summary = "Deletes an environment for good; its sessions go on.",
    .options = resource_one_options,
    .run = resource_delete,
    .resource = &environment_resource,
};
