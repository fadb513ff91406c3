#include "api/environment_mounts.h"

#include "api/service.h"
#include "parent/link.h"

#include <stdio.h>

static void check_volume_name(struct fields *f, const json_t *value)
{
    if (mount_check_name((struct str){json_string_value(value), json_string_length(value)}))
        fields_problem(f, "invalid_mount", "%s", err_text());
}

static void check_source(struct fields *f, const json_t *value)
{
    if (mount_check_source((struct str){json_string_value(value), json_string_length(value)}))
        fields_problem(f, "invalid_mount", "%s", err_text());
}

static void check_target(struct fields *f, const json_t *value)
{
    if (mount_check_target((struct str){json_string_value(value), json_string_length(value)}))
        fields_problem(f, "invalid_mount", "%s", err_text());
}

/* A volume has a name, a bind a source. */
static void check_mount(struct fields *f, const json_t *value)
{
    const char *type = json_get_c(value, "type");
    bool bind = type && strcmp(type, "bind") == 0;
    const char *has = bind ? "source" : "name", *has_not = bind ? "name" : "source";
    if (!type)
        return;
    if (!json_object_get(value, has))
        fields_problem_at(f, has, NULL, "is required");
    if (json_object_get(value, has_not))
        fields_problem_at(f, has_not, NULL, "a %s has none", type);
}

/* What only the provider, and the list of the operator, can say. */
static void check_mount_here(struct fields *f, const struct service *service, size_t at,
                             const struct sandbox_mount *mount)
{
    struct parent_message m = {.verb = PARENT_MOUNT_CHECK};
    struct sandbox_mount *asked = &m.sandbox.spec.mounts[0];
    char where[16];
    m.sandbox.spec.mount_count = 1;
    *asked = *mount;
    if (mount->type == MOUNT_VOLUME) /* the same for all: it has no id yet */
        id_new(MOUNT_VOLUME_ID, 0, asked->source);
    if (parent_call(service->parent, &m, NULL) == 0)
        return;
    snprintf(where, sizeof where, "%zu", at);
    fields_problem_at(f, where, err_code(), "%s", err_text());
}

static bool is_twice(const struct sandbox_mount *a, const struct sandbox_mount *b)
{
    return a->type == b->type && strcmp(a->source, b->source) == 0;
}

/* Of mounts that are right each for itself. */
void environment_check_mounts(struct fields *f, const json_t *value)
{
    struct sandbox_mount mounts[MOUNTS_MAX];
    uint32_t n = 0;
    if (f->count > 0 || mounts_read(value, mounts, &n))
        return; /* told already */
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if (mount_check_apart(str_of(mounts[i].target), str_of(mounts[k].target)))
                fields_problem(f, "invalid_mount", "%s", err_text());
            if (is_twice(&mounts[i], &mounts[k]))
                fields_problem(f, "invalid_mount", "%s is mounted twice", mounts[i].source);
        }
    }
    for (uint32_t i = 0; f->count == 0 && i < n; i++)
        check_mount_here(f, f->context, i, &mounts[i]);
}

static const char *const mount_types[] = {"volume", "bind", NULL};
static const struct field mount_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true, .one_of = mount_types},
    {.name = "name", .kinds = FIELD_STRING, .check = check_volume_name},
    {.name = "source", .kinds = FIELD_STRING, .check = check_source},
    {.name = "target", .kinds = FIELD_STRING, .required = true, .check = check_target},
    {.name = "readOnly", .kinds = FIELD_BOOL},
    {0},
};
const struct field environment_mount_field = {
    .kinds = FIELD_OBJECT, .members = mount_fields, .check = check_mount};

void environment_fill_mounts(json_t *definition)
{
    size_t i;
    json_t *one, *mounts = json_deep_copy(json_object_get(definition, "mounts"));
    json_array_foreach(mounts, i, one)
    {
        bool bind = strcmp(json_get_c(one, "type"), "bind") == 0;
        json_object_set_new(one, "readOnly", json_boolean(json_get_bool(one, "readOnly", bind)));
    }
    json_object_set_new(definition, "mounts", mounts);
}
