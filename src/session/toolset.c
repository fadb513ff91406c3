#include "session/toolset.h"

/* Those of this build, in the order Pi shows them. */
static const char *const builtin[] = {"read", "bash", "edit", "write", "grep", "find", "ls", NULL};

static const json_t *config_of(const json_t *tools, const char *name)
{
    size_t i;
    json_t *config;
    json_array_foreach(json_object_get(tools, "configs"), i, config)
    {
        if (str_is(json_get_str(config, "name"), name))
            return config;
    }
    return NULL;
}

static bool is_denied(const json_t *config)
{
    const json_t *policy = json_object_get(config, "permissionPolicy");
    struct str type = json_is_object(policy) ? json_get_str(policy, "type")
                                             : json_get_str(config, "permissionPolicy");
    return str_is(type, "always_deny");
}

json_t *toolset_names(const json_t *tools)
{
    const json_t *fallback = json_object_get(tools, "defaultConfig");
    json_t *names = json_array();
    for (size_t i = 0; builtin[i]; i++) {
        const json_t *own = config_of(tools, builtin[i]);
        bool enabled = json_get_bool(own, "enabled", json_get_bool(fallback, "enabled", true));
        bool has_policy = json_object_get(own, "permissionPolicy") != NULL;
        if (enabled && !is_denied(has_policy ? own : fallback))
            json_array_append_new(names, json_string(builtin[i]));
    }
    return names;
}
