/* What an agent's definition may say (§6.1, §18.3, §19.3, §20.3), and how changes apply to one. */
#include "api/agents.h"

#include "base/arena.h"
#include "broker/catalog.h"
#include "http/http.h"

#define PROMPT_BYTES_MAX (100 * KB)
#define ROSTER_MAX 20      /* §18.3 */
#define MCP_SERVERS_MAX 20 /* §19.3 */
#define SKILLS_MAX 20      /* §20.3 */

/* What a definition may say */

static const char *const thinking_levels[] = {"off",  "minimal", "low", "medium",
                                              "high", "xhigh",   "max", NULL};
static const char *const wire_apis[] = {"anthropic-messages", "openai-completions",
                                        "openai-responses", "google-generative-ai", NULL};
static const char *const tool_names[] = {"bash", "read", "write", "edit",
                                         "grep", "find", "ls",    NULL};
static const char *const policies[] = {"always_allow", "always_ask", "always_deny", NULL};
static const char *const input_kinds[] = {"text", "image", NULL};
static const char *const skill_types[] = {"prebuilt", "custom", NULL};
static const char *const prebuilt_skills[] = {"pptx", "xlsx", "docx", "pdf", NULL};
static const char *const mcp_types[] = {"url", NULL};

static const struct field cost_fields[] = {
    {.name = "input", .kinds = FIELD_NUMBER, .required = true, .max = 1e6},
    {.name = "output", .kinds = FIELD_NUMBER, .required = true, .max = 1e6},
    {.name = "cacheRead", .kinds = FIELD_NUMBER, .max = 1e6},
    {.name = "cacheWrite", .kinds = FIELD_NUMBER, .max = 1e6},
    {0},
};

static const struct field input_kind = {.kinds = FIELD_STRING, .one_of = input_kinds};

static const struct field model_fields[] = {
    {.name = "provider",
     .kinds = FIELD_STRING,
     .required = true,
     .line = true,
     .min = 1,
     .max = 64},
    {.name = "id", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 256},
    {.name = "thinkingLevel", .kinds = FIELD_STRING, .nullable = true, .one_of = thinking_levels},
    {.name = "api", .kinds = FIELD_STRING, .nullable = true, .line = true, .max = 64},
    {.name = "baseUrl",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .max = 2048},
    {.name = "contextWindow", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = 1e9},
    {.name = "maxTokens", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = 1e9},
    {.name = "input",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .min = 1,
     .max = 2,
     .item = &input_kind},
    {.name = "cost", .kinds = FIELD_OBJECT, .nullable = true, .members = cost_fields},
    {0},
};

static void check_model(struct fields *f, const json_t *model);

/* §22: what waits for a person needs the confirmation events, which are not there yet. */
static void check_policy(struct fields *f, const json_t *value)
{
    if (strcmp(json_string_value(value), "always_ask") == 0)
        fields_problem(f, "not_supported",
                       "always_ask is not supported by this version; use always_allow or "
                       "always_deny");
}

static const struct field default_config_fields[] = {
    {.name = "enabled", .kinds = FIELD_BOOL},
    {.name = "permissionPolicy", .kinds = FIELD_STRING, .one_of = policies, .check = check_policy},
    {0},
};

static const struct field config_fields[] = {
    {.name = "name", .kinds = FIELD_STRING, .required = true, .one_of = tool_names},
    {.name = "enabled", .kinds = FIELD_BOOL},
    {.name = "permissionPolicy", .kinds = FIELD_STRING, .one_of = policies, .check = check_policy},
    {0},
};

static void check_configs(struct fields *f, const json_t *configs)
{
    fields_unique(f, configs, "name", "configures");
}

static const struct field config = {.kinds = FIELD_OBJECT, .members = config_fields};

/* §19.4: the tools of one MCP server; which ones it has is not known here. */
static const struct field mcp_config_fields[] = {
    {.name = "name", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 128},
    {.name = "enabled", .kinds = FIELD_BOOL},
    {.name = "permissionPolicy", .kinds = FIELD_STRING, .one_of = policies, .check = check_policy},
    {0},
};

static const struct field mcp_config = {.kinds = FIELD_OBJECT, .members = mcp_config_fields};

static const struct field toolset_fields[] = {
    {.name = "server", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1},
    {.name = "defaultConfig", .kinds = FIELD_OBJECT, .members = default_config_fields},
    {.name = "configs",
     .kinds = FIELD_ARRAY,
     .max = 128,
     .item = &mcp_config,
     .check = check_configs},
    {0},
};

static const struct field toolset = {.kinds = FIELD_OBJECT, .members = toolset_fields};

static const struct field tools_fields[] = {
    {.name = "defaultConfig", .kinds = FIELD_OBJECT, .members = default_config_fields},
    {.name = "configs", .kinds = FIELD_ARRAY, .max = 7, .item = &config, .check = check_configs},
    {.name = "mcp", .kinds = FIELD_ARRAY, .max = MCP_SERVERS_MAX, .item = &toolset},
    {.name = "custom", .not_supported = "leave custom tools out"},
    {0},
};

/* R43: names of managed features; this version has none. */
static void check_extension(struct fields *f, const json_t *value)
{
    fields_problem(f, "extension_unavailable",
                   "there is no managed feature named %.64s; code of a tenant never runs in the "
                   "service",
                   json_string_value(value));
}

static const struct field extension = {
    .kinds = FIELD_STRING, .line = true, .min = 1, .max = 64, .check = check_extension};

/* scheme://host[:port][/path], nothing else: no user, query or fragment. */
static bool is_base_url(struct str url)
{
    struct str https = STR("https://"), http = STR("http://");
    struct str scheme = str_starts(url, https) ? https : http;
    if (!str_starts(url, scheme) || url.n == scheme.n || url.p[scheme.n] == '/')
        return false;
    for (size_t i = scheme.n; i < url.n; i++) {
        unsigned char c = (unsigned char)url.p[i];
        if (c <= ' ' || c >= 0x7f || strchr("@?#\\\"<>^`{|}", c))
            return false;
    }
    return true;
}

/* §20.3 */
static void check_skill(struct fields *f, const json_t *skill)
{
    struct str id = json_get_str(skill, "skillId");
    if (str_is(json_get_str(skill, "type"), "custom")) {
        if (!id_valid(id, "skill"))
            fields_problem_at(f, "skillId", NULL, "must be the id of a custom skill: skill_…");
        return;
    }
    static const struct field known = {.kinds = FIELD_STRING, .one_of = prebuilt_skills};
    fields_member(f, "skillId", &known, json_object_get(skill, "skillId"));
    if (json_object_get(skill, "version"))
        fields_problem_at(f, "version", NULL, "is for custom skills only");
}

static const struct field skill_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true, .one_of = skill_types},
    {.name = "skillId", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 64},
    {.name = "version", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = INT32_MAX},
    {0},
};

static const struct field skill = {
    .kinds = FIELD_OBJECT, .members = skill_fields, .check = check_skill};

static void check_skills(struct fields *f, const json_t *list)
{
    fields_unique(f, list, "skillId", "names the skill");
}

/* §19.3: no bounds on name and url beyond those of a body. */
static void check_mcp_url(struct fields *f, const json_t *value)
{
    if (!is_base_url(str_of(json_string_value(value))))
        fields_problem(f, NULL,
                       "must be an http:// or https:// address without user, query or fragment");
}

static const struct field mcp_server_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true, .one_of = mcp_types},
    {.name = "name", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1},
    {.name = "url",
     .kinds = FIELD_STRING,
     .required = true,
     .line = true,
     .min = 1,
     .check = check_mcp_url},
    {0},
};

static const struct field mcp_server = {.kinds = FIELD_OBJECT, .members = mcp_server_fields};

static void check_mcp_servers(struct fields *f, const json_t *list)
{
    fields_unique(f, list, "name", "names the server");
}

/* §18.3 */
static void check_member(struct fields *f, const json_t *member)
{
    static const struct field self[] = {{.name = "type", .kinds = FIELD_STRING}, {0}};
    static const struct field agent[] = {
        {.name = "type", .kinds = FIELD_STRING},
        {.name = "id", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 64},
        {.name = "version", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = INT32_MAX},
        {0},
    };
    struct str type = json_get_str(member, "type");
    if (str_is(type, "self"))
        fields_object(f, member, self);
    else if (str_is(type, "agent"))
        fields_object(f, member, agent);
    else
        fields_problem_at(f, "type", NULL, "must be \"agent\" or \"self\"");
}

static const struct field roster_member = {.kinds = FIELD_OBJECT, .check = check_member};

static void check_roster(struct fields *f, const json_t *list)
{
    fields_unique(f, list, "id", "names the agent");
}

static const struct field multiagent_fields[] = {
    {.name = "agents",
     .kinds = FIELD_ARRAY,
     .required = true,
     .min = 1,
     .max = ROSTER_MAX,
     .item = &roster_member,
     .check = check_roster},
    {0},
};

const struct field agent_session_fields[] = {
    {.name = "tools", .kinds = FIELD_OBJECT, .nullable = true, .members = tools_fields},
    {.name = "mcpServers",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .max = MCP_SERVERS_MAX,
     .item = &mcp_server,
     .check = check_mcp_servers},
    {0},
};

static const struct field overridable[] = {
    {.include = agent_session_fields},
    {.name = "systemPrompt",
     .kinds = FIELD_STRING,
     .nullable = true,
     .no_nul = true,
     .bytes_max = PROMPT_BYTES_MAX},
    {.name = "projectContext", .kinds = FIELD_BOOL, .nullable = true},
    {.name = "extensions", .kinds = FIELD_ARRAY, .nullable = true, .max = 20, .item = &extension},
    {.name = "skills",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .max = SKILLS_MAX,
     .item = &skill,
     .check = check_skills},
    {0},
};

static const struct field not_overridable[] = {
    {.name = "multiagent", .kinds = FIELD_OBJECT, .nullable = true, .members = multiagent_fields},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {0},
};

#define NAME .name = "name", .kinds = FIELD_STRING, .line = true, .min = 1, .max = 128
#define MODEL .name = "model", .kinds = FIELD_OBJECT, .members = model_fields, .check = check_model

const struct field agent_override_fields[] = {{MODEL}, {.include = overridable}, {0}};

const struct field agent_create_fields[] = {
    {NAME, .required = true},
    {MODEL, .required = true},
    {.include = overridable},
    {.include = not_overridable},
    {0},
};

/* The version precondition is no part of the definition. */
const struct field agent_update_fields[] = {
    {.name = "version", .kinds = FIELD_INT, .min = 1, .max = INT32_MAX},
    {NAME},
    {MODEL},
    {.include = overridable},
    {.include = not_overridable},
    {0},
};

/* The model */

static bool is_wire_api(const char *api)
{
    for (size_t i = 0; wire_apis[i]; i++)
        if (strcmp(wire_apis[i], api) == 0)
            return true;
    return false;
}

static void check_custom(struct fields *f, const json_t *model)
{
    const char *api = json_get_c(model, "api"), *base_url = json_get_c(model, "baseUrl");
    if (api == NULL) {
        fields_problem_at(f, "api", NULL,
                          "is required with baseUrl: one of anthropic-messages, "
                          "openai-completions, openai-responses, "
                          "google-generative-ai");
    } else if (!is_wire_api(api)) {
        fields_problem_at(f, "api", NULL,
                          "must be one of anthropic-messages, openai-completions, "
                          "openai-responses, google-generative-ai");
    }
    if (base_url == NULL)
        fields_problem_at(f, "baseUrl", NULL, "is required with api");
    else if (!is_base_url(str_of(base_url)))
        fields_problem_at(f, "baseUrl", NULL,
                          "must be an http:// or https:// address without user, query or fragment");
}

static void check_known(struct fields *f, const struct catalog *catalog, const json_t *model)
{
    const char *provider = json_get_c(model, "provider"), *id = json_get_c(model, "id");
    if (!catalog_has_provider(catalog, provider)) {
        fields_problem_at(f, "provider", "provider_unavailable",
                          "there is no provider %.64s; these work: %s. For another server give api "
                          "and baseUrl",
                          provider, catalog_providers(catalog));
        return;
    }
    const struct catalog_model *m = catalog_find(catalog, provider, id);
    if (m == NULL)
        fields_problem_at(f, "id", "model_unknown", "provider %s has no model %.128s", provider,
                          id);
    else if (m->api == NULL)
        fields_problem_at(f, "provider", "provider_unavailable",
                          "%s speaks a wire API that is not supported; these work: %s", provider,
                          catalog_providers(catalog));
    static const char *const custom_only[] = {"contextWindow", "maxTokens", "input"};
    for (size_t i = 0; i < sizeof custom_only / sizeof *custom_only; i++)
        if (json_object_get(model, custom_only[i]) &&
            !json_is_null(json_object_get(model, custom_only[i])))
            fields_problem_at(f, custom_only[i], NULL,
                              "is for a model with its own api and baseUrl only");
}

/* R40, R47: provider, model, wire API and address fit together. The present value is the model. */
static void check_model(struct fields *f, const json_t *model)
{
    const struct catalog *catalog = f->context;
    if (json_get_c(model, "api") || json_get_c(model, "baseUrl"))
        check_custom(f, model);
    else
        check_known(f, catalog, model);
}

/* Definitions */

static json_t *default_of(const char *member)
{
    static const char *const lists[] = {"extensions", "skills", "mcpServers"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(member, lists[i]) == 0)
            return json_array();
    if (strcmp(member, "metadata") == 0)
        return json_object();
    if (strcmp(member, "projectContext") == 0)
        return json_true();
    return json_null();
}

void agent_apply(json_t *definition, const json_t *changes)
{
    static const char *const members[] = {
        "name",       "model",      "systemPrompt", "tools",          "skills",
        "extensions", "mcpServers", "multiagent",   "projectContext", "metadata"};
    fields_apply(definition, changes, members, sizeof members / sizeof *members, default_of);
}

/* Fits together what is checked apart, as either may come from another version or an override. */
err agent_check_whole(const json_t *definition)
{
    const json_t *servers = json_object_get(definition, "mcpServers");
    const json_t *toolsets = json_object_get(json_object_get(definition, "tools"), "mcp");
    AUTO_JSON declared = json_object();
    size_t i;
    json_t *one;
    json_array_foreach(servers, i, one)
        json_object_set_new(declared, json_get_c(one, "name"), json_false());
    json_array_foreach(toolsets, i, one)
    {
        const char *name = json_get_c(one, "server");
        const json_t *used = json_object_get(declared, name);
        if (used == NULL || json_is_true(used))
            return fail(E_INVALID, "tools.mcp: %.128s is %s", name,
                        used ? "there twice" : "no name of mcpServers");
        json_object_set_new(declared, name, json_true());
    }
    json_array_foreach(servers, i, one)
    {
        if (!json_is_true(json_object_get(declared, json_get_c(one, "name"))))
            return fail(E_INVALID,
                        "mcpServers: %.128s needs an entry in tools.mcp with this name as server",
                        json_get_c(one, "name"));
    }
    return 0;
}

/* Features that can be described and not be run yet. */
err agent_check_runnable(const json_t *definition)
{
    static const char *const later[] = {"skills", "mcpServers", "multiagent"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        const json_t *value = json_object_get(definition, later[i]);
        if (json_array_size(value) > 0 || json_object_size(value) > 0)
            return fail_as(E_INVALID, "not_supported",
                           "the agent has %s, which this version cannot run%s", later[i],
                           i < 2 ? "; override it with null" : "");
    }
    return 0;
}
