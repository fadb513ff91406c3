/* pi-managed volume …: folders that environments mount into the sandboxes of a tenant. */
#include "cli/resource.h"

static const struct column columns[] = {
    {"ID", "id", COLUMN_TEXT, 0},
    {"NAME", "name", COLUMN_TEXT, 40},
    {"BYTES", "sizeBytes", COLUMN_NUMBER, 0},
    {"SESSIONS", "sessions", COLUMN_NUMBER, 0},
    {"USED", "lastUsedAt", COLUMN_TIME, 0},
    {0},
};
const struct resource volume_resource = {
    .noun = "volume",
    .plural = "volumes",
    .path = "/v1/volumes",
    .id_prefix = "vol",
    .label = "name",
    .has_unique_label = true,
    .is_never_archived = true,
    .columns = columns,
};

static const struct option list_options[] = {OPTION_LIMIT, OPTION_JSON_LINES, REMOTE_OPTIONS, {0}};

const struct command volume_list_command = {
    .name = "volume list",
    .arguments = "",
    .summary = "Lists the volumes that environments have mounted, newest first.",
    .options = list_options,
    .run = resource_list,
    .resource = &volume_resource,
};
const struct command volume_get_command = {
    .name = "volume get",
    .arguments = "VOLUME",
    .summary = "Shows a volume, measured now.",
    .options = resource_one_options,
    .run = resource_get,
    .resource = &volume_resource,
};
const struct command volume_remove_command = {
    .name = "volume remove",
    .arguments = "VOLUME",
    .summary = "Removes a volume with all that is in it; refused while a session has it.",
    .options = resource_one_options,
    .run = resource_delete,
    .resource = &volume_resource,
};
